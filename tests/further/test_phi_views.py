"""Two ends of hidden units as two views: what they find, what hides from them, and what a norm makes indifferent."""

import numpy as np
import pytest
import torch
import transformers
from scipy.optimize import linear_sum_assignment

from provlab import api
from provlab.errors import NotComparableError
from provlab.further.phi_views import reads, writes
from provlab.statistics import get
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import TOO_FAINT, PhiMatch

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}


@pytest.fixture(scope="module")
def ungated(tmp_path_factory, models, save_model):
    """A GPT-2, a child of it and a stranger, whose norms have weights of their own; the tokenizer of `models`."""
    made = {}
    networks = {}
    for seed, name in enumerate(("base", "child", "stranger")):
        torch.manual_seed(seed)
        config = transformers.GPT2Config(
            n_embd=24, n_inner=96, n_layer=2, n_head=4, vocab_size=300, n_positions=64, initializer_range=0.2
        )
        network = networks[name] = transformers.GPT2LMHeadModel(config).eval()
        if name == "child":
            network.load_state_dict(networks["base"].state_dict())
        with torch.no_grad():
            for key, parameter in network.named_parameters():
                if name == "child":
                    parameter.add_(0.2 * parameter.std(correction=0) * torch.randn(parameter.shape))
                elif "ln_" in key and "weight" in key:
                    parameter.mul_(1 + 0.3 * torch.rand(parameter.shape))
        made[name] = str(save_model(network, tmp_path_factory.mktemp(name)))
    return made


def outcome(a, b, statistic, text):
    return api.compare(str(a), str(b), statistics=[statistic], text=text, **SIZES).records[0].outcome


def test_both_forms_find_a_child_and_no_stranger(ungated, text):
    assert outcome(ungated["base"], ungated["child"], "phi_views", text).log10_p < -40
    assert outcome(ungated["base"], ungated["stranger"], "phi_views", text).log10_p > -2
    child, stranger = (outcome(ungated["base"], ungated[who], "phi_views_outer", text) for who in ("child", "stranger"))
    assert child.log10_p is None
    assert child.value > 0.6
    assert abs(stranger.value) < 0.3
    assert {"nominal", "n"} <= child.blocks[0].detail.as_record().keys()


@pytest.mark.parametrize(("kind", "hides"), [("T1", True), ("T2", False), ("T3", True), ("T5", False)])
def test_what_hides_from_the_weights_does_not_hide_from_outside(ungated, text, kind, hides):
    copy = f"disguised:{kind}:{ungated['base']}"
    assert (outcome(ungated["base"], copy, "phi_views", text).log10_p > -3) == hides
    assert outcome(ungated["base"], copy, "phi_views_outer", text).value == pytest.approx(1, abs=1e-6)


def test_gated_models_have_two_ends_as_well(models, text):
    assert outcome(models["base"], models["tuned"], "phi_views", text).log10_p < -5
    assert outcome(models["base"], models["stranger"], "phi_views", text).log10_p > -3


@pytest.mark.parametrize("kind", ["quiet", "never firing"])
def test_units_that_write_next_to_nothing_make_nobody_related(ungated, save_model, tmp_path, text, kind, monkeypatch):
    """Copies of both ends of the base's units beside a stranger's own, written faintly or behind a bias."""
    load = transformers.GPT2LMHeadModel.from_pretrained
    base, stranger = load(ungated["base"]), load(ungated["stranger"])
    framed = transformers.GPT2LMHeadModel(transformers.GPT2Config(**stranger.config.to_dict() | {"n_inner": 192}))
    framed.load_state_dict({k: v for k, v in stranger.state_dict().items() if ".mlp." not in k}, strict=False)
    with torch.no_grad():
        for theirs, own, new in zip(base.transformer.h, stranger.transformer.h, framed.transformer.h, strict=True):
            copies = theirs.mlp.c_fc.weight * (theirs.ln_2.weight / own.ln_2.weight)[:, None]
            new.mlp.c_fc.weight.copy_(torch.cat([own.mlp.c_fc.weight, copies], 1))
            silent = -4 * (copies * own.ln_2.weight[:, None]).norm(dim=0) * (kind != "quiet")
            new.mlp.c_fc.bias.copy_(torch.cat([own.mlp.c_fc.bias, silent]))
            written = theirs.mlp.c_proj.weight * (0.01 if kind == "quiet" else 1)
            new.mlp.c_proj.weight.copy_(torch.cat([own.mlp.c_proj.weight, written]))
            new.mlp.c_proj.bias.copy_(own.mlp.c_proj.bias)
    folder = save_model(framed, tmp_path / "framed")
    result = outcome(ungated["base"], folder, "phi_views", text)
    if kind == "quiet":  # the units that agree are too many for chance, and may not count
        assert result.log10_p is None or result.log10_p > -3
        assert result.reach == 0
        assert TOO_FAINT in result.why
    else:
        assert result.log10_p > -3
    assert max(block.detail.written[1] for block in result.blocks) < PhiMatch.WRITTEN
    monkeypatch.setattr(PhiMatch, "WRITTEN", -np.inf)
    assert outcome(ungated["base"], folder, "phi_views", text).log10_p < -10


def test_by_its_definition(ungated):
    """Block 1 in float64 by scipy: rows times the norm's weights without their mean, columns without theirs."""
    sides, checked = [], []
    for name in ("base", "child"):
        network = transformers.AutoModelForCausalLM.from_pretrained(ungated[name], dtype=torch.float32)
        block = network.transformer.h[1]
        gain = block.ln_2.weight.detach().double()
        rows = block.mlp.c_fc.weight.detach().double().T * gain
        columns = block.mlp.c_proj.weight.detach().double()
        sides.append([(end - end.mean(1, keepdim=True)).numpy() for end in (rows, columns)])
        model = Model.open(ungated[name])
        checked.append([reads(model, 1), writes(model, 1)])
    np.testing.assert_allclose(np.array(sides), np.array(checked), atol=1e-12)
    partners = []
    for a, b in zip(*sides, strict=True):
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
        partners.append(linear_sum_assignment(unit[0] @ unit[1].T, maximize=True)[1])
    statistic = get("phi_views")
    blocks = [statistic.prepare(Model.open(ungated[name]), Options()).block(1) for name in ("base", "child")]
    result = statistic.compare_block(*blocks, 1, Options())
    np.testing.assert_array_equal(result.matching, partners)


def test_refusals(ungated, models, text):
    with pytest.raises(NotComparableError, match="blocks"):
        api.compare(ungated["base"], models["base"], statistics=["phi_views"], text=text, **SIZES)
