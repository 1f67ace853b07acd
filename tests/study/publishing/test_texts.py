"""A page's text: of a file, or of a data set on a small server that speaks the hub's protocol."""

import zipfile

import pytest
from hub_server import COMMIT, HubServer, Repo

from provlab.errors import CheckpointError, InputError, ParameterError
from provlab_study.publishing import texts
from provlab_study.publishing.declared import Rule

WORDS = "= Robert Boulter =\n Robert Boulter is an English film , television and theatre actor .\n"
MEMBER = "wikitext-2-raw/wiki.test.raw"
ZIPPED = f"zip://{MEMBER}::hf://datasets/some/texts/wiki.zip"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    folder = tmp_path / "texts"
    (folder / "raw").mkdir(parents=True)
    (folder / "raw" / "test.txt").write_text(WORDS)
    with zipfile.ZipFile(folder / "wiki.zip", "w") as archive:
        archive.writestr(MEMBER, WORDS)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with HubServer({"datasets/some/texts": Repo(folder)}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_a_file_of_a_data_set_is_read_at_one_commit_and_kept(hub, tmp_path):
    for source in ("hf://datasets/some/texts/raw/test.txt", "hf://datasets/some/texts@main/raw/test.txt", ZIPPED):
        text = texts.read(source)
        assert (text.content, text.commit) == (WORDS, COMMIT), source
        assert text.record["commit"] == COMMIT
        assert text.record["characters"] == len(WORDS)
    assert (tmp_path / "home/hub/datasets--some--texts/snapshots" / COMMIT / "wiki.zip").is_file()
    assert not (tmp_path / "home/hub/models--some--texts").exists()
    hub.stop()
    assert texts.read(ZIPPED).content == WORDS  # without a network, from the cache


def test_what_is_damaged_on_its_way_is_refused(hub):
    hub.repos["datasets/some/texts"].corrupt = {"wiki.zip"}
    with pytest.raises(CheckpointError, match="arrived damaged"):
        texts.read(ZIPPED)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("hf://datasets/some/texts/raw/other.txt", "some/texts has no file raw/other.txt at commit"),
        ("zip://wiki.test::hf://datasets/some/texts/wiki.zip", f"wiki.zip has no wiki.test; it has {MEMBER}"),
        ("zip://a::hf://datasets/some/texts/raw/test.txt", "test.txt is no zip archive that can be read"),
        ("hf://datasets/some/texts/wiki.zip", "cannot be read as UTF-8"),
    ],
)
def test_what_is_no_text_is_named(hub, source, words):
    with pytest.raises(InputError, match=words):
        texts.read(source)


def test_an_unknown_data_set_is_named(hub):
    with pytest.raises(CheckpointError, match="some/others"):
        texts.read("hf://datasets/some/others/test.txt")


def test_the_form_of_a_source_is_checked_before_a_run(tmp_path):
    rule = Rule.of("what models read [a text; or empty]")
    (tmp_path / "own.txt").write_text("words")
    for source in ("", str(tmp_path / "own.txt"), ZIPPED, "hf://datasets/some/texts@0123/a/b.txt"):
        rule.check("text", source)
    with pytest.raises(ParameterError, match="there is no file nowhere"):
        rule.check("text", "nowhere.txt")
    for source in ("hf://models/some/texts/a.txt", "hf://datasets/some", "zip://a.txt", "hf://datasets/a/b/../c"):
        with pytest.raises(ParameterError, match="is no address of a text on the hub; give hf://datasets/OWNER"):
            rule.check("text", source)
