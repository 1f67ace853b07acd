"""Folders of evidence: written, validated by others' schemas, recomputed, and refused however they are mutated."""

import json
import random
import re
import shutil
import subprocess
from datetime import date
from html import escape
from pathlib import Path

import pytest
import reports
import same_content
import tiny_models
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

import provlab
from provlab.attest import folder as folders
from provlab.attest.conclusion import CONCLUSIONS, DIFFERENCE, OF_TWO, of_tree, opening
from provlab.attest.statement import COMMANDS, SIGN, as_text, pedigree, statement
from provlab.errors import EvidenceError, InputError, ProvlabError
from provlab.report.decide import OUTCOMES

SETTINGS = {"statistics": ["phi_u", "phi_unseen"], "seed": 3}


@pytest.fixture(scope="module")
def report(models, tmp_path_factory):
    """A report of a related pair by statistics of weights."""
    path = tmp_path_factory.mktemp("reports") / "pair"
    result = provlab.compare(models["base"], models["tuned"], progress=False, **SETTINGS)
    folders.write(path, "compare", SETTINGS, result)
    return path


@pytest.fixture
def copy(report, tmp_path):
    return Path(shutil.copytree(report, tmp_path / "copy"))


def load(folder, name="result.json"):
    return json.loads((folder / name).read_text())


def rebuild(folder, content, **texts):
    """Write a folder around a changed result whose hashes, statement and pedigree agree: a forger's best."""
    (folder / "result.json").write_text(as_text(content))
    (folder / "pedigree.cdx.json").write_text(pedigree(content))
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text)
    names = ("result.json", "index.html", "pedigree.cdx.json")
    hashes = {name: folders._sha256((folder / name).read_bytes()) for name in names}
    (folder / "statement.json").write_text(as_text(statement(content, hashes)))


def test_a_report_is_recomputed_bit_for_bit(report, models, tmp_path):
    assert reports.verify(report).endswith("compare of 2 models, recomputed bit for bit")
    moved = [shutil.copytree(models[name], tmp_path / f"other-{name}") for name in ("base", "tuned")]
    assert reports.verify(report, [str(path) for path in moved]).endswith("bit for bit\nPictures were not compared.")


def test_the_statement_is_in_toto_s_and_the_pedigree_cyclonedx_s(report):
    content = load(report, "statement.json")
    Statement.copy_from_pb(json_format.ParseDict(content, statement_pb2.Statement())).validate()
    about = content["predicate"]
    assert content["subject"][0]["digest"] == {
        "sha256": load(report)["result"]["models"][0]["files"]["config.json"]["sha256"]
    }
    result = about["result"]
    assert result["statistics"]["phi_u"]["log10_p"] < -10
    assert result["statistics"]["phi_u"]["blocks"] == [0, 1, 2]
    assert {"machine", "read", "units_matched", "tolerance"} <= about.keys()
    assert {"level", "assumptions", "seed", "versions"} <= result.keys()
    text = (report / "pedigree.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    # rows and an order that agree make no kin; a rejection does
    content = load(report)
    assert content["result"]["outcome"] == "rows of one origin"
    content["result"]["outcome"] = "rejected"
    weaker, kin = (json.loads(some)["components"][0]["pedigree"] for some in (text, pedigree(content)))
    assert "variants" not in weaker
    assert [variant["name"] for variant in kin["variants"]] == ["tuned"]
    del about["folder"]
    assert json.loads(weaker["notes"])["predicate"] == about


def test_the_page_shows_what_replays_and_signs_it(report):
    page = (report / "index.html").read_text()
    assert "<details open>" in page
    assert all(escape(command) in page for command in COMMANDS)
    assert load(report, "statement.json")["subject"][0]["digest"]["sha256"] in page


def test_the_page_begins_with_a_date_names_and_three_plain_sentences(report, models):
    page = (report / "index.html").read_text()
    today = date.fromisoformat(load(report)["date"])
    opening = page.partition("<h1>")[2].partition("<div")[0]
    assert opening.startswith(f"Report of {today.day} {today:%B} {today.year}: base, tuned</h1>")
    assert models["base"] not in opening
    told = opening.partition("<p>")[2].partition("</p>")[0]
    assert told == CONCLUSIONS["rows of one origin"].format(a="base", b="tuned")
    assert OF_TWO in opening.partition("It does not say")[2]
    for said in CONCLUSIONS.values():
        assert len(re.findall(r"\.(?= |$)", said)) == 3
        assert not re.search(r"\d|log10|phi_", said)
    assert set(CONCLUSIONS) == set(OUTCOMES)


def edge(a, b, relation="near", parent="may not be given"):
    return {"a": a, "b": b, "relation": relation, "parent": parent}


DESCENT = [edge("/m/a", "/m/b", "descends", "shown"), edge("/m/b", "/m/c")]


@pytest.mark.parametrize(
    ("families", "between", "unread", "said"),
    [
        (
            {"abc": DESCENT, "d": []},
            [],
            [],
            "Of these 4 models a, b and c have a common origin; no relation of d to another model was found. A third, "
            "earlier model shows that b was made from a, up to the errors below, unless models were written to look "
            "so, which whoever has the later one can do without training. Had these models no common origin, ",
        ),
        (
            {"abc": [edge("/m/a", "/m/c", "merge", "shown"), edge("/m/b", "/m/c", "merge", "shown")]},
            [],
            [],
            "Of these 3 models a, b and c have a common origin. The numbers themselves show that c was made from a, "
            "and that c was made from b, up to the errors below, unless ",
        ),
        (
            {"ab": [edge("/m/a", "/m/b", "identical")], "c": [], "d": []},
            [],
            ["/m/c", "/m/d"],
            "Of these 4 models a and b have a common origin; c and d could not be compared with all others. Nothing "
            "here shows which model was made from which. No test was needed to see it: their numbers are the same.",
        ),
        (
            {"a": [], "b": [], "c": [edge("/m/a", "/m/c", "bridge")]},
            ["/m/c"],
            [],
            "Of these 3 models c is related to models of more than one origin; no relation of a and b to another model "
            "was found. Nothing here",
        ),
        (
            dict.fromkeys("abcdefgh", ()),
            [],
            [],
            "Of these 8 models no relation of a, b, c, d, e, f and 2 more to another model was found. Nothing here "
            "shows which model was made from which. A copy whose maker hid it may have been missed.",
        ),
    ],
)
def test_the_report_of_a_tree_says_in_three_sentences_who_is_related(families, between, unread, said):
    result = {
        "families": [{"models": [f"/m/{n}" for n in models], "edges": edges} for models, edges in families.items()]
    }
    result |= {"bridges": between, "not_compared_with_all": unread}
    told = of_tree(result, {f"/m/{name}": name for models in families for name in models})
    assert told.startswith(said)
    content = {
        "date": "2026-01-02",
        "result": result | {"models": [{"source": f"/m/{name}"} for name in "".join(families)]},
    }
    assert escape(told) in opening(content)
    assert OF_TWO not in opening(content)  # it may say so
    assert len(re.findall(r"\.(?= |$)", told)) == 3


def test_the_report_of_a_difference_says_that_it_is_about_answers():
    content = {"date": "2026-01-02", "result": {"models": [{"source": "/m/a"}, {"source": "/m/b"}]}}
    assert DIFFERENCE.format(a="a", b="b") in opening(content)
    assert len(re.findall(r"\.(?= |$)", DIFFERENCE)) == 3


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH on this machine")
def test_a_key_of_ones_own_signs_a_report(copy, tmp_path):
    def shell(command):
        return subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True).returncode

    assert shell("ssh-keygen -q -t ed25519 -N '' -C author -f KEY") == 0
    folder = copy.rename(tmp_path / "FOLDER")
    assert shell(SIGN) == 0
    assert folders.read(folder)  # the signature lies beside it
    (tmp_path / "known").write_text(f"author {(tmp_path / 'KEY.pub').read_text()}")
    check = "ssh-keygen -Y verify -f known -I author -n provlab -s FOLDER.sig < FOLDER/statement.json"
    assert shell(check) == 0
    statement = folder / "statement.json"
    statement.write_text(statement.read_text().replace("Statement/v1", "Statement/v2"))
    assert shell(check) != 0


def test_models_that_lie_elsewhere_must_be_named(models, tmp_path):
    folder, moved = tmp_path / "report", shutil.copytree(models["base"], tmp_path / "moved")
    result = provlab.compare(str(moved), models["tuned"], progress=False, **SETTINGS)
    folders.write(folder, "compare", SETTINGS, result)
    shutil.rmtree(moved)
    with pytest.raises(InputError, match=rf"moved does not exist.*: provlab verify {folder} moved tuned$"):
        reports.verify(folder)
    assert "recomputed bit for bit" in reports.verify(folder, [models["base"], models["tuned"]])


def leaves(value, at=()):
    """Places of all numbers, texts and nulls in JSON."""
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*at, key))
    else:
        yield at


def planted(value, rng):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + rng.choice([1, -1, 1e-6]) * (1 + abs(value))
    return rng.choice([other for other in ("", f"{value}x", str(value)[::-1] + "y") if other != value])


def change_leaf(content, rng):
    """Change one value; return where."""
    *path, last = rng.choice(list(leaves(content)))
    inner = content
    for key in path:
        inner = inner[key]
    inner[last] = planted(inner[last], rng)
    return [*path, last]


def mutate(folder, kind, rng):
    """Spoil a copy of a report in one way that takes no rebuilding."""
    name = rng.choice(sorted(path.name for path in folder.iterdir()))
    path, other = folder / name, folder / rng.choice(["notes.txt", ".hidden", "sub/x.json", "index.htm"])
    data = path.read_bytes()
    if kind == "value":
        path = folder / rng.choice(["result.json", "statement.json", "pedigree.cdx.json"])
        content = json.loads(path.read_text())
        change_leaf(content, rng)
        path.write_text(as_text(content))
    elif kind == "byte":
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :])
    elif kind == "hash":
        text = (folder / "statement.json").read_text()
        sha256 = rng.choice(re.findall(r"[0-9a-f]{64}", text))
        (folder / "statement.json").write_text(text.replace(sha256, sha256[::-1]))
    elif kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data))])
    elif kind == "missing":
        path.unlink()
    elif kind == "extra":
        other.parent.mkdir(exist_ok=True)
        other.write_text("more")
    elif kind == "swapped models":
        content = json.loads((folder / "result.json").read_text())
        content["result"]["models"].reverse()
        (folder / "result.json").write_text(as_text(content))
    elif kind == "swapped files":
        names = rng.sample(sorted(path.name for path in folder.iterdir()), 2)
        texts = [(folder / name).read_bytes() for name in names]
        for name, text in zip(names, texts[::-1], strict=True):
            (folder / name).write_bytes(text)


KINDS = ("value", "byte", "hash", "cut", "missing", "extra", "swapped models", "swapped files")


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_folders_are_refused_in_one_line(report, tmp_path, kind):
    """125 of each of eight kinds: a thousand."""
    for seed in range(125):
        folder = Path(shutil.copytree(report, tmp_path / str(seed)))
        mutate(folder, kind, random.Random(f"{kind} {seed}"))
        with pytest.raises(EvidenceError) as caught:
            folders.read(folder)
        assert "\n" not in str(caught.value)
        assert not re.search(r"[A-Z]\w+Error|indices|object|NoneType", str(caught.value))  # Python's own words
        shutil.rmtree(folder)


@pytest.mark.parametrize("statement", ["[]", "3", "null", "{}", '{"predicateType": []}', "{", "\0", '"text"'])
def test_a_statement_of_another_shape_is_refused_in_plain_words(report, tmp_path, statement):
    folder = Path(shutil.copytree(report, tmp_path / "strange"))
    (folder / "statement.json").write_text(statement)
    with pytest.raises(EvidenceError, match=r"no whole report|another version") as caught:
        folders.read(folder)
    assert not re.search(r"[A-Z]\w+Error|indices|object|NoneType", str(caught.value))


def test_forged_folders_that_agree_with_themselves_are_refused_by_the_models(report, tmp_path):
    """Nothing checks the names of machine and versions, which decide how exactly the rest must agree."""
    free = {"machine", "versions", "commit", "not_verified", "name"}
    for seed in range(25):
        rng, folder = random.Random(seed), Path(shutil.copytree(report, tmp_path / str(seed)))
        at = ["machine"]
        while not free.isdisjoint(at):
            content = load(folder)
            at = change_leaf(content, rng)
        try:
            rebuild(folder, content)
        except (KeyError, TypeError):  # a question that there is not
            continue
        with pytest.raises(ProvlabError) as caught:
            reports.verify(folder)
        assert "\n" not in str(caught.value), at


def test_a_forged_page_and_swapped_models_are_refused(copy, models):
    page = (copy / "index.html").read_text()
    for forged in (
        page.replace("alike", "unlike", 1),
        page.replace("<figure", "<figure title='no kin'"),
    ):
        assert forged != page
        rebuild(copy, load(copy), index=forged)
        with pytest.raises(EvidenceError, match=r"index\.html does not show this result"):
            reports.verify(copy)
    with pytest.raises(EvidenceError, match=r"tuned is not .*base: model.safetensors.sha256 is \w+, not \w+"):
        reports.verify(copy, [models["tuned"], models["base"]])
    with pytest.raises(EvidenceError, match="the report is of 2 models, and 1 are given"):
        reports.verify(copy, [models["tuned"]])


def test_claims_of_another_machine_open_the_stated_tolerance_and_no_more(copy):
    """A forger may write any processor and versions into a folder; what that buys is bounded, and said."""
    content = load(copy)
    ours = content["machine"]["processor"], content["result"]["versions"]["torch"]
    content["machine"]["processor"] = "another"
    content["result"]["versions"]["torch"] = "9.9"
    page = (copy / "index.html").read_text().replace(ours[0], "another").replace(f"torch {ours[1]}", "torch 9.9")
    content["result"]["statistics"]["phi_u"]["value"] *= 1 + 1e-5
    rebuild(copy, content, index=page)
    text = reports.verify(copy)
    assert "recomputed within 0.001\nThe folder claims processor another (here" in text
    assert f"torch 9.9 (here {ours[1]}), which nothing proves: for this its numbers may be off by 0.001.\n" in text
    forged = re.sub(r"-\d+\.\d", lambda match: f"{2 * float(match[0]):.1f}", page.partition("<table")[2], count=1)
    rebuild(copy, content, index=page.partition("<table")[0] + "<table" + forged)
    with pytest.raises(EvidenceError, match=r"index\.html does not show this result"):
        reports.verify(copy)
    content["result"]["statistics"]["phi_u"]["value"] *= 1 + 1e-2
    rebuild(copy, content, index=page)
    with pytest.raises(EvidenceError, match=r"phi_u\.value is .* in the report, and .* recomputed"):
        reports.verify(copy)


@pytest.mark.parametrize(
    ("theirs", "ours", "close"),
    [
        ("p = 10^-8.4 of 3", "p = 10^-8.5 of 3", True),
        ("p = 10^-8.4 of 3", "p = 10^-8.6 of 3", False),
        ("2 of 3 blocks", "3 of 3 blocks", False),
        ("p = 4.2e-1085", "p = 4.3e-1085", True),
        ("p = 4.2e-1085", "p = 4.2e-1185", False),
        ("p = 4e-5", "p = 8.2e-5", False),  # few digits in the folder open nothing
        ("torch 2.9.1", "torch 2.9.2", False),
        (1.0, 1.0009, True),
        (1000, 1001, False),
    ],
)
def test_numbers_in_texts_may_differ_by_their_last_digit(theirs, ours, close):
    assert folders._close(theirs, ours) is close


def test_another_version_and_no_folder_are_refused(copy):
    text = (copy / "statement.json").read_text()
    (copy / "statement.json").write_text(text.replace("evidence:1", "evidence:2"))
    with pytest.raises(EvidenceError, match="another version of provlab wrote it"):
        folders.read(copy)
    with pytest.raises(EvidenceError, match="is no whole report"):
        folders.read(copy / "nowhere")


def test_the_commands(run, models, tmp_path):
    target = tmp_path / "tree"
    status, _, err = run("tree", *models.values(), "--results", tmp_path / "store", "-o", target)
    assert (status, err) == (0, "")
    assert load(target, "statement.json")["predicate"]["read"] == {
        "phi_u": "up projections of the MLPs",
        "phi_e": "embeddings",
        "phi_match_all": "activations of some units, text",
    }
    pedigrees = {c["name"]: c["pedigree"] for c in load(target, "pedigree.cdx.json")["components"]}
    assert {len(kin.get("ancestors", ())) + len(kin.get("variants", ())) for kin in pedigrees.values()} > {0}
    status, out, _ = run("verify", target)
    assert status == 0
    words = " ".join(out.split())
    assert words.startswith(f"{target}: tree of 5 models, recomputed bit for bit. It confirms: 5 models: ")
    (target / "more").touch()
    assert run("verify", target)[::2] == (1, "provlab: refused: more is not part of the report\n")
    status, _, err = run("compare", models["base"], models["tuned"], "--statistic", "phi_u", "-o", target)
    assert status == 2
    assert f"{target} exists; name a new folder" in err


def test_tokenizers_are_subjects_of_what_rests_on_them(models, tmp_path):
    """A tree pairs tokens by their spellings, and phi_u reads no token."""
    pair = [str(shutil.copytree(models[name], tmp_path / name)) for name in ("base", "tuned")]
    folders.write(tmp_path / "tree", "tree", {}, provlab.tree(pair, progress=False))
    folders.write(tmp_path / "units", "compare", *_by_units(pair))
    subjects = {
        folder: {one["name"]: one["digest"]["sha256"] for one in load(tmp_path / folder, "statement.json")["subject"]}
        for folder in ("tree", "units")
    }
    assert load(tmp_path / "tree", "statement.json")["predicate"]["read"] == {
        "phi_u": "up projections of the MLPs",
        "kept_rows": "embeddings",
        "weight_distance": "all weights",
    }
    tokenizer = f"{pair[0]}/tokenizer.json"
    assert subjects["tree"][tokenizer] == folders._sha256(Path(tokenizer).read_bytes())
    assert {Path(name).name for name in subjects["units"]} == {"config.json", "model.safetensors"}
    tiny_models.edit_json(Path(pair[0]) / "tokenizer_config.json", lambda config: config.update(clean_up=False))
    assert "recomputed bit for bit" in reports.verify(tmp_path / "units")
    with pytest.raises(EvidenceError, match=r"base: tokenizer_config\.json.* of its tokenizer is \w+, not"):
        reports.verify(tmp_path / "tree")


def _by_units(pair):
    settings = {"statistics": ["phi_u"]}
    return settings, provlab.compare(*pair, progress=False, **settings)


@pytest.mark.parametrize("way", same_content.WAYS)
def test_the_same_tensors_in_other_files_are_taken_and_said(way, report, models, tmp_path):
    other = Path(shutil.copytree(models["base"], tmp_path / "base"))
    same_content.WAYS[way](other)
    words = reports.verify(report, [str(other), models["tuned"]])
    assert "recomputed" in words
    assert f"{other} has other files than the report names, and the same tensors in them" in words


def test_the_same_tensors_under_another_config_are_another_model(report, models, tmp_path):
    other = Path(shutil.copytree(models["base"], tmp_path / "base"))
    same_content.reordered(other)
    tiny_models.edit_json(other / "config.json", lambda config: config.update(rms_norm_eps=1e-3))
    with pytest.raises(EvidenceError, match="is not "):
        reports.verify(report, [str(other), models["tuned"]])
