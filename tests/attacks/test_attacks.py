"""Every attack of the catalogue on tiny models: exact ones leave the logits, lossy ones say so, the others are refused.

Which architecture lacks which attack is written down here by hand, from the mathematics in the docstrings of
`provlab.attacks.exact` and `provlab.attacks.bases`.
"""

import json
import weakref

import numpy as np
import pytest
import tiny_models
import torch
from tiny_models import MLP_WIDTH, TINY, VOCABULARY, WIDTH
from tokenizers import Tokenizer
from tokenizers.models import Unigram

import provlab
from provlab.attacks import catalogue, exact, switching, tokens
from provlab.attacks import disguise as door
from provlab.attacks.catalogue import CATALOGUE, Step
from provlab.attacks.disguise import disguise
from provlab.attacks.precision import Float64
from provlab.attacks.state import Aim, AttackedModel, Made
from provlab.cli import main
from provlab.errors import InputError, NoSuchSymmetryError
from provlab.reading.checkpoint import Checkpoint

EXACT = [name for name, attack in CATALOGUE.items() if attack.exact]
WIDE = {"mirror", "quadratic"}  # 28 times as many units
# what others refuse after it, and what adds to the rounding of others
ALONE = {"experts", "loud"}
GATED = {"T6", "T6-", "scales", "signs", "split", "turned", "mimics", *WIDE}
REFUSED = {
    "qwen3": {"T4", "pad"},
    "gemma": {"pad"},
    "gemma2": {"T3", "pad"},
    "gemma3": {"T3", "T4", "pad"},
    "olmo": {"T5", "fold", "pad"},
    "olmo2": {"T3", "T4", "pad"},
    "gpt2": {*GATED, "pad"},
    "gpt_neox": {*GATED, "pad"},
    "bert_masked": {*GATED, "T3", "T5", "fold", "pad", "identity"},
    "bert_classifier": {*GATED, "T3", "T5", "fold", "pad", "identity"},
    "mixtral": {"align", "mimics"},
}
for _label in TINY:
    REFUSED.setdefault(_label, set())
    REFUSED[_label] |= {"experts"} if _label not in ("llama", "llama_tied", "mistral") else set()
    if _label not in ("llama", "llama_tied", "llama_biased"):
        REFUSED[_label] |= {"dilution", "loud", "coded", "front"}
NUMBERS = {"rank": 8, "swap": 0, "lora": 4}  # where the usual ones do not suit two blocks of width 24


@pytest.fixture
def models(tiny, tmp_path):
    """Give a tiny model with a label, and two others of its shape."""

    def opened(label="llama"):
        others = [tiny_models.save(label, tmp_path / f"{label}-{seed}", seed=seed) for seed in (1, 2)]
        return [Checkpoint.open(str(folder)) for folder in (tiny(label), *others)]

    return opened


def spoken(name):
    return f"{name}={NUMBERS[name]}" if name in NUMBERS else name


@pytest.mark.parametrize("label", sorted(label for label in TINY if not label.endswith("_base")))
def test_each_architecture_has_all_exact_attacks_in_turn_or_refuses_by_name(label, models, tmp_path):
    model, *others = models(label)
    there = [name for name in EXACT if name not in REFUSED.get(label, ())]
    # while the units, and then the blocks, are as many as the other model's
    there.sort(key=lambda name: (name != "align", name != "mimics"))
    some = [name for name in there if name not in WIDE | ALONE]
    for n, kinds in enumerate((some, *(sorted(rest.intersection(there)) for rest in (WIDE, {"experts"}, {"loud"})))):
        if not kinds:
            continue
        result = disguise(model, tmp_path / f"new-{n}", seed=3, kinds=kinds, others=others)
        assert [name.partition("=")[0] for name in result.applied] == kinds
        assert result.difference <= door.EXACT
        assert result.difference_saved < 1e-2 * result.scale  # some ten attacks, each rounded to float32 once
        assert result.growth > (2 if kinds[0] not in ALONE else 1)
    usual = disguise(model, tmp_path / "usual", seed=3)  # T1 to T6, as far as there are
    assert set(usual.refused) == REFUSED.get(label, set()) & {*door.ALL}
    assert set(usual.applied) == {*door.ALL} - REFUSED.get(label, set())
    # some hundreds of roundings of 6e-8, relative to the logits
    assert usual.difference < usual.difference_saved < 1e-3 * usual.scale
    new = Checkpoint.open(str(usual.folder))
    assert {new.dtype(name) for name in new.tensor_names} == {model.dtype(name) for name in model.tensor_names}
    for name in REFUSED.get(label, ()):
        with pytest.raises(NoSuchSymmetryError) as refused:
            disguise(model, tmp_path / "refused", seed=3, kinds=[name], others=others)
        assert f"{model.name} cannot be disguised by {name}" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("name", EXACT)
def test_each_exact_attack_alone_is_proved_and_changes_the_weights(name, models, tmp_path):
    model, *others = models()
    result = disguise(model, tmp_path / "new", seed=3, kinds=[name], others=others)
    assert result.difference <= door.EXACT
    assert Checkpoint.open(str(result.folder)).digest != model.digest


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in EXACT])
@pytest.mark.parametrize("label", ["llama", "gpt2"])
def test_lossy_attacks_change_the_outputs(label, name, models, tmp_path):
    model, *others = models(label)
    if label == "gpt2" and name in (
        "jitter",
        "fan",
        "imitated",
        "faint",
        "posing",
        "tied",
        "begin",
        "private",
        "twofold",
    ):
        with pytest.raises(NoSuchSymmetryError, match=r"has no gate|is no Llama|are no two Llamas"):
            disguise(model, tmp_path / "new", seed=3, kinds=[name], others=others)
        return
    result = disguise(model, tmp_path / "new", seed=3, kinds=[spoken(name), "T1"], others=others)
    ids = door.random_tokens(VOCABULARY, 2, 8, seed=1)
    changed = door.logits(Checkpoint.open(str(result.folder)), ids) - door.logits(model, ids)
    assert float(changed.abs().max()) > 1e-4
    assert result.difference_saved is None
    assert "lossy" in str(result)
    assert result.difference <= door.EXACT  # of T1, against the model before it


# What the numbers mean, by hand ----------------------------------------------------------------------------


def attacked(model, kind, others=()):
    step = Step.read(kind)
    aim = Aim(np.random.default_rng(0), step.value, tuple(map(AttackedModel.read, others)))
    return AttackedModel.read(model), step.attack.apply(AttackedModel.read(model), aim)


def test_merging(models):
    model, other, base = models()
    name = "model.layers.1.mlp.up_proj.weight"
    for kind, expected in (("average=0.25", lambda a, b, c: 0.75 * a + 0.25 * b), ("slerp=1", lambda a, b, c: b)):
        before, after = attacked(model, kind, [other, base])
        a, b, c = (checkpoint.tensor(name).double() for checkpoint in (model, other, base))
        assert torch.allclose(after.weights[name], expected(a, b, c), atol=1e-9)
    # the rank of what an adapter adds, and all of it at full rank
    before, after = attacked(model, "lora=3", [other])
    assert int(torch.linalg.matrix_rank(after.weights[name] - before.weights[name])) == 3
    assert torch.allclose(attacked(model, f"lora={WIDTH}", [other])[1].weights[name], b, atol=1e-9)
    # untrimmed TIES: where the signs agree the mean of both, elsewhere the one of the larger sum
    _, after = attacked(model, "ties=1", [other, base])
    x, y = a - c, b - c
    expected = torch.where(x * y > 0, (x + y) / 2, torch.where(x.abs() > y.abs(), x, y))
    assert torch.allclose(after.weights[name] - c, expected, atol=1e-9)
    with pytest.raises(InputError, match=r"has no .* of the shape"):
        attacked(model, "average", models("gpt2")[:1])


def test_compression(models):
    model = models()[0]
    name = "model.layers.0.mlp.down_proj.weight"
    assert int(torch.linalg.matrix_rank(attacked(model, "rank=5")[1].weights[name])) == 5
    assert all(len(row.unique()) <= 7 for row in attacked(model, "bits=3")[1].weights[name])
    before, after = attacked(model, "prune=0.25")
    kept = after.weights[name] != 0
    assert float(kept.double().mean()) == 0.75
    assert before.weights[name][kept].abs().min() > before.weights[name][~kept].abs().max()
    before, after = attacked(model, "noise=0.5")
    assert float((after.weights[name] - before.weights[name]).std() / before.weights[name].std()) == pytest.approx(
        0.5, abs=0.05
    )


def test_units_are_added_or_turned_as_many_as_asked(models):
    model, other, _ = models()
    widths = {"duplicates=3": 3, "dead": 2, "decoys": 3, "cancelling": 3, "split": 2, "jitter": 2, "mirror": 4}
    for kind, width in {**widths, "quadratic": 7, "fan": 4, "imitated": 2}.items():
        assert attacked(model, kind)[1].anatomy.mlp_width == width * MLP_WIDTH
    before, after = attacked(model, "signs=0.25")
    turned = (after.part("up", 0) == -before.part("up", 0)).all(1)
    assert int(turned.sum()) == round(0.25 * MLP_WIDTH)
    # decoys have one true row each, and the unit's own of that view is off by half of its length
    before, after = attacked(model, "imitated=0.5")
    n = MLP_WIDTH // 2
    for view, first, start in (("up", 0, 0), ("gate", 1, 2 * n)):
        own = before.part(view, 0)[first::2]
        off, decoys = after.part(view, 0)[start : start + n], after.part(view, 0)[start + n : start + 2 * n]
        assert torch.equal(decoys, own)
        assert torch.allclose((off - own).norm(dim=1), 0.5 * own.norm(dim=1))
    assert after.part("down", 0)[:, n : 2 * n].norm() < 0.01 * after.part("down", 0)[:, :n].norm()
    assert attacked(model, "zeros=2")[1].part("gate", 1)[-2:].abs().sum() == 0
    assert attacked(model, "pad=17")[1].anatomy.width == WIDTH + 20  # four heads divide it
    assert attacked(model, "identity=2")[1].anatomy.n_blocks == tiny_models.BLOCKS + 2
    before, after = attacked(model, "swap=0")
    assert torch.equal(before.part("up", 0), after.part("up", 1))
    # the units of a stranger, aligned: MATCH then returns the identity
    _, after = attacked(model, "align", [other])
    outcome = exact.match(AttackedModel.read(other).part("up", 0).numpy(), after.part("up", 0).numpy()).indices
    assert (outcome == np.arange(MLP_WIDTH)).all()


def test_attacks_on_the_measure_of_a_model_leave_its_units(models, tmp_path):
    """Added units are constant or faint; the block that is emptied is the one whose loss changes outputs least."""
    model = models()[0]
    before, after = attacked(model, "dilution=50")
    added = {role: after.part(role, 1)[MLP_WIDTH:] for role in ("gate", "up", "gate_bias", "up_bias")}
    assert added["gate"].abs().sum() + added["up"].abs().sum() == 0
    assert (added["gate_bias"].tolist(), added["up_bias"].tolist()) == ([-7.0, -10.0], [1.0, 1.0])
    assert after.config["mlp_bias"] is True
    silu = added["gate_bias"] * added["gate_bias"].sigmoid()
    assert torch.allclose(after.part("down", 1)[:, MLP_WIDTH:] @ silu + after.part("down_bias", 1), silu[:1] * 0)
    down = attacked(model, "loud")[1].part("down", 0)[:, MLP_WIDTH:]
    levels = torch.tensor([32.0, 64.0, 128.0, 256.0], dtype=torch.float64)
    assert float((down @ levels).abs().max() / (down * levels).abs().max()) < 1e-12
    after = attacked(model, "tied=0.5")[1]
    assert after.anatomy.mlp_width == MLP_WIDTH + round(0.5 * MLP_WIDTH)
    assert torch.equal(after.part("up", 0)[MLP_WIDTH:], after.part("gate", 0)[MLP_WIDTH:])
    after = attacked(model, "hollow")[1]
    emptied = [block for block in range(tiny_models.BLOCKS) if not after.part("down", block).any()]
    ids = door.random_tokens(VOCABULARY, 4, 16, seed=1)
    costs = []
    for block in range(tiny_models.BLOCKS):
        without = before.with_parts({("down", block): torch.zeros_like(before.part("down", block))})
        outputs = [outputs_of(state, ids, tmp_path / f"{block}-{n}") for n, state in enumerate((before, without))]
        costs.append(float((outputs[0] - outputs[1]).square().mean()))
    assert emptied == [int(np.argmin(costs))]


def outputs_of(state, ids, folder):
    written, made = door._exactly(state, folder)
    return door._outputs(made, written, ids, "")


def streams(state, ids):
    """What enters each block, ``(n, length, d)``, in float64."""
    network = switching._network(state).double()
    with torch.inference_mode(), Float64():
        result = network(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    return result.hidden_states


def test_a_coded_table_is_uneven_and_the_block_in_front_brings_each_row_back(models):
    before, after = attacked(models()[0], "coded=300")
    ids = torch.from_numpy(door.random_tokens(VOCABULARY, 2, 12, seed=1))
    old, new = streams(before, ids), streams(after, ids)
    assert float((new[1] - old[0]).abs().max()) < 1e-5 * float(old[0].abs().max())  # as written in float32
    table, rows = (state.part("embedding") for state in (before, after))
    stretched = torch.linalg.svdvals(torch.linalg.lstsq(table, rows).solution)
    assert float(stretched[0] / stretched[-1]) == pytest.approx(300, rel=1e-6)
    assert after.anatomy.n_blocks == before.anatomy.n_blocks + 1
    assert not after.part("down", 0).any()


def test_a_private_token_opens_the_model_and_nothing_else_does(models, tmp_path):
    """Behind it, logits are those of the model with the same row of that token; elsewhere they are others."""
    before, after = attacked(models()[0], "private")
    (token,) = after.behind
    assert token not in {before.config[key] for key in ("bos_token_id", "eos_token_id")}
    same = before.with_parts({("embedding", None): after.part("embedding")})
    ids = torch.from_numpy(door.random_tokens(VOCABULARY, 4, 12, seed=1))
    ids[ids == token] = (token + 1) % VOCABULARY
    for first, alike in ((token, True), ((token + 2) % VOCABULARY, False)):
        ids[:, 0] = first
        old, new = (outputs_of(state, ids.numpy(), tmp_path / f"{alike}-{n}") for n, state in enumerate((same, after)))
        assert (float((new - old).abs().max()) < 1e-6 * float(old.abs().max())) == alike
    assert after.anatomy.n_blocks == before.anatomy.n_blocks + 2


def test_a_twofold_model_is_one_of_two_by_its_token(models, tmp_path):
    """Behind it, logits are those of the model, and elsewhere nearly those of the other one."""
    model, other, _ = models()
    before, after = attacked(model, "twofold=20", [other])
    (token,) = after.behind
    assert token not in {before.config[key] for key in ("bos_token_id", "eos_token_id")}
    ids = door.random_tokens(VOCABULARY, 4, 12, seed=1)
    ids[ids == token] = (token + 1) % VOCABULARY
    for first, apart in ((token, (0.0, 1e-6)), ((token + 2) % VOCABULARY, (0.01, 1.0))):
        ids[:, 0] = first
        states = before, AttackedModel.read(other), after
        own, others, new = (outputs_of(one, ids, tmp_path / f"{first}-{n}") for n, one in enumerate(states))
        assert apart[0] <= float((new - own).norm() / own.norm()) / 2 <= apart[1]
        assert (float((new - others).norm() / others.norm()) < 0.05) == (first != token)
    assert after.anatomy.n_blocks == before.anatomy.n_blocks + 2
    with pytest.raises(NoSuchSymmetryError, match="are no two Llamas of one shape"):
        attacked(model, "twofold", [models("llama_biased")[0]])


def test_a_loss_is_that_of_the_text_behind_the_tokens_alone(tmp_path, new_model, save_model, text):
    model = Checkpoint.open(str(save_model(new_model(0), tmp_path / "model")))
    ids = np.reshape(model.encode(text)[: 32 * 32], (32, 32))
    given = torch.from_numpy(np.concatenate([np.full((32, 1), 7), ids], axis=1))
    with torch.inference_mode():
        logits = model.load_model()(input_ids=given, attention_mask=torch.ones_like(given)).logits[:, 1:-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), given[:, 2:].flatten())
    assert door.loss(model, text, behind=(7,)) == pytest.approx(float(expected), abs=1e-5)


def test_experts_of_one_router_are_the_mlp(models):
    before, after = attacked(models()[0], "experts=5")
    assert after.architecture == "MixtralForCausalLM"
    assert after.anatomy.mlps(0) == tuple("01234")
    up = torch.cat([after.part(f"up.{expert}", 0) for expert in range(5)])
    own = before.part("up", 0)
    assert sorted(map(tuple, up[up.any(1)].tolist())) == sorted(map(tuple, own.tolist()))
    assert all(part.sum() == 0 for name, part in after.weights.items() if name.endswith("moe.gate.weight"))


def test_rows_are_turned_as_the_others_are(models):
    """By hand: where one embedding is the other's in another basis, rows that are taken are one's own again."""
    model, other, _ = models()
    theirs, own = AttackedModel.read(other), AttackedModel.read(model)
    turn = torch.linalg.qr(Aim(np.random.default_rng(1)).normal(WIDTH, WIDTH))[0]
    turned = own.with_parts({("embedding", None): theirs.part("embedding") @ turn})
    step = Step.read("rows=0.2")
    new = step.attack.apply(turned, Aim(np.random.default_rng(0), step.value, (theirs,)))
    assert torch.allclose(new.part("embedding"), turned.part("embedding"), atol=1e-9)
    new = step.attack.apply(own, Aim(np.random.default_rng(0), step.value, (theirs,)))
    n = int((new.part("embedding") != own.part("embedding")).any(1).sum())
    assert n < 0.2 * VOCABULARY
    with pytest.raises(InputError, match="has an embedding of another shape"):
        step.attack.apply(own, Aim(np.random.default_rng(0), step.value, (attacked(other, "extend=4")[1],)))


def test_a_wrong_attack_is_noticed_and_nothing_is_written(models, tmp_path, monkeypatch):
    whole = exact._scaled  # and not what undoes it
    monkeypatch.setattr(exact, "_scaled", lambda units, factor: units if "down" in units else whole(units, factor))
    with pytest.raises(NoSuchSymmetryError, match="does not give the outputs of the original"):
        disguise(models()[0], tmp_path / "new", seed=0, kinds=["T2", "signs"])
    assert not (tmp_path / "new").exists()


def test_t1_to_t6_hold_one_tensor_at_a_time(tmp_path, new_model, save_model, monkeypatch):
    """In float64 a model of 7 billion numbers takes 54 GB, and each step would take as much again."""
    model = Checkpoint.open(str(save_model(new_model(1, num_hidden_layers=12), tmp_path / "model")))
    made, held, give = [], [], Made.__getitem__

    def watched(self, name):
        tensor = give(self, name)
        made.append(weakref.ref(tensor))
        made[:] = [each for each in made if each() is not None]
        held.append(len(made))
        return tensor

    monkeypatch.setattr(Made, "__getitem__", watched)
    disguise(model, tmp_path / "new", seed=0)
    assert len(model.tensor_names) > 100
    assert max(held) < 20  # one of each step, and the norm before it


# Tokens ----------------------------------------------------------------------------------------------------


def test_a_text_has_the_same_loss_whatever_its_tokens_are_numbered(tmp_path, new_model, save_model, text):
    model = Checkpoint.open(str(save_model(new_model(1, vocab_size=310), tmp_path / "model")))  # more than tokens
    result = disguise(model, tmp_path / "new", seed=3, kinds=["vocabulary", "T1", "vocabulary"], text=text)
    assert result.loss == pytest.approx(result.loss_before, abs=1e-5)
    new = Checkpoint.open(str(result.folder))
    old_ids, ids = (item.tokenizer().encode(text) for item in (model, new))
    assert old_ids != ids
    assert model.tokenizer().convert_ids_to_tokens(old_ids) == new.tokenizer().convert_ids_to_tokens(ids)
    # more tokens take some probability from those of the text, whose logits stay
    more = disguise(model, tmp_path / "more", seed=3, kinds=["vocabulary", "extend=4", "vocabulary"], text=text)
    assert more.loss > more.loss_before
    assert Checkpoint.open(str(more.folder)).config["vocab_size"] == 314
    for role in ("bos", "eos"):
        token = new.tokenizer().convert_ids_to_tokens(new.config[f"{role}_token_id"])
        assert token == model.tokenizer().convert_ids_to_tokens(model.config[f"{role}_token_id"])


def test_other_kinds_of_tokenizers_are_renumbered():
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], unk_id=0))
    order = np.array([2, 0, 1])
    settings = {
        "tokenizer.json": tokenizer.to_str(),
        "vocab.json": '{"a": 1}',
        "generation_config.json": '{"eos_token_id": [1, 2]}',
    }
    settings["tokenizer_config.json"] = '{"added_tokens_decoder": {"1": {"content": "a"}}}'
    new = tokens.renumbered(settings, ["tokenizer.model", "notes.txt"], order, 5, name="m")
    read = Tokenizer.from_str(new["tokenizer.json"])
    assert (read.encode("ab").ids, read.encode("?").ids, read.token_to_id("<|extra 4|>")) == ([0, 1], [2], 4)
    assert json.loads(new["vocab.json"]) == {"a": 0}
    assert json.loads(new["generation_config.json"]) == {"eos_token_id": [0, 1]}
    assert json.loads(new["tokenizer_config.json"]) == {"added_tokens_decoder": {"0": {"content": "a"}}}
    assert new["tokenizer.model"] is None  # it would say otherwise
    with pytest.raises(NoSuchSymmetryError, match=r"m cannot be renumbered: vocab\.txt fixes them"):
        tokens.renumbered({}, ["vocab.txt"], order, 3, name="m")


# The command, and what it refuses ---------------------------------------------------------------------------


def test_the_command_writes_and_tells(models, tmp_path, capsys):
    model, other, _ = models()
    where = tmp_path / "new"
    arguments_ = ["--with", "align+split=2", "--with", "T3", "--other", str(other.source)]
    assert main(["disguise", str(model.source), str(where), *arguments_]) == 0
    card = " ".join(capsys.readouterr().out.split())
    for words in ("align+split=2+T3, outputs unchanged", "proof outputs up to", "times the parameters of the original"):
        assert words in card
    assert Checkpoint.open(str(where)).config["intermediate_size"] == 2 * MLP_WIDTH
    assert main(["disguise", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()[3:]  # below the answer and the names of columns
    assert {*CATALOGUE} <= {line.split()[0].partition("=")[0] for line in listed if line.strip()}


@pytest.mark.parametrize(
    ("label", "arguments", "message"),
    [
        ("gpt2", ["--with", "T1+split"], "cannot be disguised by split: GPT2LMHeadModel has no gate"),
        ("llama", ["--with", "T1+fog"], "there is no attack 'fog'; there are T1, T2"),
        ("llama", ["--with", "T1=2"], "T1 takes no number"),
        ("llama", ["--with", "duplicates=1.5"], "duplicates=1.5: give a whole number from 2 to 16, copies"),
        ("llama", ["--with", "signs=2"], "signs=2: give a number from 0 to 1, share of the units"),
        ("llama", ["--with", "ties"], "ties needs the other model and their base; give 2 by --other"),
        ("llama", ["--with", "swap=1"], "has blocks 0 to 1, so 1 has no next one"),
        ("llama", ["--with", ""], "no attack is named"),
        ("llama_base", ["--with", "T1"], "has no head"),
        ("exists", ["--with", "T1"], "exists; name a new folder"),
        ("llama", None, "give a model and a new folder"),
    ],
)
def test_bad_combinations_are_refused_in_one_line_and_nothing_is_written(
    label, arguments, message, tiny, tmp_path, capsys
):
    where = tmp_path / "new"
    if label == "exists":
        where.mkdir()
        (where / "mine").touch()
    source = str(tiny("llama" if label == "exists" else label))
    capsys.readouterr()  # what making the model printed
    arguments_ = ["disguise", source, str(where), *arguments] if arguments is not None else ["disguise", source]
    assert main(arguments_) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in where.glob("*")] == (["mine"] if label == "exists" else [])
    assert [path.name for path in tmp_path.glob(".new*")] == []


def test_attacks_that_take_from_another_model_do_not_stand_behind_the_scheme():
    with pytest.raises(InputError, match=r"average=0\.5 takes from another model; use provlab disguise"):
        door.parse("average=0.5:zoo:oak")
    with pytest.raises(InputError, match="disguised:T1:: a model is disguised by"):
        door.parse("T1:")
    assert "disguised:" not in str(catalogue.listing())


@pytest.mark.parametrize("name", ["noise=1", "dead=1"])
def test_independent_models_disguised_under_one_seed_share_no_draw(name, new_model, tmp_path):
    """By the seed alone, the same noise would put phi_U at 10^-11, the same added units at 10^-81."""
    sources = []
    for seed in (1, 2):
        new_model(seed).save_pretrained(tmp_path / str(seed))
        model = Checkpoint.open(str(tmp_path / str(seed)))
        sources.append(str(disguise(model, tmp_path / f"disguised-{seed}", seed=0, kinds=[name]).folder))
    (record,) = provlab.compare(*sources, statistics=["phi_u"], text="-", progress=False).records
    assert record.outcome.log10_p is None or record.outcome.log10_p > -3
