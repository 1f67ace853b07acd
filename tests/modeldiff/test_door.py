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
from provlab.cli import screen
from provlab.errors import InputError
from provlab.modeldiff import generation, pipeline
from provlab.modeldiff.tokens import opening
from provlab.modeldiff.written import rounding
from provlab.report.card import QUIET

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


def test_the_answer_takes_one_screen_and_says_what_the_decision_says(pair, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    result = provlab.diff(*pair, **FEW)
    screen.show(result)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 80
    assert "nats per token" in " ".join(lines[:3])  # a number, and not that there is no reference
    words = " ".join(" ".join(lines).split())
    for sentence in result.decision()["sentence"].removesuffix(".").split(". "):
        assert " ".join(sentence.split()) in words
    assert "Each model wrote its inputs with known probability" not in words


def test_a_second_call_draws_nothing_and_another_seed_something(pair, tmp_path, monkeypatch):
    results = tmp_path / "kept"
    first = provlab.diff(*pair, **FEW, results=results)
    drawn = []
    write = generation.write_chains
    monkeypatch.setattr(generation, "write_chains", lambda *a, **k: drawn.append(1) or write(*a, **k))
    again = provlab.diff(*pair, **FEW, results=results)
    assert (drawn, str(again)) == ([], str(first))
    assert json.dumps(again.to_json()) == json.dumps(first.to_json())
    next(results.glob("written-*")).unlink()
    assert str(provlab.diff(*pair, **FEW, results=results)) == str(first)
    assert len(drawn) == 1
    assert str(provlab.diff(*pair, **FEW, seed=1, results=results)) != str(first)


def reordered(folder, target):
    """A copy whose hidden units stand in another order: the same function, and other sums."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    rng = np.random.default_rng(0)
    for name in [name for name in tensors if "up_proj" in name]:
        order = torch.from_numpy(rng.permutation(len(tensors[name])))
        for part, axis in (("up_proj", 0), ("gate_proj", 0), ("down_proj", 1)):
            other = name.replace("up_proj", part)
            tensors[other] = tensors[other].index_select(axis, order).contiguous()
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_equal_functions_are_said_to_be_equal(models, tmp_path, dtype):
    result = provlab.diff(models["base"], reordered(models["base"], tmp_path / "copy"), **FEW, dtype=dtype)
    assert result.equal
    assert result.floor < 1e-4 if dtype == "float32" else result.floor < 0.2
    assert "equal up to rounding: none of 800 outputs" in str(result)
    assert result.decision()["equal"]
    assert not result.fails(1e-12)
    assert result.drawn() is None
    assert "less likely for B" not in str(result)  # neither lines nor groups of what is no difference
    assert (result.card().tone, result.card().body) == (QUIET, [])
    assert "equal up to rounding" in result.card().answer
    assert json.dumps(result.to_json())
    assert result.to_page()


def test_rounding_is_half_a_step_of_the_dtype_where_both_ways_give_the_same_bits():
    """By hand, as processors that multiply 16-bit numbers themselves give them: 8 nats, a step of 2^-7."""
    losses = np.array([3.0, 8.0])
    assert rounding(losses, losses, 2.0**-7) == 2.0**-5
    assert rounding(losses, losses + np.array([2.0**-20, 0]), 2.0**-7) == 2.0**-20  # what is measured is taken
    assert rounding(losses[:0], losses[:0], 2.0**-7) == 0


def test_a_difference_a_little_above_rounding_is_one(models, tmp_path):
    """Planted: noise of a ten-thousandth on every weight is no rounding."""
    copy = tmp_path / "copy"
    shutil.copytree(models["base"], copy)
    tensors = load_file(copy / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for tensor in tensors.values():
        tensor += 1e-4 * torch.randn(tensor.shape, generator=generator)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    result = provlab.diff(models["base"], copy, **FEW)
    assert not result.equal
    assert result.outputs[0].divergence[0] >= 0


def test_no_number_stands_on_too_few_draws(models):
    """At length 16 one draw at the upper end of Z decides; more sequences are named, and are enough."""
    pair = models["base"], models["tuned"]
    few = {"length": 16, "z": (3.0, 5.4), "progress": False}
    result = provlab.diff(*pair, n=100, **few)
    assert not result.carried
    assert "For each of A's inputs in Z" not in str(result)
    assert result.sides[0]["log10_inputs"] is None
    assert (result.to_json()["log10_more"], result.to_json()["summary"], result.ratios()) == (None, None, [])
    remedy = next(text for text in result.remedies() if "draws in Z are worth" in text)
    assert "30 are needed: no number of" in remedy
    assert re.search(r"About [\d,]+ sequences would do|Write far more than", remedy)


def test_a_short_text_has_an_interval_that_holds_or_none(run, pair, text, tmp_path):
    page = tmp_path / "short.txt"
    page.write_text(text[:160])
    few = ["--text", page, "--length", 8, "--sequences", 200]
    status, out, error = run("diff", *pair, *few, "-v")
    assert (status, error) == (0, "")
    shown = " ".join(out.split())
    assert "(no interval)" in shown
    assert re.search(
        r"it holds \d+ pieces of 8 tokens that do not overlap, and 15 are needed; give a text of 120", shown
    )
    status, out, error = run("diff", *pair, *few, "--fail-above", 0.01)
    assert (status, len(error.splitlines())) == (2, 1)
    assert "too short for a test: it holds" in error
    kept = tmp_path / "kept"
    assert run("diff", *pair, *few, "--fail-above", 0.01, "--results", kept) == (2, "", error)
    assert not kept.exists()  # nothing was drawn for it


def test_the_decision_says_larger_concentrated_where_and_what_it_costs(run, models, text, tmp_path):
    (tmp_path / "text").write_text(text)
    both = models["base"], models["stranger"], "--reference", models["tuned"], "--reference", models["sibling"]
    target = tmp_path / "x.json"
    few = ["--text", tmp_path / "text", "--length", 8, "--sequences", 200, "--json", target, "-v"]
    status, out, error = run("diff", *both, *few)
    assert (status, error) == (0, "")
    shown, result = " ".join(out.split()), json.loads(target.read_text())
    decision = result["decision"]
    assert decision["sentence"] in shown
    for words in (
        "larger than another seed's (",
        "among 4 models, ",
        "half of it",
    ):
        assert words in decision["sentence"]
    number = r"-?[\d.]+ \(-?[\d.]+ to -?[\d.]+\) nats per token"
    costs = rf"(not shown to differ from A's: the difference is {number}|{number} (higher|lower) than A's)"
    costs = f"On the given text B's loss is {costs}"
    assert re.search(costs, decision["sentence"])
    assert decision["excess"][1] <= decision["excess"][0] <= decision["excess"][2]
    assert result["lines"][0][0]["nats"] > 0
    assert len(result["groups"]) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_shows_itself_and_goes_into_json(run, pair, page, tmp_path, dtype):
    target = tmp_path / "x.json"
    few = ["--sequences", 400, "--length", 8, "--from-text", "0:1", "--text", page]
    status, out, error = run("diff", *pair, *few, "-v", "--json", target, "--dtype", dtype)
    assert (status, error) == (0, "")
    assert "seed 0" in out
    assert "quantiles of the losses of 500 pieces of the given text" in " ".join(out.split())
    result = json.loads(target.read_text())
    assert result["schema"] == "provlab.diff/2"
    assert {"models", "parameters", "seed", "z", "sides", "summary", "rho", "lines", "decision", "assumptions"} <= set(
        result
    )
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
    few += ["--level", 0.34]
    html = tmp_path / "x.html"
    status, out, error = run(
        "diff", models["base"], models["stranger"], "--reference", models["tuned"], *few, "-v", "--html", html
    )
    assert status == 1  # the farthest of three
    says = (
        r"provlab: fails: the excess over another seed \(1 reference\) is [\d.]+ \(-[\d.]+ to [\d.]+\) nats per "
        r"token; above 0.01 with p = [\d.]+, level 0.34"
    )
    assert re.match(says, error)
    alone = [*few[:-4], "--fail-above", 0.001, "--level", 0.01]
    status, _, error = run("diff", models["base"], models["stranger"], *alone)
    assert status == 1
    assert error.startswith("provlab: fails: the distance of A and B is ")
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
    assert (status, error[:16]) == (0, "provlab: passes:")
    apart = json.loads(target.read_text())["apart"]
    assert min(row["farther"][2] for row in apart["references"]) < 0
    assert apart["seeds"]["rank_p"] in (2 / 4, 3 / 4, 1)


def test_one_side_without_inputs_leaves_the_other(models, new_model, save_model, tmp_path):
    """The base's flat law has no input of the low losses that a sharp one writes at."""
    sharp = save_model(new_model(6, initializer_range=0.8), tmp_path / "sharp")
    result = provlab.diff(models["base"], sharp, **FEW | {"z": (0.01, 2.0)})
    assert [side["in_z"] > 0 for side in result.sides] == [False, True]
    assert result.sides[1]["disagreement"][0] == 1
    assert result.remedies()[0].startswith("A has no number in Z: base has 0 of 800 sequences")
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
        (None, ["--text", "{empty}"], "--text': .*empty is empty; give some words"),
        (None, ["--text", "/no/such"], "--text': /no/such cannot be read"),
        (None, ["--length", "900"], "sequences of 900 tokens exceed the context of base: 63"),
        (None, ["--length", "1"], "length must be a whole number of at least 2, not 1"),
        (None, ["--sequences", "3"], "--sequences must be a whole number of at least 40, not 3"),
        (None, ["--range", "4:3"], r"Z = \[4, 3\] is empty"),
        (None, ["--range", "low"], "--range': it is two numbers such as 0.5:1, not 'low'"),
        (None, ["--from-text", "0.5:0.1"], "--from-text must rise within 0 to 1"),
        (None, ["--range", "1:2", "--from-text", "0:1"], "--range and --from-text both bound the loss; give one"),
        (None, ["--dtype", "int4"], "dtype must be float32"),
        (nan_weights, ["--range", "1:9"], "NaN"),
        (no_tokenizer, [], "has no tokenizer"),
        (another_tokenizer, [], r"base and spoilt have different tokenizers: they share \d+ of \d+ tokens"),
        (None, ["--text", "{short}"], r"the text has \d+ tokens?, too few for pieces of 8"),
        (None, ["--tempers", "1.5,2"], "the least of them at most 1"),
        (None, ["--tempers", "nan"], "tempers must be positive numbers"),
        (None, ["--range", "1:inf"], "both finite"),
        (None, ["--prompt", "{short}", "--text", "{short}"], "a prompt goes with neither"),
        (None, ["--fail-above", "nan"], "the limit is a number of nats"),
        (None, ["--fail-above", "0"], "with no reference any two models are farther apart than 0; give references"),
        (None, ["--fail-above", "1", "--level", "2"], "a level is a chance of a wrong answer"),
        (None, ["--level", "0.01"], "--level is that of --fail-above; give both"),
        (None, ["--html", "/no/such/x"], "--html': /no/such is no folder"),
        (None, ["--reference", "{base}"], "and reference 1 "),
        (None, ["--reference", "{base}", "--fail-above", "0"], "1 reference cannot reach the level 0.05"),
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


@pytest.mark.parametrize("gate", [[], ["--fail-above", 0.001]])
def test_a_copy_is_equal_and_nothing_is_drawn(run, models, spoilt, tmp_path, gate):
    """With no range and no text, too: an answer that is known needs neither."""
    target, results = tmp_path / "x.json", tmp_path / "kept"
    for other in (models["base"], spoilt):
        status, out, error = run("diff", models["base"], other, "--json", target, "--results", results, *gate)
        assert (status, bool(error)) == (0, bool(gate))
        assert "one model, byte for byte" in " ".join(out.split())
        assert not results.exists()
        result = json.loads(target.read_text())
        assert (result["decision"]["equal"], result["remedies"], result["z"]) == (True, [], None)
        assert [side["written"] for side in result["sides"]] == [0, 0]
    result = provlab.diff(models["base"], spoilt, **FEW)
    assert result.copies
    assert result.to_page()
    assert not result.fails(1e-12)


def test_a_reference_that_is_a_copy_is_refused(models, spoilt):
    for other in (models["base"], models["tuned"]):
        with pytest.raises(InputError, match=r"A \(.*\) and reference 1 \(.*\) are identical"):
            provlab.diff(models["base"], other, references=[spoilt], **FEW)
