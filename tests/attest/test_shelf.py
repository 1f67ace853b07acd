"""A shelf of fingerprints: kin are found among strangers, and what is on no shelf is said."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import same_content
import tiny_models
import torch
from safetensors.torch import load_file
from tables import UNSEEN, WIDTH, WORDS, added, trained, tuned, turned

from provlab.attest import fingerprint, kin, shelf
from provlab.errors import NotComparableError
from provlab.kept import read_arrays, write_arrays
from provlab.statistics.model import Model


@pytest.fixture(scope="module")
def kept(models, tmp_path_factory):
    """Base, stranger and other on a shelf."""
    folder = tmp_path_factory.mktemp("shelf")
    shelf.add([models[name] for name in ("base", "stranger", "other")], folder)
    return folder


@pytest.fixture
def copy(kept, tmp_path):
    return Path(shutil.copytree(kept, tmp_path / "copy"))


def kin_of(result):
    names = result.title().partition(": kin of ")[2].partition(" (")[0]
    return [Path(name).name for name in names.split(", ")]


def test_kin_is_named_and_strangers_are_not(kept, models):
    result = shelf.identify(models["tuned"], kept)
    assert kin_of(result) == ["base"]
    assert result.title().endswith("base (Holm over 6 tests on 3 models, family-wise error at most 0.01)")
    assert "other blocks than the first" in str(result)
    assert kin_of(shelf.identify(models["base"], kept)) == ["base"]
    assert "identical" in str(shelf.identify(models["base"], kept))


def test_the_nearest_ancestor_is_in_a_set(kept, models):
    result = shelf.identify(models["tuned"], kept)
    assert [Path(name).name for name in result.nearest] == ["base"]
    assert "Nearest ancestor: among" in str(result)
    assert "if any kin is an ancestor" in " ".join(str(result).split())
    assert result.to_json()["nearest"] == result.nearest
    assert result.to_json()["coverage"] == 0.9
    assert "the same model, file by file" in " ".join(str(shelf.identify(models["base"], kept)).split())


def test_kin_whose_units_stand_elsewhere_may_always_be_the_nearest(rng):
    """Both rows in another order: kin, without a distance, so that nobody rules it out and it rules out nobody."""
    table, order = trained(rng), rng.permutation(80)
    hidden = [rng.normal(size=(80, WIDTH)) for _ in "ab"]
    child = [rows + 0.1 * rng.normal(size=rows.shape) for rows in hidden]
    moved = [(rows + 0.1 * rng.normal(size=rows.shape))[order] for rows in hidden]
    shelves = [fingerprint_of(table, hidden, source="base"), fingerprint_of(trained(rng), moved, source="moved")]
    answer = ask(fingerprint_of(trained(rng), child), *shelves)
    assert answer.outcomes == {"base": kin.KIN, "moved": kin.KIN}
    assert answer.nearest == ("base", "moved")


def test_none_is_said(models, tmp_path):
    shelf.add([models["stranger"], models["other"]], tmp_path)
    result = shelf.identify(models["base"], tmp_path)
    assert "kin of none" in result.title()
    assert result.nearest == ()
    assert "Nearest ancestor: none on this shelf" in str(result)


def fingerprint_of(table, hidden=None, *, source="a"):
    """A fingerprint of an embedding, and of the rows of some units."""
    up, second = (rows.astype(np.float16) for rows in hidden) if hidden else (np.empty((0, table.shape[1])),) * 2
    kept = fingerprint.of_embedding(table.astype(np.float32), np.arange(len(table)))
    written = np.full(len(up), 1 / max(len(up), 1), np.float32)
    return fingerprint.Fingerprint(source, source, up, second, written, **kept, width=table.shape[1], sorted_by=None)


def ask(own, *others):
    """The answer on a shelf of these fingerprints, without files."""
    return kin.answer(own, others)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_untrained_tokens_find_kin_whose_stream_was_turned(rng):
    base = trained(rng)
    floor = -np.log10(float(math.factorial(UNSEEN)))
    for child in (tuned(rng, base), turned(rng, tuned(rng, base)), np.hstack([tuned(rng, base), np.zeros((300, 8))])):
        value, *_, note = kin.log10_p(fingerprint_of(base), fingerprint_of(child), kin.UNSEEN)
        assert (value, note) == (pytest.approx(floor), "")
    assert kin.log10_p(fingerprint_of(base), fingerprint_of(trained(rng)), kin.UNSEEN)[0] > -3


def test_four_roots_that_added_tokens_with_one_seed_are_no_kin(rng):
    """As `set_seed(42)`, `resize_token_embeddings(+64, mean_resizing=False)` make them: kin of 3 of 3 by raw rows."""
    for words in (slice(None), slice(WORDS)):  # with unseen tokens of their own, and with the added ones alone
        roots = [fingerprint_of(added(trained(rng)[words]), source=f"root {i}") for i in range(4)]
        for k, root in enumerate(roots):
            answer = ask(root, *roots[:k], *roots[k + 1 :])
            assert set(answer.outcomes.values()) == {kin.NONE}
            assert "drew them after training" in str(answer)


def test_added_rows_that_pass_for_trained_do_not_turn_the_streams(rng, monkeypatch):
    sides = [fingerprint_of(added(added(trained(rng), 600, 1, std=3.0), 64, 2)) for _ in range(2)]
    assert kin.log10_p(*sides, kin.UNSEEN)[0] > -3
    monkeypatch.setattr(kin.phi_unseen, "of_the_streams", lambda raw: np.ones(len(raw), dtype=bool))
    assert kin.log10_p(*sides, kin.UNSEEN)[0] < -4


def test_rows_alone_and_order_alone_are_answers_of_their_own(rng):
    base, stranger = trained(rng), trained(rng)
    hidden, others = ([rng.normal(size=(80, WIDTH)) for _ in "ab"] for _ in range(2))
    own = fingerprint_of(base, hidden)
    assert ask(own, fingerprint_of(tuned(rng, base), others)).outcomes == {"a": kin.ROWS}
    ordered = [0.4 * rng.normal(size=(80, WIDTH)) + hidden[0], others[1]]  # up rows alone
    answer = ask(own, fingerprint_of(stranger, ordered))
    assert answer.outcomes == {"a": kin.ORDER}
    assert "kin of none; by order alone: a (Holm over 3 tests on 1 models" in answer.title()
    assert "one rule by which both were sorted" in str(answer)
    # rows and an order can be given to any model, and together they say no more than apart
    assert ask(own, fingerprint_of(tuned(rng, base), ordered)).outcomes == {"a": kin.ROWS}
    assert ask(
        own, fingerprint_of(stranger, [0.4 * rng.normal(size=(80, WIDTH)) + rows for rows in hidden])
    ).outcomes == {"a": kin.KIN}


@pytest.mark.parametrize(("taken", "outcome"), [(24, kin.ORDER), (48, kin.KIN)])
def test_how_much_of_one_block_agrees_is_said(models, kept, tmp_path, taken, outcome):
    """A stranger with so many of the 48 units of another's block 0: their count, in words and for machines."""
    planted = tiny_models.copy(Path(models["stranger"]), tmp_path / "planted")
    theirs = load_file(Path(models["base"]) / "model.safetensors")

    def plant(tensors):
        for name in ("gate_proj", "up_proj"):
            tensors[f"model.layers.0.mlp.{name}.weight"][:taken] = theirs[f"model.layers.0.mlp.{name}.weight"][:taken]
        down = "model.layers.0.mlp.down_proj.weight"
        tensors[down][:, :taken] = theirs[down][:, :taken]

    tiny_models.rewrite(planted, plant)
    result = shelf.identify(str(planted), kept)
    by = {(Path(t["source"]).name, t["test"]): t for t in result.to_json()["tests"]}
    assert result.outcomes[models["base"]] == outcome
    words = " ".join(str(result).split())
    for name, units in (("base", taken), ("stranger", 48 - taken)):
        test = by[name, kin.BOTH]
        assert units <= test["agree"] <= units + 6
        assert test["n"] == 48
        said = f"{name}: {test['agree']} of 48 hidden units of block 0 agree, in any order."
        assert (said in words) == (name == "base" and outcome == kin.KIN)
    order = by["base", kin.UP]
    assert f"base: {order['agree']} of 48 hidden units of block 0 agree in their places." in words
    assert "no other block: a stranger that took over this one block looks alike" in words
    assert " of 48" in str(result.card())


VERBATIM = {
    "faint": {"writes": 1e-3},
    "shut by a bias": {"writes": 1.0, "bias": -60.0},
    "taken back": {"writes": 1.0, "again": True},
}


def with_verbatim_units(folder, theirs, save_model, target, *, writes, bias=0.0, again=False):
    """A model with another one's gate and up rows in front of its own, which write `writes` of what its own do."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model, other = (LlamaForCausalLM.from_pretrained(path) for path in (folder, theirs))
    copies = 2 if again else 1
    h = model.config.intermediate_size
    config = LlamaConfig(**{**model.config.to_dict(), "intermediate_size": (1 + copies) * h, "mlp_bias": bool(bias)})
    new = LlamaForCausalLM(config).eval()
    new.load_state_dict({n: t for n, t in model.state_dict().items() if ".mlp." not in n}, strict=False)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for mine, his, own in zip(new.model.layers, other.model.layers, model.model.layers, strict=True):
            for name in ("gate_proj", "up_proj"):
                rows = getattr(his.mlp, name).weight
                near = rows + 1e-3 * rows.std() * torch.randn(rows.shape, generator=generator)
                getattr(mine.mlp, name).weight.copy_(torch.cat([rows, *[near] * again, getattr(own.mlp, name).weight]))
            down = own.mlp.down_proj.weight
            more = writes * down.std() * torch.randn(down.shape[0], h, generator=generator)
            mine.mlp.down_proj.weight.copy_(torch.cat([more, *[-more] * again, down], dim=1))
            if bias:
                for matrix in (mine.mlp.gate_proj, mine.mlp.up_proj, mine.mlp.down_proj):
                    matrix.bias.zero_()
                mine.mlp.gate_proj.bias[:h] = bias
    return str(save_model(new, target))


@pytest.mark.parametrize("kind", VERBATIM)
def test_rows_that_write_nothing_make_no_kin(models, save_model, tmp_path, monkeypatch, kind):
    """The stranger with the base's hidden rows in front of its own, at no cost: it was kin by its rows alone."""
    framed = with_verbatim_units(models["stranger"], models["base"], save_model, tmp_path / "new", **VERBATIM[kind])
    base, made = (fingerprint.Fingerprint.of(path, Model.open(path)) for path in (models["base"], framed))
    answer = kin.answer(made, [base])
    assert answer.outcomes[models["base"]] != kin.KIN
    assert "units agree that write less than 5% of the output" in str(answer)
    monkeypatch.setattr(kin.PhiMatch, "WRITTEN", -np.inf)  # the plant: every agreement counts
    assert kin.log10_p(base, made, kin.BOTH)[0] < -10


def test_what_units_write_is_a_share_of_the_block(models, monkeypatch):
    """By hand: with many units the kept ones stand for all, so that 5% of a few means 5% of their part."""
    model = Model.open(models["base"])
    written = fingerprint._written(model)
    assert written.sum() == pytest.approx(1)
    assert (written > 0).all()
    monkeypatch.setattr(fingerprint, "UNITS", len(written) // 2)
    assert fingerprint._written(model) == pytest.approx(2 * written)


def test_the_order_is_tested_over_all_blocks_when_the_fingerprint_is_made(new_model, save_model, tmp_path):
    """Strangers sorted by the mean of their up rows in block 2 alone, which is not kept: the guard of a comparison."""
    made = []
    for seed in (5, 6):
        model = new_model(seed, intermediate_size=128)
        mlp = model.model.layers[2].mlp
        order = mlp.up_proj.weight.mean(dim=1).argsort()
        with torch.no_grad():
            for matrix in (mlp.up_proj, mlp.gate_proj):
                matrix.weight.copy_(matrix.weight[order])
            mlp.down_proj.weight.copy_(mlp.down_proj.weight[:, order])
        made.append(fingerprint.Fingerprint.of(str(seed), Model.open(save_model(model, tmp_path / str(seed)))))
    assert made[0].sorted_by["sorted"]
    with pytest.raises(NotComparableError, match="both models were sorted after training"):
        kin.log10_p(*made, kin.UP)


def test_sizes_of_7b_stay_below_16_mb():
    width, half = 4096, 2
    units = 2 * fingerprint.UNITS * width
    tokens = fingerprint.TOKENS * (fingerprint.ANCHORS + fingerprint.SKETCH) + fingerprint.ANCHORS * fingerprint.SKETCH
    assert (units + tokens) * half + 8 * (fingerprint.TOKENS + fingerprint.ANCHORS) < 12e6


def test_the_null_law_holds_over_many_strangers():
    """p-values of independent models, 150 pairs a test: no more small ones than their level says."""
    rng = np.random.default_rng(1)
    pairs = [
        [fingerprint_of(trained(rng), [rng.normal(size=(60, WIDTH)) for _ in "ab"]) for _ in range(2)]
        for _ in range(150)
    ]
    for test in kin.TESTS:
        small = np.mean([kin.log10_p(*pair, test)[0] <= np.log10(0.05) for pair in pairs])
        assert small <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150), test


def damaged(folder):
    path = next(iter(folder.glob("*.npz")))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def of_another_version(folder):
    path = next(iter(folder.glob("*.npz")))
    arrays = read_arrays(path)
    about = json.loads(str(arrays["about"])) | {"schema": "provlab.shelf/1"}
    write_arrays(path, arrays | {"about": np.array(json.dumps(about))})


def emptied(folder):
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (damaged, "is damaged"),
        (of_another_version, "is no fingerprint of version provlab.shelf/3; make it again by provlab shelf add"),
        (emptied, "holds no fingerprints; make some by provlab shelf add"),
    ],
)
def test_a_bad_shelf_is_refused_in_one_line(run, copy, models, plant, message):
    plant(copy)
    status, out, err = run("identify", models["tuned"], "--shelf", copy)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_commands_and_models_of_another_shape(run, models, new_model, save_model, tmp_path):
    wide = save_model(new_model(2, hidden_size=32), tmp_path / "wide")
    status, out, err = run("shelf", "add", models["base"], wide, "--shelf", tmp_path / "s")
    assert (status, err, out.count("MB")) == (0, "", 2)
    status, out, _ = run("identify", models["tuned"], "--shelf", tmp_path / "s", "--json", "-")
    content = json.loads(out)
    assert {row["adjusted_log10_p"] is None for row in content["tests"] if row["error"]} == {True}
    errors = {(Path(row["source"]).name, row["error"]) for row in content["tests"]}
    assert {error for error in errors if "tokens" not in str(error)} == {
        ("base", None),
        ("wide", "another width: 24 and 32"),
    }
    assert run("shelf", "add", tmp_path / "nowhere", "--shelf", tmp_path / "s")[0] == 2


def test_the_same_tensors_in_other_files_are_one_model(kept, models, tmp_path):
    path = Path(shutil.copytree(models["base"], tmp_path / "base"))
    same_content.reordered(path)
    result = shelf.identify(str(path), kept)
    assert "(equal in content)" in str(result)
    assert "the same model, tensor by tensor, in other files" in " ".join(str(result).split())
    assert "config.json differ" not in str(result)
    tiny_models.edit_json(path / "config.json", lambda config: config.update(rope_theta=5e5))
    result = shelf.identify(str(path), kept)
    assert "(equal in content)" in str(result)
    assert " ".join(str(result).split()).count("Their config.json differ") == 1
    assert any("config.json differ" in text for label, text in result.card().remarks if label == "mind")


def test_a_fingerprint_without_a_content_is_read(copy):
    """As those were that an earlier version kept."""
    path = next(copy.glob("*.npz"))
    arrays = read_arrays(path)
    about = json.loads(str(arrays.pop("about")))
    del about["content"]
    write_arrays(path, {"about": np.array(json.dumps(about)), **arrays})
    assert fingerprint.Fingerprint.read(path).content == ""
