"""A reader's own models: what a file says of their origin, what a study of them found, where their pages stand."""

import re

import nbformat
import pytest
from small_notebooks import write

import provlab
from provlab.errors import InputError
from provlab_study.publishing.declared import Parameter
from provlab_study.publishing.own import check_lineage, in_words, told_lineage
from provlab_study.publishing.pages import page_name, write_index


@pytest.fixture
def told(tmp_path):
    """Write a file of lineage."""

    def write_lines(text):
        path = tmp_path / "lineage.csv"
        path.write_text(text)
        return str(path)

    return write_lines


def test_a_file_says_what_names_do_not(told):
    file = told("child,parent\n# two trees\n/b, /a\n/d,/c\n\n/a,\ndisguised:/e,/e\n/e,/c\n")
    lineage = told_lineage(["/a", "/b", "/d", "/x", "disguised:/b"], file)
    assert lineage.families() == {"/a": "/a", "/b": "/a", "/d": "/c", "/x": "unknown", "disguised:/b": "/a"}
    assert lineage.dependent("/a", "/b") is lineage.dependent("/a", "disguised:/b") is True
    assert lineage.dependent("/b", "/d") is False
    assert lineage.dependent("/a", "/x") is None
    assert told_lineage(["zoo:oak", "zoo:oak-chat"], "").dependent("zoo:oak", "zoo:oak-chat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/a,/b,/c\n", "line 1 of .* is no child,parent"),
        (",/b\n", "line 1 of .* is no child,parent"),
        ("/a,/b\n/a,/c\n", "names the parent of /a twice"),
        ("/a,/b\n/b,/a\n", "makes /a its own ancestor"),
        ("/a,/a\n", "makes /a its own ancestor"),
        ("", "tells of no model"),
        ("/y,/z\n", "tells of none of the models /a; write each in it as it is given"),
    ],
)
def test_a_file_that_is_refused(told, text, message):
    with pytest.raises(InputError, match=message):
        check_lineage(told(text), ["/a"])


def test_a_study_in_words_names_pairs_outcomes_and_the_strongest(models):
    study = provlab.study([models["base"], models["tuned"], models["stranger"]], statistics=["phi_u"])
    words = in_words(study)
    assert words.startswith("Of the 3 pairs of base, tuned, stranger: 1 by order alone (base and tuned), 2 ")
    assert ". The strongest evidence is that of base and tuned, by phi_u: log10 p -" in words
    assert "Holm over 3 tests, family-wise error at most 0.01" in words
    unrelated = in_words(provlab.study([models["base"], models["stranger"]], statistics=["phi_u"]))
    assert ". No test rejects; the smallest p is that of base and stranger, by phi_u: log10 p -" in unrelated


def test_a_study_of_one_pair_counts_nothing(models):
    study = provlab.study([models["base"], models["tuned"]], statistics=["phi_u"], progress=False)
    assert in_words(study).startswith("base and tuned: by order alone. The strongest evidence is")


DECLARED = {
    "models": Parameter("models", "list[str]", "['zoo:*']", "[models]"),
    "n": Parameter("n", "int", "5", "[at least 1]"),
    "profile": Parameter("profile", "str", "'default'", ""),
}


def test_each_question_has_a_page_of_its_own():
    asked = [
        {},
        {"models": ["/x/a", "org/b"]},
        {"models": ["/y/a", "org/b"]},  # the same short names
        {"models": ["/x/a", "org/b"], "n": 6},
        {"n": 6},
    ]
    names = [page_name("tree", DECLARED, values) for values in asked]
    assert len(set(names)) == len(names)
    assert names[0] == "tree.ipynb"
    assert re.fullmatch(r"tree-a\+b-[0-9a-f]{6}\.ipynb", names[1])
    assert re.fullmatch(r"tree-a\+b-n=6-[0-9a-f]{6}\.ipynb", names[3])
    assert page_name("tree", DECLARED, {"n": 5, "profile": "own"}) == "tree.ipynb"  # its own default is no question
    assert len(page_name("tree", DECLARED, {"models": [f"/x/{n}" for n in range(99)]})) < 100


def test_the_index_names_pages_with_their_questions_and_findings(tmp_path):
    for name, given in (("a", {"models": ["<a>"]}), ("b", {"profile": "own"})):
        path = write(tmp_path / f"{name}.ipynb", parameters="")
        notebook = nbformat.read(path, as_version=4)
        notebook.cells = [nbformat.v4.new_markdown_cell("# The *tree*\n\nOne pair is related.\n\nMore.", id="x")]
        notebook.metadata["provlab"] = {"given": given, "stamp": "x"}
        nbformat.write(notebook, path)
    (tmp_path / "c.failed.ipynb").write_text("{}")
    (tmp_path / "d.ipynb").write_text("no notebook")
    text = write_index(tmp_path).read_text()
    assert "2 pages" in text
    assert text.count("One pair is related.") == 2
    assert "models = [&#x27;&lt;a&gt;&#x27;]" in text
    assert "as the notebook has them" in text
    assert "failed" not in text
