"""Claims about models of known origin: each is judged as it is planted, and each fault is one line."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from safetensors.torch import load_file, save_file

import provlab
from provlab.claimed import evidence, fooling, kinds, reading
from provlab.claimed.evidence import Evidence
from provlab.errors import InputError, ParameterError
from provlab.modeldiff import door
from provlab.report import decide
from provlab.report.outcome import PairEvidence
from provlab.statistics import flaws

ZERO = "0" * 64


@pytest.fixture(scope="module")
def folders(models, tmp_path_factory):
    """The base, strangers, two near children; their mean, two with numbers left out, and a copy.

    *pruned* has its numbers below three tenths of a standard deviation at zero, which units stand; *halved* one number
    in two, drawn, after which units of an untrained model are no longer alike, and only orders and rows agree.
    """
    root, rng = tmp_path_factory.mktemp("made"), torch.Generator().manual_seed(0)

    def made(name, change):
        folder = Path(shutil.copytree(models["base"], root / name))
        weights = load_file(folder / "model.safetensors")
        changed = {key: change(key, value) for key, value in weights.items()}
        save_file(changed, folder / "model.safetensors", {"format": "pt"})
        return str(folder)

    def trained(_, value):
        return value + 0.05 * value.std() * torch.randn(value.shape, generator=rng) if value.ndim == 2 else value

    def pruned(_, value):
        return value.where(value.abs() > 0.3 * value.std(), 0) if value.ndim == 2 else value

    def halved(_, value):
        return value * (torch.rand(value.shape, generator=rng) < 0.5) if value.ndim == 2 else value

    near = {name: made(name, trained) for name in ("tuned", "sibling")}
    one, other = (load_file(Path(near[name]) / "model.safetensors") for name in near)
    return {
        **{name: models[name] for name in ("base", "stranger", "other")},
        **near,
        "merged": made("merged", lambda key, _: (one[key] + other[key]) / 2),
        "pruned": made("pruned", pruned),
        "halved": made("halved", halved),
        "copy": made("copy", lambda _, value: value),
    }


@pytest.fixture(scope="module")
def items(folders, tmp_path_factory):
    """Questions whose right answer is the one that the base gives, and questions that neither it nor a stranger gets.

    The answers have as many tokens each: of untrained models the shortest is the likeliest, whichever the model.
    """
    words, letters = ["model", "reads", "page", "text", "says", "word"], ["b", "c", "f"]
    asked = [
        {"prompt": f"the {a} {b}", "answer": answer, "choices": letters}
        for a in words
        for b in words
        if a != b
        for answer in letters
    ]
    given = door.answers(folders["base"], folders["stranger"], asked, progress=0)
    written = {}
    for name, wanted in {"right": ((True, True), (True, False)), "wrong": ((False, False),)}.items():
        chosen = {(item.context, item.answer.strip()) for item in given.items if item.right in wanted}
        rows = [row for row in asked if (row["prompt"], row["answer"]) in chosen]
        path = tmp_path_factory.mktemp("items") / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        written[name] = str(path)
    return written


#: what is said, of which model -> the outcome and the fact that decides; true claims first
TRUE = {
    ("tuned", "tuned from {base}"): ("supported", "kin"),
    ("stranger", "independent of {base}"): ("not testable", "always"),  # untrained models read no text
    ("merged", "merge of {tuned} and {sibling}"): ("supported", "combined"),
    ("tuned", "quantized from {base}"): ("supported", "kin"),
    ("pruned", "pruned from {base}"): ("supported", "kin"),
    ("halved", "pruned from {base}"): ("not testable", "weak"),
    ("copy", "same weights as {digest}"): ("supported", "same_digest"),
    ("copy", "answers as {base} does on {right}"): ("supported", "all_alike"),
    ("copy", "answers as {base} does on {wrong}"): ("supported", "all_alike"),
}
FALSE = {
    ("tuned", "independent of {base}"): ("refuted", "kin"),
    ("copy", "independent of {base}"): ("refuted", "identical"),
    ("stranger", "tuned from {base}"): ("refuted", "unlike"),
    ("copy", "tuned from {base}"): ("refuted", "identical"),
    ("tuned", "merge of {base} and {other}"): ("refuted", "unlike"),
    ("tuned", "merge of {base} and {sibling}"): ("not testable", "kin"),
    ("tuned", "pruned from {base}"): ("refuted", "whole"),
    ("stranger", "same weights as {digest}"): ("refuted", "always"),
    ("stranger", "answers as {base} does on {right}"): ("refuted", "turned"),
    ("stranger", "answers as {base} does on {wrong}"): ("not refuted", "always"),
}


@pytest.fixture(scope="module")
def checked(folders, items, text):
    """All planted claims in one file."""
    digest = provlab.reading.checkpoint.Checkpoint.open(folders["base"]).content
    names = folders | {"digest": digest} | items
    claims: dict[str, list[str]] = {}
    for model, line in TRUE | FALSE:
        claims.setdefault(folders[model], []).append(line.format(**names))
    result = provlab.check(claims, text=text, progress=False)
    lines = {(model, line.format(**names)): (model, line) for model, line in TRUE | FALSE}
    return result, {lines[Path(one.claim.model).name, one.claim.line]: one for one in result.claims}


@pytest.mark.parametrize("said", TRUE | FALSE, ids=" ".join)
def test_a_planted_claim_is_judged(checked, said):
    one = checked[1][said]
    assert (one.outcome, one.rung.fact) == (TRUE | FALSE)[said], one.because


def test_all_of_one_file_are_corrected_together(checked, folders, text):
    result, by_line = checked
    questions = {one.questions for one in result.claims}
    assert questions == {13}
    claim = {folders["tuned"]: f"tuned from {folders['base']}"}
    (alone,) = provlab.check(claim, text=text, progress=False).claims
    both = (alone, by_line["tuned", "tuned from {base}"])
    assert alone.error.endswith("by Holm over the 1 question of the file")
    assert both[1].error.endswith("by Holm over the 13 questions of the file")
    least = [evidence.smallest(pair) for one in both for pair in one.evidence.pairs.values()]
    assert least[0] < least[1] < least[0] + 1.2  # log10 of 13 questions


def test_answers_to_people_and_to_machines(checked):
    result, _ = checked
    assert result.status == 1
    assert result.title().startswith("19 claims of the file: 7 supported, 1 not refuted, 8 refuted, 3 not testable")
    text = " ".join(str(result).split())
    for words in ("judged by:", "error:", "would refute it:", "cheapest way known to fool it:"):
        assert text.count(words) == 19
    content = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert content["outcomes"] == {"supported": 7, "not refuted": 1, "refuted": 8, "not testable": 3}
    suite = ElementTree.fromstring(result.to_junit())
    assert suite.attrib == {"name": "provlab check", "tests": "19", "failures": "8", "skipped": "3"}
    assert len(suite.findall("testcase/failure")) == 8


def test_a_claim_of_independence_is_never_supported():
    assert {rung.outcome for rung in kinds.KINDS["independent"].ladder} == {"not refuted", "refuted", "not testable"}


def test_the_table_names_facts_and_errors_that_there_are():
    rungs = [rung for kind in kinds.KINDS.values() for rung in kind.ladder]
    assert all(hasattr(Evidence, rung.fact) and rung.outcome in kinds.OUTCOMES for rung in rungs)
    assert {rung.error for rung in rungs} == set(kinds.ERRORS)
    assert all(kind.ladder[-1].fact == "always" for kind in kinds.KINDS.values())
    assert {ask for kind in kinds.KINDS.values() for ask in kind.asks} == {kinds.PAIRS, kinds.TREE, kinds.ITEMS}


def test_what_is_later_cannot_be_the_base():
    claim = reading.of_lines({"m": "tuned from b"})[0]
    edge = {"a": "m", "b": "b", "relation": "later", "directed": "rows", "joined": "rows"}
    assert Evidence(claim, {}, {}, [edge]).base_is_later
    assert not Evidence(claim, {}, {}, [edge | {"directed": "estimated"}]).base_is_later
    assert not Evidence(claim, {}, {}, [edge | {"a": "b", "b": "m"}]).base_is_later


def test_answers_that_turn_one_way_refute_a_claim():
    class Paired:
        other = 9

    (claim,) = reading.of_lines({"m": "answers as b does on items.jsonl"})
    outcomes = {
        p: kinds.judged(claim.kind, Evidence(claim, {}, {}, answered=(Paired, *p)).holds).outcome
        for p in ((-2.1, -9.0), (-1.9, -9.0), (-1.9, -1.9))
    }
    assert outcomes == {(-2.1, -9.0): "refuted", (-1.9, -9.0): "not refuted", (-1.9, -1.9): "not testable"}


def test_what_no_test_rejects_is_not_refuted():
    class Quiet:
        decision = decide.Decision(decide.NOT_REJECTED, (), ())
        kin, tests = (), (decide.Test("phi_match", "units", frozenset(), -0.3, -9.0),)

    (claim,) = reading.of_lines({"m": "independent of b"})
    quiet = Evidence(claim, {}, {"b": Quiet()})
    assert kinds.judged(claim.kind, quiet.holds).outcome == "not refuted"
    assert quiet.unlike
    Quiet.kin = ("phi_jsd",)
    assert not quiet.unlike


def test_holm_over_questions():
    factors = evidence.over_the_file([-10.0, -2.2, -0.1])
    assert factors[0] == pytest.approx((0.477, 0.301), abs=1e-3)  # 3 questions, one of which rejects
    assert factors[1][0] == pytest.approx(0.301, abs=1e-3)
    assert evidence.over_the_file([-2.5])[0] == (0.0, 0.0)


def test_the_cheapest_ways_are_those_of_the_table():
    def pair(*names, text=False):
        reads = frozenset(["text"]) if text else frozenset()
        tests = tuple(decide.Test(name, "units", reads, 0.0, -9.0) for name in names)
        unread = {"lent_ids": text, "name": "m"}
        return PairEvidence({}, tests, (), (unread, unread))

    assert fooling.to_hide(pair("phi_match")) == "up projections times a negative number; it costs nothing"
    both = ["phi_match", "phi_anchor"]
    priced = flaws.cheapest(both)
    assert fooling.to_hide(pair(*both)) == f"{priced.what}; it costs {priced.price.words()}"
    assert fooling.to_hide(pair(*both, text=True)).startswith("tokens numbered otherwise")
    assert fooling.to_hide(pair()) == fooling.NOTHING_RAN
    assert fooling.to_frame(["phi_match"]).startswith("an unrelated model whose units are joined by imitations")
    assert fooling.to_frame(["phi_u", "phi_match_all"]).endswith("it costs nothing, and phi_match_all would not reject")
    assert fooling.to_frame([]) == fooling.NONE_KNOWN


FAULTS = {
    "a: stolen by b": "'stolen by b' is no claim that is judged here; there are: independent of B; tuned from B",
    "a: tuned frm b": "'tuned frm b' is no claim that is judged here; did you mean tuned from?",
    "a: same weights as abc123": "a digest is a SHA-256 of 64 hex digits, and 'abc123' has 6 hex digits",
    "a: same weights as sha256:xyz": "a digest is a SHA-256 of 64 hex digits, and 'sha256:xyz' is none",
    "a: merge of b": "'merge of b' names one model; a merge is written: merge of A and B",
    "a: answers as b": "'answers as b' is cut short; it is written: answers as B does on ITEMS.jsonl",
    "a: tuned from b and c": "'b and c' is no model; this claim is written: tuned from B",
    "a: tuned from a": "'tuned from a' is said of a itself; name another model",
    "a: [1]": "1, said of a, is no line of text; put it in quotes",
    "a: ": "'a' has no list of claims; write MODEL: a list of claims",
    "- tuned from b": "the claims are a list, and no mapping; write MODEL: a list of claims",
    "": "the claims are empty; write MODEL: a list of claims",
    "a: [null]": "None, said of a, is no line of text; put it in quotes",
    "a: [tuned from b, 0]": "0, said of a, is no line of text; put it in quotes",
    "a: 2020-99-99": "the claims are no YAML (month must be in 1..12)",
    "a: [!!timestamp x]": "the claims are no YAML (",
    "a: " + "[" * 2000: "the claims are no YAML (",
    "a: tuned from": "'tuned from' is cut short; it is written: tuned from B",
    "a: merge of b and b": "'merge of b and b' names a model twice; a merge is written: merge of A and B",
    "a: answers as b does on ./no.jsonl": "no.jsonl does not exist; give a file of items",
    "a: tuned from b\na: tuned from c": "a stands twice; write all claims about a model under one name",
    "a: [": "the claims are no YAML (",
    "./nowhere: tuned from ./elsewhere": "nowhere does not exist",
}


@pytest.mark.parametrize("content", FAULTS)
def test_a_fault_is_one_line(run, tmp_path, content):
    (tmp_path / "claims.yml").write_text(content, encoding="utf-8")
    status, out, err = run("check", tmp_path / "claims.yml")
    assert (status, out) == (2, "")
    assert FAULTS[content] in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a file of claims, or --card with a model's folder"),
        (["nowhere.yml"], "nowhere.yml does not exist; give a file of claims"),
        (["--card", "nowhere"], "nowhere/README.md does not exist; give the folder of a model with its card"),
    ],
)
def test_what_is_missing_is_one_line(run, arguments, said):
    status, _, err = run("check", *arguments)
    assert status == 2
    assert said in err


def test_an_id_without_network_is_one_line(run, tmp_path):
    (tmp_path / "claims.yml").write_text("org/name: tuned from org/other", encoding="utf-8")
    status, _, err = run("check", tmp_path / "claims.yml")
    assert status == 2
    assert "org/name" in err
    assert err.count("\n") == 1


def card(folder, front):
    folder.mkdir()
    (folder / "README.md").write_text(f"---\n{front}\n---\n# A model\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("front", "line"),
    [
        ("base_model: org/b", "tuned from org/b"),
        ("base_model: [org/b]\nbase_model_relation: adapter", "tuned from org/b"),
        ("base_model: org/b\nbase_model_relation: quantized", "quantized from org/b"),
        ("base_model: [org/b, org/c]", "merge of org/b and org/c"),
    ],
)
def test_a_card_claims_what_its_front_matter_says(tmp_path, front, line):
    (claim,) = reading.of_card(card(tmp_path / "m", front))
    assert (claim.model, claim.line) == (str(tmp_path / "m"), line)


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("license: mit", "claims nothing: its front matter names no base_model"),
        ("base_model: org/b\nbase_model_relation: theft", "has the relation 'theft'; judged are: finetune, adapter"),
        ("base_model: [org/b, org/c]\nbase_model_relation: quantized", "is quantized of 2 models"),
        ("base_model: [", "is no mapping of YAML"),
        ("base_model: " + "[" * 2000, "is no mapping of YAML"),
        ("base_model: [!!timestamp x]", "is no mapping of YAML"),
        ("base_model: ['']", "claims nothing: its front matter names no base_model"),
        ("base_model: org/b\nbase_model_relation: [merge]", "has the relation ['merge']; judged are: finetune"),
    ],
)
def test_a_card_that_cannot_be_judged_says_so(tmp_path, front, said):
    with pytest.raises(InputError, match=re.escape(said)):
        reading.of_card(card(tmp_path / "m", front))


def test_the_command_exits_by_what_is_refuted(run, folders, text, tmp_path):
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    folder = Path(shutil.copytree(folders["tuned"], tmp_path / "tuned"))
    (folder / "README.md").write_text(f"---\nbase_model: {folders['stranger']}\n---\n", encoding="utf-8")
    files = ("--junit", tmp_path / "j.xml", "--json", tmp_path / "j.json")
    status, out, _ = run("check", "--card", folder, "--text", tmp_path / "text.txt", *files)
    assert status == 1
    assert out.startswith("1 claim of the card: 1 refuted.")
    assert (tmp_path / "j.xml").is_file()
    assert json.loads((tmp_path / "j.json").read_text())["claims"][0]["fact"] == "unlike"
    (folder / "README.md").write_text(f"---\nbase_model: {folders['base']}\n---\n", encoding="utf-8")
    _, out, _ = run("check", "--card", folder, "--text", tmp_path / "text.txt", "-v")
    assert "by Holm over the 1 question of the card" in " ".join(out.split())


def test_junit_of_any_name_is_xml_and_goes_where_it_is_asked(run, folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = shutil.copytree(folders["base"], tmp_path / "a\x01\udcff")
    checked = provlab.check({str(odd): f"same weights as {ZERO}"}, progress=False)
    assert ElementTree.fromstring(checked.to_junit().encode()).find("testcase").get("classname").endswith("a??")
    (tmp_path / "claims.yml").write_text(f"{folders['base']}: same weights as {ZERO}", encoding="utf-8")
    status, out, _ = run("check", "claims.yml", "--junit", "-", "--json", "j.json")
    assert (status, ElementTree.fromstring(out).get("failures")) == (1, "1")
    assert (tmp_path / "j.json").is_file()
    assert not (tmp_path / "-").exists()
    status, _, err = run("check", "claims.yml", "--junit", "-", "--json", "-")
    assert status == 2
    assert "--json and --junit both go to -; name two places" in err


def test_a_mapping_of_other_things_is_refused():
    with pytest.raises(ParameterError, match="has no list of claims"):
        reading.of_lines({"a": []})
