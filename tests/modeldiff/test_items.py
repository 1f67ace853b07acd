"""Questions with answers under two models: forms of lines, losses against plain forward passes, the paired test."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from provlab.errors import InputError
from provlab.modeldiff import items, pipeline
from provlab.modeldiff.items import Answered, Item, Paired
from provlab.modeldiff.tokens import opening

MANY = {"doc_id": 7, "arguments": [["the model", " reads"], ["the model", " says"]], "target": 1, "acc": 1.0}


@pytest.mark.parametrize(
    ("row", "item"),
    [
        (MANY, Item("7", "the model", (" reads", " says"), 1)),
        (MANY | {"target": "says"}, Item("7", "the model", (" reads", " says"), 1)),
        (MANY | {"target": "0"}, Item("7", "the model", (" reads", " says"), 0)),
        (
            {
                "doc_id": 0,
                "arguments": {"gen_args_0": {"arg_0": "Q: 1+1\nA:", "arg_1": {"until": ["\n"]}}},
                "target": "2",
            },
            Item("0", "Q: 1+1\nA:", (" 2",), 0),
        ),
        ({"arguments": [["a page", " of text"]], "target": " of text"}, Item("3", "a page", (" of text",), 0)),
        ({"prompt": "a page of", "answer": "text"}, Item("3", "a page of", (" text",), 0)),
        ({"id": "x", "prompt": "", "answer": "text"}, Item("x", "", ("text",), 0)),
        ({"prompt": "a", "choices": ["b", "c"], "answer": "c"}, Item("3", "a", (" b", " c"), 1)),
        ({"prompt": "a", "choices": ["b", "c"], "answer": 0}, Item("3", "a", (" b", " c"), 0)),
    ],
)
def test_each_form_of_a_line_is_read(row, item):
    assert items.parsed(row, 3) == item


@pytest.mark.parametrize(
    "row",
    [
        {"question": "a"},
        {"prompt": "a", "choices": ["b"], "answer": 5},
        MANY | {"target": 9},
        {"arguments": [["a", " b"], ["c", " d"]], "target": 0},
        {"arguments": [], "target": 0},
        {"prompt": None, "answer": "a"},
        {"prompt": "a", "answer": None},
        {"prompt": "a", "answer": "b", "choices": []},
        {"prompt": "a", "answer": ""},
        {"prompt": "a", "answer": " ", "choices": [" ", "b"]},
        {"prompt": "a", "answer": "b", "choices": ["b", None]},
    ],
)
def test_what_is_no_item_is_refused_in_one_line(row):
    with pytest.raises(InputError, match=r"^line 3 is no item .*give lines of lm-eval's --log_samples"):
        items.parsed(row, 3)


def test_a_chat_is_no_item_and_goes_elsewhere():
    with pytest.raises(InputError, match=r"^line 3 is a chat, .* \(provlab diff --prompts\)"):
        items.parsed({"messages": [{"role": "user", "content": "a"}]}, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1 is no JSON"),
        ("[1]", "no JSON object, but list"),
        ("[" * 100_000, "line 1 is no JSON"),
        ("\n", "no item"),
    ],
)
def test_lines_that_are_no_json_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        items.lines(text)


def test_lines_end_where_json_lines_end():
    """A string may hold U+2028 and its like as they are; a mark of byte order and carriage returns are no fault."""
    text = '\ufeff{"prompt": "a\u2028b\x85c", "answer": "d"}\r\n\r\n{"prompt": "e", "answer": "f"}\r\n'
    assert [row["prompt"] for row in items.lines(text)] == ["a\u2028b\x85c", "e"]


def test_a_question_counts_once_and_names_are_told_apart():
    """lm-eval writes a question once for each filter; two tasks in one file share their numbers."""
    rows = [Item("1", "a", (" b",)), Item("2", "c", (" d",)), Item("1", "a", (" b",)), Item("1", "e", (" f",))]
    kept, repeated = items.distinct(rows)
    assert [(item.name, item.context) for item in kept] == [("1 (1)", "a"), ("2", "c"), ("1 (2)", "e")]
    assert repeated == 1


@pytest.fixture(scope="module", params=[True, False], ids=["behind a start token", "bare"])
def opened(models, request):
    before = opening if request.param else (lambda _: [])
    return list(pipeline.open_models([models["base"], models["stranger"]], opening=before, progress=False).values())


def test_losses_flips_and_divergences_are_those_of_plain_forward_passes(opened):
    rows = [
        {"id": k, "prompt": prompt, "choices": ["reads", "says", "of text"], "answer": k % 3}
        for k, prompt in enumerate(["the model", "a page of text and", "which word comes next but never why"])
    ]
    rows.append({"id": 3, "prompt": "the model reads a", "answer": "page of"})
    answered = {item.name: item for item in items.answered(*opened, rows, seed=0).items}
    for row in rows:
        sums = []
        for answer in row.get("choices", [row["answer"]]):
            whole, before = (opened[0].encode(f"{row['prompt']}{end}") for end in (f" {answer}", ""))
            n = len(whole) - len(before)
            each = np.stack([model.nll.each(whole[None])[0, -n:] for model in opened])  # (2, n)
            sums.append(each.sum(axis=1))
            if answer == row["answer"] or row.get("choices", []).index(answer) == row["answer"]:
                np.testing.assert_allclose(answered[str(row["id"])].loss, each.mean(axis=1), atol=1e-5)
                p, q = (
                    np.concatenate([model.nll.next_log_probs(whole[None, : len(before) + k]) for k in range(n)])
                    for model in opened
                )
                forth = (np.exp(p) * (p - q)).sum(axis=1).mean()
                assert answered[str(row["id"])].divergence[0] == pytest.approx(forth, abs=1e-5)
                greedy = [bool((law.argmax(axis=1) == whole[-n:]).all()) for law in (p, q)]
        best = np.argmin(sums, axis=0) == row["answer"] if "choices" in row else greedy
        assert answered[str(row["id"])].right == tuple(map(bool, best))
        only = [f" {row['answer']}" if sure else "" for sure in greedy]
        given = [f" {row['choices'][k]}" for k in np.argmin(sums, axis=0)] if "choices" in row else only
        assert answered[str(row["id"])].given == tuple(given)
    costs = [item.costs for item in items.answered(*opened, rows, seed=0).items]
    assert costs == sorted(costs, reverse=True)


def paired(wrong, right, same):
    rows = [((True, False), wrong), ((False, True), right), ((True, True), same)]
    return Paired(tuple(Answered("", "", "", turn, (1.0, 1.0), (0.0, 0.0)) for turn, n in rows for _ in range(n)))


@pytest.mark.parametrize(("given", "other"), [((" a", " a"), 0), ((" a", " b"), 1), (("", ""), 1), (("", " a"), 1)])
def test_wrong_answers_differ_unless_they_are_known_to_be_the_same(given, other):
    same = Answered("", "", "", (True, True), (1.0, 1.0), (0.0, 0.0), (" c", " c"))
    both = Paired((same, replace(same, right=(False, False), given=given)))
    assert (both.other, both.turned) == (other, (0, 0))


def test_mcnemar_by_hand_and_its_size():
    """8 turned wrong and 1 right: 2 (1 + 9) / 2^9. Where chance decides it fires at most as often as its level."""
    assert paired(8, 1, 20).p == pytest.approx(20 / 512)
    assert paired(0, 0, 5).p == 1
    assert paired(3, 1, 6).more_right()[0] == pytest.approx(-0.2)
    rng = np.random.default_rng(0)
    wrong = rng.binomial(30, 0.5, 1000)
    assert np.mean([paired(w, 30 - w, 0).p <= 0.05 for w in wrong]) < 0.07
    unpaired = [stats.fisher_exact([[50 - w, 50], [50, 50 - w]]).pvalue for w in (8,)]  # planted: as if of other items
    assert paired(8, 0, 50).p < 0.01 < unpaired[0]


def test_intervals_of_few_or_equal_items():
    """No interval of a mean over a handful; no change in n items may still be a change of 3 / n or so."""
    value, low, high = paired(0, 0, 60).more_right()
    assert (value, -low, high) == pytest.approx((0, 1.96 / 62, 1.96 / 62), abs=1e-3)
    assert paired(1, 0, 0).more_right()[:2] == [-1, -1]
    assert np.isinf(paired(1, 1, 12).costs()[1:]).all()
    assert np.isfinite(paired(1, 1, 13).costs()).all()


def test_intervals_of_the_difference_hold_it():
    """2% of 50 items turn wrong: a third of all sets show no change, and resamples would be certain of it."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(50, [0.02, 0, 0.98], 500)
    held = [low <= -0.02 <= high for _, low, high in (paired(*row).more_right() for row in counts)]
    assert np.mean(held) > 0.93
    resampled = [rng.multinomial(50, row / 50, 400) @ [-0.02, 0.02, 0] for row in counts]  # planted
    plain = [np.quantile(values, 0.025) <= -0.02 <= np.quantile(values, 0.975) for values in resampled]
    assert np.mean(plain) < 0.7


def test_equal_answers_are_both_right_and_repeats_are_left_out(opened):
    row = {"prompt": "the model", "choices": ["reads", "reads"], "answer": 1}
    answered = items.answered(*opened, [row, row], seed=0)
    assert ([item.right for item in answered.items], answered.repeated) == ([(True, True)], 1)


def test_a_long_context_keeps_its_end(opened):
    row = {"prompt": "the model reads a page of text and " * 40, "answer": "says"}
    (item,) = items.answered(*opened, [row], seed=0).items
    assert np.isfinite(item.loss).all()
    with pytest.raises(InputError, match="more than the models read at once"):
        items.answered(*opened, [{"prompt": "a", "answer": row["prompt"] * 3}], seed=0)


def test_the_command_says_which_answers_changed(run, models, tmp_path, monkeypatch):
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    page, target = tmp_path / "samples.jsonl", tmp_path / "x.json"
    ends = [" reads", " says"]
    rows = [
        {"doc_id": k, "arguments": [[context, end] for end in ends], "target": k}
        for context in ("the model", "a page", "of text")
        for k in range(2)
    ]
    page.write_text("\n".join(map(json.dumps, rows)))
    few = ["--text", page, "--length", 8, "--sequences", 100, "--json", target]
    status, out, error = run("diff", models["base"], models["stranger"], *few)
    assert (status, error) == (0, "")
    assert re.search(r"A answers 50.0% of 6 items right and B 50.0%", " ".join(out.split()))
    assert "not shown to be more than chance changes (McNemar's exact test, p = " in " ".join(out.split())
    result = json.loads(target.read_text())["items"]
    assert (result["n"], len(result["items"])) == (6, 6)
    page.write_text('{"question": 1}')
    status, out, error = run("diff", models["base"], models["stranger"], *few)
    assert (status, out, len(error.splitlines())) == (2, "", 1)
