"""phi_U of blocks of experts: its size whatever experts of one model share, and what it finds."""

import json
import shutil
from itertools import combinations

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from provlab.api import compare
from provlab.attacks.catalogue import Step
from provlab.attacks.disguise import logits
from provlab.attacks.state import Aim, AttackedModel
from provlab.engine.pairs import open_models, run_pairs
from provlab.inference.matching import tie_seed, unit_rows
from provlab.inference.pvalues import fisher
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import experts as of_experts
from provlab.statistics import get
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch
from provlab.statistics.phi_u import correlation_with_identity

EXPERTS, UNITS, WIDTH = 4, 8, 10


def experts(weights):
    return {str(i): unit_rows(rows) for i, rows in enumerate(np.asarray(weights, np.float32))}


def best(a, b, block, seed):
    """As phi_U compares them."""
    pairs = of_experts.paired(a, b).items()
    return of_experts.best({ij: correlation_with_identity(*rows, block, tie_seed(seed, *ij)) for ij, rows in pairs})


def drawn(rng):
    """Experts drawn each for itself."""
    return rng.normal(size=(EXPERTS, UNITS, WIDTH))


def upcycled(rng, noise=0.1):
    """Experts that began as copies of one MLP."""
    return rng.normal(size=(UNITS, WIDTH)) + noise * drawn(rng)


def with_reordered(rng):
    """Two models of the same units, in another order, alike in all experts: nothing but the order is independent."""
    rows = rng.normal(size=(UNITS, WIDTH))
    return np.stack([rows] * EXPERTS), rows[rng.permutation(UNITS)] + 0.05 * drawn(rng)


def naive(a, b, block, seed):
    """Fisher over experts of equal number: no p-value where these are copies."""
    result = [correlation_with_identity(x, y, block, seed).log10_p for x, y in zip(a.values(), b.values(), strict=True)]
    return float(fisher(np.array(result)))


PAIRS = {
    "drawn": lambda rng: (drawn(rng), drawn(rng)),
    "upcycled": lambda rng: (upcycled(rng), upcycled(rng)),
    "exact copies": lambda rng: (upcycled(rng, 0), upcycled(rng, 0)),
    "dense": lambda rng: (drawn(rng)[:1], upcycled(rng)),
    "reordered": with_reordered,
}


def rejected(make, level, n=150, test=lambda *inputs: best(*inputs).log10_p):
    """How many of n independent pairs are rejected."""
    rng = np.random.default_rng(0)
    return sum(test(*map(experts, make(rng)), 0, seed) <= np.log10(level) for seed in range(n))


@pytest.mark.parametrize("kind", PAIRS)
def test_independent_pairs_are_rejected_at_most_as_often_as_said(kind):
    # of 150 pairs, a test of size 0.01 rejects more than 6 in less than one case of 1,000
    assert rejected(PAIRS[kind], 0.01) <= 6


def test_fisher_over_experts_that_are_copies_would_be_seen():
    assert rejected(PAIRS["exact copies"], 0.01, test=naive) > 6


def test_permuted_experts_and_upcycled_ones_are_found():
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(6, 40, 24)) + 2 * rng.normal(size=24)  # what training gives all experts alike
    order = rng.permutation(6)
    copy = weights[order] + 0.5 * rng.normal(size=weights.shape)
    result = best(experts(weights), experts(copy), 3, 0)
    assert (result.block, result.detail.experts, result.detail.n) == (3, 6, 240)
    assert result.log10_p == pytest.approx(result.reach)
    assert result.detail.agree > 230
    first, second = result.detail.pair
    assert order[int(second)] == int(first)
    turned = best(experts(copy), experts(weights), 3, 0)
    assert order[int(turned.detail.pair[0])] == int(turned.detail.pair[1])
    grown = weights[0] + 0.5 * rng.normal(size=(6, 40, 24))
    item = best(unit_rows(weights[0].astype(np.float32)), experts(grown), 0, 0)
    assert item.detail.experts == 6  # a single MLP meets each
    assert item.log10_p == item.reach < -40
    cut = best(experts(weights[0].reshape(2, 20, 24)), unit_rows(weights[0].astype(np.float32)), 0, 0)
    assert cut.detail.n == 40
    assert cut.log10_p < -17


def test_a_dense_model_and_the_experts_grown_from_it(tmp_path):
    dense = tiny_models.save("mistral", tmp_path / "dense")
    config = json.loads((dense / "config.json").read_text())
    grown = tiny_models.save("mixtral", tmp_path / "grown", seed=1)
    of_dense = tiny_models.build("mistral").model.layers

    def fill(tensors):
        for block, layer in enumerate(of_dense):
            for expert in range(3):
                noise = 0.01 * torch.randn(layer.mlp.up_proj.weight.shape)
                tensors[f"model.layers.{block}.block_sparse_moe.experts.{expert}.w3.weight"] = (
                    layer.mlp.up_proj.weight + noise
                ).detach()

    tiny_models.rewrite(grown, fill)
    stranger = tiny_models.save("mixtral", tmp_path / "stranger", seed=2)
    assert config["num_hidden_layers"] == 2
    sources = [str(dense), str(grown), str(stranger)]
    grew, none, not_either = run_pairs(open_models(sources), ["phi_u"], Options(), progress=False)
    assert grew.outcome.log10_p == pytest.approx(grew.outcome.reach)
    assert none.outcome.log10_p > -3
    assert not_either.outcome.log10_p > -3


def test_experts_without_rows_are_left_out():
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(3, UNITS, WIDTH))
    some = {name: rows for name, rows in experts(weights).items() if name != "1"}
    assert best(some, experts(weights), 0, 0).detail.experts == 2
    with pytest.raises(ValueError, match="no expert of the block"):
        best({}, experts(weights), 4, 0)


def test_what_runs_a_model_says_why_it_does_not_run_experts(tmp_path):
    sources = [str(tiny_models.save("mixtral", tmp_path / name, seed=seed)) for seed, name in enumerate("ab")]
    names = ["phi_h", "phi_l2", "phi_views"]  # phi_anchor compares all experts as one MLP
    for record in run_pairs(open_models(sources), names, Options(n_sequences=1, sequence_length=8), progress=False):
        assert "one for each expert" in record.error, record


def test_experts_that_are_permuted_copies_are_found_in_any_order(tmp_path, text):
    """The outputs are those of the dense model, as the router's weights of all experts that it takes add up to 1."""
    wide = {"intermediate_size": 48, "vocab_size": 300, "num_hidden_layers": 2}
    small = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.15}
    alike = {"rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    settings = {**wide, **small, **alike, "max_position_embeddings": 64}
    torch.manual_seed(0)
    dense = MistralForCausalLM(MistralConfig(**settings))
    sparse = MixtralConfig(**settings, num_local_experts=2, num_experts_per_tok=2)
    copied, stranger = MixtralForCausalLM(sparse), MixtralForCausalLM(sparse)
    with torch.no_grad():
        copied.load_state_dict(dense.state_dict(), strict=False)
        for old, new in zip(dense.model.layers, copied.model.layers, strict=True):
            for expert in range(2):
                order = torch.randperm(48)
                up = torch.cat([old.mlp.gate_proj.weight[order], old.mlp.up_proj.weight[order]])
                new.mlp.experts.gate_up_proj[expert] = up
                new.mlp.experts.down_proj[expert] = old.mlp.down_proj.weight[:, order]
        tokens = torch.randint(300, (2, 16))
        assert torch.allclose(dense(tokens).logits, copied(tokens).logits, atol=1e-5)
    sources = [str(tmp_path / name) for name in ("dense", "copied", "stranger")]
    for source, model in zip(sources, (dense, copied, stranger), strict=True):
        model.save_pretrained(source)
    options = Options(text=text, n_sequences=16, sequence_length=16)
    names = ["phi_match", "phi_match_unsigned", "phi_u"]
    records = run_pairs(open_models(sources), names, options, progress=False)
    outcomes = {(record.statistic, record.a, record.b): record.outcome for record in records}
    for name in names[:2]:
        copy, *others = (outcomes[name, *pair] for pair in combinations(sources, 2))
        assert copy.log10_p < -60
        assert copy.blocks[0].detail.experts == 2  # of two equal ones the nearest, and both as one MLP
        # of the dense model all, which its units write one by one, or a little more, as some of them cancel; the
        # router's weights of two equal experts are one half each, or any that add up to 1
        assert 0.3 < min(copy.blocks[0].detail.written) <= max(copy.blocks[0].detail.written) < 1.1
        assert all(other.log10_p > -2 for other in others)
        assert others[1].blocks[0].detail.experts == 3
    assert outcomes["phi_u", sources[0], sources[1]].log10_p > -3  # which reads the order
    itself = shutil.copytree(sources[1], tmp_path / "again")
    (record,) = run_pairs(open_models([sources[1], str(itself)]), names[:1], options, progress=False, memory="8GB")
    assert record.outcome.log10_p < -60
    assert record.outcome.blocks[0].detail.n in (48, 2 * 48)  # equal units of two experts are one in the whole


def mixtral(seed, units=48, n_experts=2):
    torch.manual_seed(seed)
    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=300, hidden_size=32, intermediate_size=units, num_hidden_layers=2, num_local_experts=n_experts,
            num_experts_per_tok=2, num_attention_heads=4, num_key_value_heads=2, initializer_range=0.15,
        )
    )  # fmt: skip


def llama(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, initializer_range=0.15,
        )
    )  # fmt: skip


@pytest.mark.parametrize("side", [0, 1])
def test_a_block_of_experts_without_units_is_left_out(side, tmp_path, text):
    whole, dead = mixtral(0), mixtral(0)
    with torch.no_grad():
        dead.model.layers[0].mlp.experts.gate_up_proj.zero_()
    sources = [str(tmp_path / name) for name in ("whole", "dead")][:: 1 - 2 * side]
    for model, name in ((whole, "whole"), (dead, "dead")):
        model.save_pretrained(tmp_path / name)
    options = Options(text=text, n_sequences=16, sequence_length=16)
    names = ["phi_u", "phi_match", "phi_anchor"]
    for record in run_pairs(open_models(sources), names, options, progress=False):
        first, second = record.outcome.blocks
        assert "fewer than two hidden units" in first.why, record.statistic
        assert first.log10_p == first.reach == 0
        assert second.log10_p < -20
        assert record.outcome.log10_p == get(record.statistic).aggregate([second]).log10_p
        if record.statistic != "phi_u":
            assert ("the first has" in first.why) == (side == 1)


@pytest.mark.parametrize("kind", ["faint units", "faint expert"])
def test_experts_that_imitate_and_write_next_to_nothing_make_nobody_related(kind, tmp_path, text, monkeypatch):
    """Copies of the units of an expert in each expert of an independent model, or as one more expert beside its own."""
    victim, own = mixtral(0), mixtral(1)
    framed = mixtral(2, 96) if kind == "faint units" else mixtral(2, n_experts=3)
    framed.model.embed_tokens.load_state_dict(victim.model.embed_tokens.state_dict())
    with torch.no_grad():
        for theirs, layer, new in zip(victim.model.layers, own.model.layers, framed.model.layers, strict=True):
            new.self_attn.load_state_dict(theirs.self_attn.state_dict())  # one language, so that copies do the same
            parts, old, copied = new.mlp.experts, layer.mlp.experts, theirs.mlp.experts
            rows, columns = copied.gate_up_proj[:1], 0.001 * copied.down_proj[:1]
            if kind == "faint units":
                both = [side.chunk(2, 1) for side in (old.gate_up_proj, rows.expand(2, -1, -1))]
                parts.gate_up_proj.copy_(torch.cat([torch.cat(role, 1) for role in zip(*both, strict=True)], 1))
                parts.down_proj.copy_(torch.cat([old.down_proj, columns.expand(2, -1, -1)], 2))
            else:
                parts.gate_up_proj.copy_(torch.cat([old.gate_up_proj, rows]))
                parts.down_proj.copy_(torch.cat([old.down_proj, columns]))
    sources = [str(tmp_path / name) for name in ("victim", "framed")]
    for source, model in zip(sources, (victim, framed), strict=True):
        model.save_pretrained(source)

    def outcome():
        options = Options(text=text, n_sequences=16, sequence_length=16)
        return run_pairs(open_models(sources), ["phi_match"], options, progress=False)[0].outcome

    assert (outcome().log10_p or 0) > -3  # None where what is left says nothing
    assert max(block.detail.written[1] for block in outcome().blocks) < 0.05
    monkeypatch.setattr(PhiMatch, "WRITTEN", -np.inf)
    assert outcome().log10_p < -30


def test_the_verdict_says_that_the_language_part_was_compared(tmp_path):
    sources = [tiny_models.save("llama", tmp_path / name, seed=seed) for seed, name in enumerate("ab")]
    seeing = sources[1]

    def wrap(config):
        text = dict(config)
        config.clear()
        config.update(
            architectures=["LlavaForConditionalGeneration"], model_type="llava", text_config=text, vision_config={}
        )

    tiny_models.edit_json(seeing / "config.json", wrap)
    weights = {
        f"language_model.{name}": tensor for name, tensor in tiny_models.build("llama", seed=1).state_dict().items()
    }
    save_file(weights, seeing / "model.safetensors")
    result = compare(*map(str, sources), statistics=["phi_u", "phi_h"], progress=False)
    assert [model["language_part"] for model in result.models] == [None, "LlamaForCausalLM"]
    assert (
        "The language part of b (LlavaForConditionalGeneration) was compared, as LlamaForCausalLM." in result.verdict()
    )
    assert "LlavaForConditionalGeneration is compared by the weights of its language part" in result.verdict()


# Cut into experts ------------------------------------------------------------------------------------------


def cut(dense, kinds, seed=0):
    """A model whose MLPs were dealt out to experts, float32."""
    state = AttackedModel.read(dense)
    for kind in kinds:
        step = Step.read(kind)
        state = step.attack.apply(state, Aim(np.random.default_rng(seed), step.value))
    return state


def fewer_active(state, pick):
    """Half of the experts see a token, those that `pick` gives a router ``(n, d)`` for; all computed by either half."""
    n = 2 * state.config["num_local_experts"]
    weights = dict(state.weights)
    for name, tensor in state.weights.items():
        if ".experts." in name:
            head, _, rest = name.partition(".experts.")
            expert, _, end = rest.partition(".")
            weights[f"{head}.experts.{int(expert) + n // 2}.{end}"] = tensor
        if name.endswith("block_sparse_moe.gate.weight"):
            weights[name] = pick(n, tensor.shape[1])
    return state.having(weights, {"num_local_experts": n, "num_experts_per_tok": n // 2})


def first_half(n, width):
    """The same logits for all experts, to the last bit, as they are one number of the stream: the first are taken."""
    return torch.eye(1, width, dtype=torch.float64).repeat(n, 1)


def by_side(n, width):
    """One half of the experts on one side of a plane of the stream, the other half on the other side."""
    signs = torch.tensor([1.0] * (n // 2) + [-1.0] * (n // 2), dtype=torch.float64)
    return signs[:, None] * torch.linspace(-1, 1, width, dtype=torch.float64)


def finer(state, parts=3):
    """Each expert of a Mixtral in some, of which each has the router's row of the whole: outputs stay."""
    weights, n = {}, state.config["num_local_experts"]
    for name, tensor in state.weights.items():
        if ".experts." in name:
            head, _, rest = name.partition(".experts.")
            expert, _, end = rest.partition(".")
            axis = int(end.startswith("w2"))
            for k, piece in enumerate(tensor.chunk(parts, axis)):
                weights[f"{head}.experts.{int(expert) * parts + k}.{end}"] = piece * (parts if axis else 1)
        elif name.endswith("block_sparse_moe.gate.weight"):
            weights[name] = tensor.repeat_interleave(parts, 0)
        else:
            weights[name] = tensor
    active = parts * state.config["num_experts_per_tok"]
    width = state.config["intermediate_size"] // parts
    return state.having(
        weights, {"num_local_experts": parts * n, "num_experts_per_tok": active, "intermediate_size": width}
    )


def noisy(state, size=1e-6):
    """A router that is nearly, and not quite, the same for all experts."""
    rng = np.random.default_rng(5)
    return state.having(
        {
            name: torch.from_numpy(size * rng.normal(size=tensor.shape)) if "moe.gate" in name else tensor
            for name, tensor in state.weights.items()
        }
    )


def with_empty(state):
    """One more expert that is zero, and as active as the others."""
    n = state.config["num_local_experts"]
    weights = dict(state.weights)
    for name, tensor in state.weights.items():
        if ".experts.0." in name:
            weights[name.replace(".experts.0.", f".experts.{n}.")] = torch.zeros_like(tensor)
        if name.endswith("w2.weight"):
            weights[name] = tensor * (n + 1) / n
        if name.endswith("block_sparse_moe.gate.weight"):
            weights[name] = torch.zeros(n + 1, tensor.shape[1], dtype=torch.float64)
    return state.having(weights, {"num_local_experts": n + 1, "num_experts_per_tok": n + 1})


CUT = {
    "8": lambda dense, _: cut(dense, ["experts=8"]),
    "5, some units of zeros": lambda dense, _: cut(dense, ["experts=5"]),
    "16, each unit split before": lambda dense, _: cut(dense, ["split=3", "experts=16", "signs=0.5"]),
    "8 of 16 by the same logits": lambda dense, _: fewer_active(cut(dense, ["experts=8"]), first_half),
    "8 of 16 by a plane": lambda dense, _: fewer_active(cut(dense, ["split=1", "experts=8"]), by_side),
    "8, a router of noise": lambda dense, _: noisy(cut(dense, ["experts=8"])),
    "9, one empty": lambda dense, _: with_empty(cut(dense, ["experts=8"])),
    "experts cut finer": lambda _, sparse: finer(AttackedModel.read(sparse)),
}


@pytest.mark.parametrize("kind", CUT)
def test_an_mlp_cut_into_experts_is_found_and_no_other_model(kind, tmp_path, text):
    """The logits of either model are the same, and no expert alone writes what the test asks for."""
    dense = llama(3)
    dense.save_pretrained(tmp_path / "dense")
    mixtral(4).save_pretrained(tmp_path / "sparse")
    llama(5).save_pretrained(tmp_path / "stranger")
    origin = tmp_path / ("sparse" if kind == "experts cut finer" else "dense")
    state = CUT[kind](*(Checkpoint.open(str(tmp_path / name)) for name in ("dense", "sparse")))
    state.write(tmp_path / "cut", exactly=True)
    models = [Checkpoint.open(str(folder)) for folder in (origin, tmp_path / "cut")]
    tokens = np.random.default_rng(0).integers(300, size=(2, 12))
    before, after = (logits(model, tokens) for model in models)
    assert float((before - after).abs().max()) < (1e-3 if "noise" in kind else 1e-9)
    sources = [str(origin), str(tmp_path / "cut"), str(tmp_path / "stranger")]
    options = Options(text=text, n_sequences=16, sequence_length=16)
    names = ["phi_match_unsigned", "phi_anchor"]
    for record in run_pairs(open_models(sources), names, options, progress=False):
        if record.b == sources[1]:
            assert record.outcome.log10_p < -30, record
            assert min(record.outcome.blocks[0].detail.written) > 0.4
        else:
            assert record.outcome.log10_p > -3, record


def test_an_mlp_cut_into_experts_in_order_is_found_by_rows():
    rows = np.random.default_rng(6).normal(size=(80, 24))
    pieces = experts(rows.reshape(4, 20, 24))
    assert best(unit_rows(rows.astype(np.float32)), pieces, 0, 0).log10_p < -15
    assert best(pieces, unit_rows(rows.astype(np.float32)), 0, 0).log10_p < -15


def test_weights_of_experts_are_those_that_bring_their_sum_nearest():
    """By hand: two loud experts that all but cancel hide none of the others, and none gets a weight below 0."""
    rng = np.random.default_rng(7)
    quiet, loud = rng.normal(size=(3, 6, 40)), 1e5 * rng.normal(size=(6, 40))
    own = {"a": loud + quiet[0], "b": -loud + quiet[1], "c": quiet[2], "idle": rng.normal(size=(6, 40))}
    output = 0.25 * (own["a"] + own["b"] + own["c"])
    weights = of_experts.weighed(own, output)
    assert [weights[name] for name in "abc"] == pytest.approx([0.25] * 3, rel=1e-4)
    assert weights["idle"] < 1e-4
    assert of_experts.weighed({"a": quiet[0], "b": quiet[1]}, -quiet[0])["a"] == 0
    assert of_experts.weighed({"a": 0 * quiet[0], "b": 0 * quiet[1]}, 0 * quiet[0]) == {"a": 0, "b": 0}
