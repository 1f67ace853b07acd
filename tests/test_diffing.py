"""`provlab.diff` and ``provlab diff`` on tiny models: the numbers, what is kept, and what is refused in one line."""

import json
import re
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

import provlab
from provlab import zoo
from provlab.errors import InputError
from provlab.modeldiff import generation, pipeline
from provlab.modeldiff.tokens import opening

FEW = {"n": 400, "length": 8, "z": (3.0, 9.0), "progress": False}


@pytest.fixture(autouse=True)
def no_corpus(monkeypatch, text, tmp_path):
    monkeypatch.setattr(zoo, "held_out_text", lambda domain: text)
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pair(models):
    return models["base"], models["tuned"]


@pytest.fixture
def page(tmp_path, text):
    path = tmp_path / "page.txt"
    path.write_text(text)
    return path


def test_the_numbers_are_of_both_sides_and_agree(pair):
    """Weighed, they are those of all inputs: as among sequences drawn uniformly, without either model."""
    opened = list(pipeline.open_models(list(pair), opening=opening, progress=False).values())
    uniform = np.random.default_rng(5).integers(0, opened[0].nll.vocabulary, (4000, 8))
    a, b = (model.nll(uniform) for model in opened)
    result = provlab.diff(*pair, **FEW)
    assert result.remedies() == [] or "worth" in result.remedies()[0]
    low, high = FEW["z"]
    truths = ((a < b)[(a > low) & (a < high)].mean(), (b < a)[(b > low) & (b < high)].mean())
    for side, truth in zip(result.sides, truths, strict=True):
        assert side["disagreement"][1] - 0.05 < truth < side["disagreement"][2] + 0.05
        assert side["disagreement"][0] + side["agreement"][0] == pytest.approx(1)
        assert side["log10_inputs"][1] <= side["log10_inputs"][0] <= side["log10_inputs"][2]
    first, second = result.summary.log10_common  # two estimates of one number
    assert first == pytest.approx(second, abs=0.5)
    low = [item.difference for item in result.examples[0] if item.end == "D lowest"]
    high = [item.difference for item in result.examples[0] if item.end == "D highest"]
    assert max(low) < min(high)


def test_a_second_call_draws_nothing_and_another_seed_something(pair, tmp_path, monkeypatch):
    results = tmp_path / "kept"
    first = provlab.diff(*pair, **FEW, results=results)
    drawn = []
    write = generation.write
    monkeypatch.setattr(generation, "write", lambda *a, **k: drawn.append(1) or write(*a, **k))
    again = provlab.diff(*pair, **FEW, results=results)
    assert (drawn, str(again)) == ([], str(first))
    assert json.dumps(again.to_json()) == json.dumps(first.to_json())
    next(results.glob("generated-*")).unlink()
    assert str(provlab.diff(*pair, **FEW, results=results)) == str(first)
    assert len(drawn) == 1
    assert str(provlab.diff(*pair, **FEW, seed=1, results=results)) != str(first)


def test_a_disguised_pair_of_equal_functions_has_no_difference(models, tmp_path):
    """The weights in other shards: other digests, the same losses, and D is exactly 0."""
    from provlab.models.checkpoint import Checkpoint

    copy = tmp_path / "copy"
    shutil.copytree(models["base"], copy)
    (copy / "model.safetensors").unlink()
    Checkpoint.open(models["base"]).load_model().save_pretrained(copy, max_shard_size="40KB")
    result = provlab.diff(models["base"], copy, **FEW)
    assert (result.compared.a.difference == 0).all()
    assert any("answer alike" in text for text in result.remedies())
    assert result.drawn()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_shows_itself_and_goes_into_json(run, pair, page, tmp_path, dtype):
    target = tmp_path / "x.json"
    few = ["--sequences", 400, "--length", 8, "--from-text", "0:1", "--text", page]
    status, out, error = run("diff", *pair, *few, "--json", target, "--dtype", dtype)
    assert (status, error) == (0, "")
    assert "seed 0" in out
    assert "quantiles of the losses of 500 pieces of the given text" in " ".join(out.split())
    result = json.loads(target.read_text())
    assert result["schema"] == "provlab.diff/1"
    assert {"models", "parameters", "seed", "z", "sides", "summary", "rho", "examples", "assumptions"} <= set(result)
    assert [side["model"] for side in result["sides"]] == ["base", "tuned"]
    assert np.shape(result["rho"]["a"]) == (3, 40)


@pytest.mark.parametrize(("layout", "size"), [(tiny_models.as_gpt2s, 290), (tiny_models.as_llamas, 100)])
def test_foreign_layouts_of_tokenizers_are_read(layout, size, new_model, text, tmp_path):
    """GPT-2's two files and Llama's SentencePiece; one model has rows that pad its vocabulary."""
    pair = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(pair):
        new_model(seed, vocab_size=300 + 20 * seed).save_pretrained(folder)
        layout(folder, text, size)
    result = provlab.diff(*pair, text=text, length=8, shares=(0, 1), n=400, progress=False)
    assert all(side["in_z"] > 20 for side in result.sides)
    assert "of A's ids and" in result.assumptions()[0]


def test_the_picture_in_text_is_of_both_sides(pair):
    result = provlab.diff(*pair, **FEW)
    head, _, *rows = str(result.picture()).splitlines()
    assert len(rows) == 14
    column = head.index("B's")
    longest = [max(row[26:column].count("#") for row in rows), max(row[column:].count("#") for row in rows)]
    assert max(longest) == 34
    assert min(longest) > 3


def test_a_prompt_is_followed_and_references_show_what_a_second_training_changes(run, models, tmp_path):
    """With a nearer sibling as reference the excess is positive; the other way round it is negative."""
    (tmp_path / "prompt").write_text("the model reads\n")
    few = ["--prompt", tmp_path / "prompt", "--length", 8, "--sequences", 200, "--fail-above", 0.01]
    html = tmp_path / "x.html"
    status, out, error = run(
        "diff", models["base"], models["stranger"], "--reference", models["tuned"], *few, "--html", html
    )
    assert status == 1
    assert re.match(
        r"provlab: fails: the excess over A and the reference is [\d. to()]+ nats per token, above 0.01", error
    )
    assert "It follows the prompt 'the model reads' of 15 characters." in " ".join(out.split())
    assert "[-" in out
    page = html.read_text()
    assert page.startswith("<!doctype html>")
    assert "data:image/png" in page
    assert not re.search(r"(src|href)=['\"]?(http|/)", page)
    assert "rgba(213,94,0" in page
    target = tmp_path / "x.json"
    both = models["base"], models["tuned"], "--reference", models["stranger"], "--reference", models["sibling"]
    status, out, error = run("diff", *both, *few, "--json", target)
    assert (status, error) == (0, "")
    apart = json.loads(target.read_text())["apart"]
    assert apart["excess"][2] < 0
    assert apart["rank_p"] in (2 / 3, 1)


def test_one_side_without_inputs_leaves_the_other(models, new_model, save_model, tmp_path):
    """The base's flat law has no input of the low losses that a sharp one writes at."""
    sharp = save_model(new_model(6, initializer_range=0.8), tmp_path / "sharp")
    result = provlab.diff(models["base"], sharp, **FEW | {"z": (0.01, 2.0)})
    assert [side["in_z"] > 0 for side in result.sides] == [False, True]
    assert result.sides[1]["disagreement"][0] == 1
    assert result.remedies()[0].startswith("A has no number: base has 0 of 800 sequences")
    assert "–" in str(result)
    assert result.drawn() is None
    assert json.dumps(result.to_json())


def nan_weights(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][:] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def another_tokenizer(folder):
    tiny_models.as_llamas(folder, "the model reads a page of text and says which word comes next " * 40, 100)


def no_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "settings", "message"),
    [
        (None, ["--text", "{empty}"], "the text is empty; give"),
        (None, ["--text", "/no/such"], "--text /no/such cannot be read"),
        (None, ["--length", "900"], "sequences of 900 tokens exceed the context of base: 63"),
        (None, ["--length", "1"], "length must be a whole number of at least 2, not 1"),
        (None, ["--sequences", "3"], "n must be a whole number of at least 40, not 3"),
        (None, ["--range", "0.001:0.002"], "has 0 of 800 sequences .* too few; most have .*: move Z there"),
        (None, ["--range", "4:3"], r"Z = \[4, 3\] is empty"),
        (None, ["--range", "low"], "--range is two numbers such as 0.5:1, not 'low'"),
        (None, ["--from-text", "0.5:0.1"], "shares must rise"),
        (None, ["--range", "1:2", "--from-text", "0:1"], "not allowed with argument"),
        (None, ["--dtype", "int4"], "dtype must be float32"),
        (nan_weights, ["--range", "1:9"], "NaN"),
        (no_tokenizer, [], "has no tokenizer"),
        (another_tokenizer, [], r"base and spoilt have different tokenizers: they share \d+ of \d+ tokens"),
        (None, ["--text", "{short}"], r"the text has \d+ tokens?, too few for pieces of 8"),
        (None, ["--tempers", "1.5,2"], "the least of them at most 1"),
        (None, ["--tempers", "nan"], "tempers must be positive numbers"),
        (None, ["--range", "1:inf"], "both finite"),
        (None, ["--prompt", "{short}", "--text", "{short}"], "a prompt goes with neither"),
        (None, ["--fail-above", "nan"], "--fail-above is a number of nats"),
        (None, ["--html", "/no/such/x"], "--html: /no/such is no folder"),
        (None, ["--reference", "{base}"], "are identical"),
        (None, ["--text", "{unknown}"], "100% of its tokens are unknown words"),
        (None, ["--device", "tpu"], "device"),
    ],
)
def test_bad_input_gets_one_line(run, models, spoilt, tmp_path, spoil, settings, message):
    files = {name: tmp_path / name for name in ("empty", "short", "unknown")}
    for path, words in zip(files.values(), (" \n", "read", "<|end|>" * 99), strict=True):
        path.write_text(words)
    if spoil:
        spoil(spoilt)
    second = spoilt if spoil else models["tuned"]
    if not any(flag in settings for flag in ("--length", "--sequences")):
        settings = [*settings, "--length", "8", "--sequences", "400"]
    target = tmp_path / "x.json"
    settings = [item.format(base=models["base"], **files) for item in settings]
    status, out, error = run("diff", models["base"], second, *settings, "--json", target)
    assert (status, out) == (2, "")
    assert len(error.splitlines()) == 1
    assert re.search(message, error)
    assert not target.exists()


def test_identical_models_are_refused(models, spoilt):
    with pytest.raises(InputError, match="identical"):
        provlab.diff(models["base"], models["base"], **FEW)
    with pytest.raises(InputError, match="identical"):
        provlab.diff(models["base"], spoilt, **FEW)
