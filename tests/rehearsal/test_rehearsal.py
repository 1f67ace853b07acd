"""The rehearsal of the paper profile: its table, what it serves, and one page of it."""

import csv
from importlib import resources
from pathlib import Path

import pytest
import rehearse
import repositories
import yaml
from hub_server import HubServer, Repo

from provlab.errors import CheckpointError
from provlab.models.checkpoint import Checkpoint

PAPER = yaml.safe_load((rehearse.ROOT / "notebooks" / "profiles" / "paper.yml").read_text(encoding="utf-8"))


def test_the_table_has_the_models_of_the_profile_and_their_lineage():
    assert list(repositories.table()) == [model["id"] for model in PAPER["fetches"]]
    tree = resources.files("provlab") / "engine" / "llama7b_tree.csv"
    known = {row["model_id"]: row["parent"] for row in csv.DictReader(tree.read_text().splitlines())}
    assert {one: repositories.table()[one].parent for one in known} == known


def test_every_model_that_a_page_names_is_asked_about():
    """An id in a parameter that is not in `fetches` would be fetched without consent."""
    named = {
        value
        for one in PAPER["experiments"]
        for given in one.get("parameters", {}).values()
        for value in (given if isinstance(given, list) else [given])
        if isinstance(value, str) and "/" in value
    }
    assert named == set(repositories.table())


def test_cuts_change_sizes_and_the_device_alone():
    plan = rehearse.plan_of([])
    paper = {one["notebook"]: one.get("parameters", {}) for one in PAPER["experiments"]}
    assert [one["notebook"] for one in plan.experiments if not one.get("reads")] == [
        name for name, given in paper.items() if rehearse.models_of({"parameters": given}, plan)
    ]
    for one in plan.experiments:
        given = one.get("parameters", {})
        assert given.get("device", "cpu") == "cpu"
        for key, value in paper[one["notebook"]].items():
            assert type(given[key]) is type(value)
            if isinstance(value, str) and key != "device":
                assert given[key] == value


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(repositories, "TRAINED", ())
    yield tmp_path_factory.mktemp("repositories")
    patch.undo()


@pytest.fixture
def serve(made, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    servers = []

    def start(*models):
        folders = repositories.make(list(models), made)
        gated = {one: repositories.table()[one].gated for one in models}
        server = HubServer({one: Repo(folders[one], gated=gated[one], token=rehearse.TOKEN) for one in models})
        servers.append(server.__enter__())
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)

    yield start
    for server in servers:
        server.stop()


def test_stand_ins_are_read_as_the_originals_are_said_to_lie_there(serve, monkeypatch):
    gated, pickled, code = "meta-llama/Llama-2-7b-hf", "lmsys/vicuna-7b-v1.5", "Salesforce/xgen-7b-4k-base"
    serve(gated, pickled, code)
    with pytest.raises(CheckpointError, match=f"{gated} is gated: .* set HF_TOKEN"):
        Checkpoint.open(gated)
    monkeypatch.setenv("HF_TOKEN", rehearse.TOKEN)
    with pytest.raises(CheckpointError, match="only as pickle"):
        Checkpoint.open(pickled)
    base, tuned, far = (Checkpoint.open(one, allow_pickle=True) for one in (gated, pickled, code))
    name = "model.layers.3.mlp.up_proj.weight"
    assert base.shape(name) == tuned.shape(name) == (344, 128)
    assert 0 < abs(base.array(name) - tuned.array(name)).max() < 0.02
    text = "The model reads a page, é 漢 x."
    ids = base.tokenizer().encode(text)
    assert ids == tuned.tokenizer().encode(text)  # from tokenizer.json, and from tokenizer.model
    assert base.tokenizer().decode(ids, skip_special_tokens=True) == text
    with pytest.raises(CheckpointError, match="no usable tokenizer"):
        far.tokenizer()  # its code is not run
    far.load_model()


@pytest.mark.slow
def test_one_page_without_a_token_and_with_one(made, tmp_path):
    repositories.make(["meta-llama/Llama-2-70b-hf", "meta-llama/Llama-3.1-70B"], made)
    (tmp_path / "repositories").symlink_to(made)
    rehearsal = rehearse.Rehearsal(rehearse.plan_of(["miqu"]), tmp_path)
    with rehearsal.server:
        said = [rehearsal.token(), rehearsal.whole()]
    assert rehearsal.failures == []
    assert "meta-llama/Llama-2-70b-hf is gated: accept its licence" in said[0]
    assert said[1] == "1 pages"
    assert Path(tmp_path / "pages" / "miqu.ipynb").is_file()


def test_the_page_on_matching_has_a_fine_tune_and_three_trees():
    models = next(
        one["parameters"]["models"] for one in PAPER["experiments"] if one["notebook"] == "matching_and_pvalues"
    )
    parents = [repositories.table()[one].parent for one in models]
    assert any(parent in models for parent in parents)
    assert parents.count("") > 2
