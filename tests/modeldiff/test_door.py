"""`provlab.diff` and ``provlab diff`` on tiny models: the numbers, what is kept, and what is refused in one line."""

import json
import re
import shutil
from dataclasses import replace

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
from provlab.modeldiff.command import _rows
from provlab.modeldiff.items import answered
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
    assert all("worth" in remedy or "may have been missed" in remedy for remedy in result.remedies())
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
    status, out, error = run("diff", *pair, *few, "--fail-on", "text=0.01")
    assert (status, len(error.splitlines())) == (2, 1)
    assert "too short for a test: it holds" in error
    kept = tmp_path / "kept"
    assert run("diff", *pair, *few, "--fail-on", "text=0.01", "--results", kept) == (2, "", error)
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
    said = decision["sentence"]
    assert all(" ".join(words.split()) in shown for words in said.removesuffix(".").split(". "))
    assert shown.index("More findings") > shown.index(decision["answer"])
    assert decision["sentence"] not in shown  # three findings first, the others below
    for words in ("the change from base to stranger ", "that of 2 references", "half of this distance"):
        assert words in decision["sentence"]
    number = r"-?[\d.]+ \(-?[\d.]+ to -?[\d.]+\) nats per token"
    costs = rf"(not shown to differ from A's: the difference is {number}|{number} (higher|lower) than A's)"
    costs = f"On the given text B's loss is {costs}"
    assert re.search(costs, decision["sentence"])
    assert decision["excess"][1] <= decision["excess"][0] <= decision["excess"][2]
    assert result["lines"]["A"][0]["nats"] > 0
    first = max("AB", key=lambda side: result["lines"][side][0]["nats"])  # whose lines rank first
    assert f"What {first} writes is less likely for {'BA'['AB'.index(first)]}" in decision["sentence"]
    assert f"Of what {first} writes, the largest group" in decision["sentence"]
    assert result["groups"].keys() == {"A", "B", "text"}
    assert "of its pieces changes by more than 10%" in decision["sentence"]
    changed = [float(share) for share in result["text_changed"]]
    assert 0 <= changed[1] <= changed[0] <= changed[2] <= 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_shows_itself_and_goes_into_json(run, pair, page, tmp_path, dtype):
    target = tmp_path / "x.json"
    few = ["--sequences", 400, "--length", 8, "--from-text", "0:1", "--text", page]
    status, out, error = run("diff", *pair, *few, "-v", "--json", target, "--dtype", dtype)
    assert (status, error) == (0, "")
    assert "seed 0" in out
    assert "quantiles of the losses of 500 pieces of the given text" in " ".join(out.split())
    result = json.loads(target.read_text())
    assert result["schema"] == "provlab.diff/3"
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
    (tmp_path / "prompts").write_text("the model reads\n\n")
    few = ["--prompts", tmp_path / "prompts", "--length", 8, "--sequences", 200]
    gate = ["--fail-on", "text=0.01", "--level", 0.49]
    html, target = tmp_path / "x.html", tmp_path / "x.json"
    far = models["base"], models["other"], "--reference", models["stranger"], "--reference", models["sibling"]
    status, out, error = run("diff", *far, *few, *gate, "-v", "--html", html, "--json", target)
    assert (status, error) == (1, "")  # the most changed of three
    shown = " ".join(out.split())
    assert "fails: the excess over 2 references is" in shown
    assert "above 0.01 with p = 0.33, level 0.49" in shown
    result = json.loads(target.read_text())
    assert result["decision"]["decision"] == "failed"
    assert result["decision"]["answer"].startswith("fails: the excess over 2 references")
    status, out, _ = run("diff", models["base"], models["stranger"], *few, "--fail-on", "text=0.001", "--level", 0.01)
    assert status == 1
    assert "fails: the distance of A and B on what A writes is" in " ".join(out.split())
    assert "It follows the prompt 'the model reads' of 15 characters." in shown
    assert "[-" in shown
    page = html.read_text()
    assert page.startswith("<!doctype html>")
    assert "data:image/png" in page
    assert not re.search(r"(src|href)=['\"]?(http|/)", page)
    assert "rgba(213,94,0" in page
    near = models["base"], models["tuned"], "--reference", models["stranger"], "--reference", models["sibling"]
    status, out, error = run("diff", *near, *few, *gate, "--json", target)
    assert (status, error) == (0, "")
    apart = json.loads(target.read_text())["apart"]
    assert min(row["farther"][2] for row in apart["references"]) < 0
    assert apart["among"]["rank_p"] in (1 / 3, 2 / 3, 1)


def chat(*turns):
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_openings_come_from_a_chat_log_items_or_lines_and_each_is_followed(run, pair, tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [
        chat(("user", "the model reads"), ("assistant", "a page")),
        chat(("user", "why"), ("assistant", "it is"), ("user", "says which word")),
        {"prompt": "never why"},
        {"prompt": "a page of", "answer": "text"},
        {"prompt": "never why"},  # again
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    target, page = tmp_path / "x.json", tmp_path / "page.txt"
    page.write_text("the model reads a page of text and says which word comes next but never why it is so " * 30)
    few = ["--length", 8, "--sequences", 200, "--json", target, "-v", "--text", page]
    status, out, error = run("diff", *pair, "--prompts", log, *few)
    assert (status, error) == (0, "")
    shown, result = " ".join(out.split()), json.loads(target.read_text())
    assert "It follows one of 4 prompts of 5 that were given, all as often" in shown
    assert result["parameters"]["prompts"] == 5
    after = {line["example"]["after"] for side in "AB" for line in result["lines"][side]}
    assert after <= {
        "user: the model reads\\nassistant:"[-40:],
        "the model reads",
        "why\\nit is\\nsays which word",
        "never why",
        "a page of",
    }
    assert len(after) > 1
    assert result["text_loss_apart"]  # and the text was read too
    assert result["z_chosen"].endswith("what both models write")


def test_a_report_behind_a_chat_log_is_verified(run, pair, tmp_path):
    """JSON keeps the turns of a chat as lists, which the question takes as well."""
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps(chat(("user", words))) for words in ("the model reads", "never why")))
    few = ["--length", 6, "--sequences", 40, "--range", "2:9"]
    assert run("diff", *pair, "--prompts", log, *few, "-o", tmp_path / "report")[::2] == (0, "")
    status, out, error = run("verify", tmp_path / "report")
    assert (status, error) == (0, ""), out


@pytest.mark.parametrize(
    "prompt", [{"role": "user", "content": "a"}, [{"role": "user", "content": "a"}], [], 5, ["ab"]]
)
def test_what_is_no_prompt_is_refused(pair, prompt):
    with pytest.raises(InputError, match="a prompt is a text, or pairs of role and content, not "):
        provlab.diff(*pair, **FEW, prompts=[prompt])
    with pytest.raises(InputError, match="give one text as"):
        provlab.diff(*pair, **FEW, prompts="the model")


def test_a_comparison_behind_openings_is_that_of_each_opening_alone(pair):
    """The divergence is the mean over openings, all alike; numbers of inputs add up."""
    few = FEW | {"n": 2000, "z": (2.0, 9.0)}
    prompts = ["the model reads", "never why it is so"]
    both = provlab.diff(*pair, **few, prompts=prompts)
    alone = [provlab.diff(*pair, **few | {"n": 1000}, prompts=[prompt]) for prompt in prompts]
    for side in range(2):
        means = [of.outputs[side].divergence[0] for of in alone]
        assert both.outputs[side].divergence[0] == pytest.approx(np.mean(means), rel=0.1)
        numbers = [10 ** of.sides[side]["log10_inputs"][0] for of in alone]
        assert both.sides[side]["log10_inputs"][0] == pytest.approx(np.log10(sum(numbers)), abs=0.1)


def test_there_may_be_more_openings_than_chains(pair):
    """Each of 25 openings belongs to one of 20 chains, all of what follows it."""
    prompts = [
        f"{one} {other}" for one in ("the", "a", "never", "so", "why") for other in ("page", "it", "is", "of", "no")
    ]
    found = provlab.diff(*pair, length=6, n=200, z=(2.0, 9.0), prompts=prompts, progress=0)
    outputs = found.weighed[0].inputs.draws
    assert found.parameters["prompts"] == 25
    assert outputs.n_chains == 20
    assert len(np.unique(outputs.chain)) == 20
    assert all(low <= value <= high for value, low, high in (of.divergence for of in found.outputs))
    assert found.written == 200


@pytest.mark.parametrize(("n", "taken", "written"), [(40, 20, 40), (60, 25, 50), (100, 25, 100)])
def test_many_openings_and_few_sequences_are_about_as_many_as_asked_for(pair, n, taken, written):
    """Two chains behind each opening, of one sequence or more; 25 openings made 100 of 60 that were asked for."""
    prompts = [
        f"{one} {other}" for one in ("the", "a", "it", "so", "why") for other in ("page", "it", "is", "of", "no")
    ]
    found = provlab.diff(*pair, length=6, n=n, z=(2.0, 9.0), prompts=prompts, progress=0)
    assert [side["written"] for side in found.sides] == [written] * 2
    some = f"{taken} prompts" if taken == 25 else f"{taken} prompts of 25 that were given, drawn by the seed"
    assert f"It follows one of {some}" in " ".join(found.assumptions())


@pytest.mark.parametrize("name", ["log.json", "log.ndjson", "log.txt"])
def test_lines_of_json_are_known_by_what_they_are(run, pair, tmp_path, name):
    """A chat log under another name was taken as a text: each line of JSON an opening."""
    log, target = tmp_path / name, tmp_path / "x.json"
    log.write_text("\n".join(json.dumps(chat(("user", words))) for words in ("the model reads", "never why")))
    few = ["--length", 6, "--sequences", 40, "--range", "2:9", "--json", target]
    status, _, error = run("diff", *pair, "--prompts", log, *few)
    assert (status, error) == (0, "")
    assert "messages" not in target.read_text()
    status, _, error = run("diff", *pair, "--text", log, *few)
    assert (status, "line 1 is a chat" in error) == (2, True)
    log.write_text('{ "a": 1 }\n{ the model reads }')  # a text
    assert run("diff", *pair, "--prompts", log, *few)[0] == 0
    assert json.loads(target.read_text())["parameters"]["prompts"] == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": "hello"}, "line 1: messages are a list of turns"),
        ({"messages": [{"role": "assistant", "content": "hello"}]}, "line 1: no user speaks"),
        ({"text": "hello"}, "line 1 is no item"),
    ],
)
def test_a_line_that_is_no_opening_is_refused(run, pair, tmp_path, row, message):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(row))
    status, out, error = run("diff", *pair, "--prompts", log)
    assert (status, out, len(error.splitlines())) == (2, "", 1)
    assert message in error


def test_a_chat_log_that_is_one_list_is_not_read_as_lines_of_text(run, pair, tmp_path):
    log = tmp_path / "log.json"
    for indent in (None, 2):
        log.write_text(json.dumps([chat(("user", "why"))], indent=indent))
        status, out, error = run("diff", *pair, "--prompts", log)
        assert (status, out, len(error.splitlines())) == (2, "", 1)
        assert "give one JSON object a line, as jq -c '.[]' makes them of a list" in error
    log.write_text('[{"name": "a list of other things"}]')  # a text
    assert _rows(log.read_text(), str(log)) is None


def planted(base, target, change):
    """A copy of a model with its tensors changed."""
    shutil.copytree(base, target)
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def test_a_copy_in_fewer_bits_is_said_to_be_one_and_no_groups_are_shown(run, models, tmp_path):
    def bfloat16(tensors):
        tensors.update({name: tensor.bfloat16().float() for name, tensor in tensors.items()})

    def eight_bits(tensors):
        for name, tensor in tensors.items():
            if tensor.ndim == 2:
                step = tensor.abs().amax(dim=1, keepdim=True) / 127
                tensors[name] = (tensor / step.clamp_min(1e-30)).round() * step

    for way, change in (("bfloat16", bfloat16), ("8 bits", eight_bits)):
        copy, target = planted(models["base"], tmp_path / way, change), tmp_path / "x.json"
        few = ["--length", 8, "--sequences", 400, "--range", "3:9", "--json", target]
        status, out, error = run("diff", models["base"], copy, *few, "--fail-on", "outputs")
        assert (status, error) == (0, "")
        shown, result = " ".join(out.split()), json.loads(target.read_text())
        assert f"differ by no more than {way} makes a model differ from itself" in shown
        assert "written by" not in shown
        assert "group" not in shown.replace("no lines or groups are shown", "")
        assert (result["decision"]["rounding"], result["decision"]["equal"]) == (way, False)
        assert result["decision"]["place"] == ""


def test_a_change_of_few_outputs_is_no_rounding(models, tmp_path):
    """Planted: one token's row of the embedding is turned around; where it comes, everything after it is another."""

    def one_row(tensors):
        tensors["model.embed_tokens.weight"][37] *= -1

    result = provlab.diff(models["base"], planted(models["base"], tmp_path / "turned", one_row), **FEW)
    assert result.rounding is None
    assert result.card().body


def test_what_is_shown_is_what_fails(run, models, text, tmp_path):
    """Planted: B gets 15 of 38 answers wrong that A gets right; its distance on a text is below the size that is asked.

    The lead of a release: the gate on the text passes, and the gate on answers fails, by the number on the card.
    """
    page, target = tmp_path / "items.jsonl", tmp_path / "x.json"
    opened = pipeline.open_models([models["base"], models["stranger"]], opening=opening, progress=0)
    words = sorted(set(text.split()))
    rows = [
        {"id": f"{one} {other}", "prompt": "so it is", "choices": [f" {one}", f" {other}"], "answer": f" {one}"}
        for one in words
        for other in words
        if one != other
    ]
    right = {item.name: item.right for item in answered(*opened.values(), rows, seed=0).items}
    wrong = [row for row in rows if right[row["id"]] == (True, False)][:15]
    kept = [row for row in rows if right[row["id"]] == (True, True)][:23]
    assert (len(wrong), len(kept)) == (15, 23)
    page.write_text("\n".join(json.dumps(row) for row in wrong + kept))
    few = ["--length", 8, "--sequences", 200, "--range", "3:9", "--json", target, "--text", page]
    status, out, _ = run("diff", models["base"], models["stranger"], *few, "--fail-on", "answers")
    shown, result = " ".join(out.split()), json.loads(target.read_text())
    assert status == 1
    assert "fails: 15 answers turned wrong and 0 right (McNemar's exact test), p = 6.1e-05, level 0.05" in shown
    assert (result["decision"]["decision"], result["decision"]["level"]) == ("failed", 0.05)
    assert result["decision"]["gates"][0]["p"] == pytest.approx(2 * 0.5**15)
    status, out, _ = run("diff", models["base"], models["stranger"], *few, "--fail-on", "answers,outputs=90")
    assert status == 1
    assert "by Holm over 2 gates" in " ".join(out.split())
    assert run("diff", models["base"], models["stranger"], *few, "--fail-on", "outputs=90")[0] == 0
    assert run("diff", models["stranger"], models["base"], *few, "--fail-on", "answers")[0] == 0  # they turned right


def test_draws_that_carry_nothing_decide_nothing(run, models, tmp_path):
    """Far models at length 16, a few sequences: the outputs are worth fewer than 30 draws, and that is no pass."""
    few = ["--length", 16, "--sequences", 40, "--range", "3:9", "--tempers", "0.5"]
    status, out, error = run("diff", models["base"], models["stranger"], *few, "--fail-on", "outputs=0.1")
    assert (status, error) == (3, "")
    assert "not decided: what either writes costs the other" in " ".join(out.split())


def test_far_references_decide_nothing_of_a_small_change(run, models, tmp_path):
    copy = planted(models["base"], tmp_path / "near", lambda tensors: tensors["model.embed_tokens.weight"][5:9].mul_(2))
    few = ["--length", 8, "--sequences", 200, "--range", "3:9", "--reference", models["stranger"]]
    few += ["--reference", models["other"], "--fail-on", "text", "--level", 0.4]
    status, out, error = run("diff", models["base"], copy, *few)
    assert (status, error) == (3, "")
    shown = " ".join(out.split())
    assert "B is far nearer than any reference: give some that change as little" in shown
    assert "this test says nothing of a small change" in shown


def test_no_start_token_and_no_opening_is_said(run, models, spoilt, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(models["tuned"], other)
    for folder in (spoilt, other):
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            if (path := folder / name).exists():
                settings = json.loads(path.read_text())
                settings.pop("bos_token", None)
                path.write_text(json.dumps(settings))
    (tmp_path / "prompts").write_text("the model reads\na page of\n")
    few = ["--length", 8, "--sequences", 200, "--range", "3:9", "-v"]
    out = " ".join(run("diff", spoilt, other, *few)[1].split())
    assert "No start token stands before inputs" in out
    assert "give openings (--prompts FILE)" in out
    out = " ".join(run("diff", spoilt, other, *few, "--prompts", tmp_path / "prompts")[1].split())
    assert "No start token" not in out
    assert "It follows one of 2 prompts" in out
    found = provlab.diff(spoilt, other, **FEW)
    of_exchange = replace(found, parameters=found.parameters | {"exchange_steps": 9})  # which takes no openings
    assert "leave replica exchange out" in of_exchange.remedies()[0]
    assert "give openings" not in of_exchange.remedies()[0]


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
        (None, ["--prompts", "{short}", "--exchange", "9"], "replica exchange has nothing before inputs"),
        (
            None,
            ["--prompts", "{long}"],
            "1 of 2 openings leave no room for inputs of 8 tokens: .* 'page page.* 64 in all",
        ),
        (None, ["--fail-on", "text=nan"], "the size of text is a number of nats"),
        (None, ["--fail-on", "text=0"], "with no reference any two models are farther apart than 0; give references"),
        (None, ["--fail-on", "text=1", "--level", "2"], "a level is a chance of a wrong answer"),
        (None, ["--fail-on", "answers"], "0 questions with answers cannot reach the level 0.05: give 6 or more"),
        (None, ["--fail-on", "txet"], "did you mean text"),
        (None, ["--level", "0.01"], "--level is that of --fail-on; give both"),
        (None, ["--html", "/no/such/x"], "--html': /no/such is no folder"),
        (None, ["--reference", "{base}"], "and reference 1 "),
        (None, ["--reference", "{base}", "--fail-on", "text"], "1 reference cannot reach the level 0.05"),
        (None, ["--text", "{unknown}"], "100% of its tokens are unknown words"),
        (None, ["--device", "tpu"], "device"),
    ],
)
def test_bad_input_gets_one_line(run, models, spoilt, tmp_path, spoil, settings, message):
    files = {name: tmp_path / name for name in ("empty", "short", "unknown", "long")}
    for path, words in zip(files.values(), (" \n", "read", "<|end|>" * 99, f"a\n{'page ' * 90}"), strict=True):
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


@pytest.mark.parametrize("gate", [[], ["--fail-on", "any"]])
def test_a_copy_is_equal_and_nothing_is_drawn(run, models, spoilt, tmp_path, gate):
    """With no range and no text, too: an answer that is known needs neither."""
    target, results = tmp_path / "x.json", tmp_path / "kept"
    for other in (models["base"], spoilt):
        status, out, error = run("diff", models["base"], other, "--json", target, "--results", results, *gate)
        assert (status, error) == (0, "")
        shown = " ".join(out.split())
        assert "one model, byte for byte" in shown
        assert ("equal: no gate fails" in shown) == bool(gate)
        assert not results.exists()
        result = json.loads(target.read_text())
        assert (result["decision"]["equal"], result["remedies"], result["z"]) == (True, [], None)
        assert [side["written"] for side in result["sides"]] == [0, 0]
    result = provlab.diff(models["base"], spoilt, **FEW, fail_on=gate[1:], level=0.01)
    assert result.copies
    assert result.to_page()
    assert result.decision()["level"] == 0.01
    assert result.decided.word == "equal"


def test_a_reference_that_is_a_copy_is_refused(models, spoilt):
    for other in (models["base"], models["tuned"]):
        with pytest.raises(InputError, match=r"A \(.*\) and reference 1 \(.*\) are identical"):
            provlab.diff(models["base"], other, references=[spoilt], **FEW)
