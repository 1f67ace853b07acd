"""The rehearsal of the paper profile: its table, what it serves, and one page of it."""

import csv
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import rehearse
import repositories
import yaml
from hub_server import HubServer, Repo

from provlab.errors import CheckpointError
from provlab.reading.checkpoint import Checkpoint

TEXT = (rehearse.ROOT / "notebooks" / "profiles" / "paper.yml").read_text(encoding="utf-8")
PAPER = yaml.safe_load(TEXT)


def test_the_table_has_the_models_of_the_profile_and_their_lineage():
    pinned = [f"{item}@{line.revision}".removesuffix("@") for item, line in repositories.table().items()]
    assert pinned[: len(PAPER["fetches"])] == [model["id"] for model in PAPER["fetches"]]
    others = {word for line in TEXT.splitlines() if "provlab compare" in line for word in line.split() if "/" in word}
    assert set(pinned[len(PAPER["fetches"]) :]) == others  # which pages have no room for
    tree = resources.files("provlab") / "report" / "llama7b_tree.csv"
    known = {row["model_id"]: row["parent"] for row in csv.DictReader(tree.read_text().splitlines())}
    assert {item: repositories.table()[item].parent for item in known} == known


def test_every_model_that_a_page_names_is_asked_about():
    """An id in a parameter that is not in `fetches` would be fetched without consent."""
    named = {
        value
        for item in PAPER["experiments"]
        for inputs in item.get("parameters", {}).values()
        for value in (inputs if isinstance(inputs, list) else [inputs])
        if isinstance(value, str) and "/" in value
    }
    assert named == {model["id"] for model in PAPER["fetches"]}


def test_announced_sizes_follow_from_shapes_and_dtypes():
    """To a tenth of a gigabyte, or a hundredth of the model: 992 GB in all."""
    for model in PAPER["fetches"]:
        size = repositories.assumed(model["id"]).gigabytes()
        assert model["gigabytes"] == pytest.approx(size, rel=0.01, abs=0.1), model
    assert sum(model["gigabytes"] for model in PAPER["fetches"]) == pytest.approx(992, abs=1)


def test_a_stand_in_of_true_width_has_the_originals_shapes_and_file(tmp_path):
    name = "cerebras/Cerebras-GPT-111M"
    folder = repositories.make([name], tmp_path, repositories.TRUE)[name]
    assert [path.name for path in folder.glob("pytorch_model*")] == ["pytorch_model.bin"]
    opened = Checkpoint.open(str(folder), allow_pickle=True)
    embedding = next(name for name in opened.tensor_names if name.endswith("wte.weight"))
    assert opened.shape(embedding) == (50257, 768)
    assert opened.config["n_layer"] == 2
    assert opened.config["n_head"] == 12


def test_a_child_of_true_width_is_its_parent_shaken_and_a_stranger_is_not():
    line = repositories.table()["lmsys/vicuna-7b-v1.5"]
    child, stranger = (
        repositories.Drawn(each, repositories.TRUE) for each in (line, repositories.table()["yahma/llama-7b-hf"])
    )
    name = "model.layers.1.mlp.up_proj.weight"
    assert child.shapes[name] == child.parent.shapes[name] == stranger.shapes[name] == (11008, 4096)
    child.shapes[name] = child.parent.shapes[name] = stranger.shapes[name] = (64, 128)  # a corner of it is enough
    ours, theirs, other = (source[name].numpy().ravel() for source in (child, child.parent, stranger))
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    assert abs(np.corrcoef(ours, other)[0, 1]) < 0.05


def test_cuts_change_sizes_and_the_device_alone():
    plan = rehearse.plan_of([])
    paper = {item["notebook"]: item.get("parameters", {}) for item in PAPER["experiments"]}
    assert [item["notebook"] for item in plan.experiments if not item.get("reads")] == [
        name for name, inputs in paper.items() if rehearse.models_of({"parameters": inputs}, plan)
    ]
    for item in plan.experiments:
        inputs = item.get("parameters", {})
        assert inputs.get("device", "cpu") == "cpu"
        for key, value in paper[item["notebook"]].items():
            assert type(inputs[key]) is type(value)
            if isinstance(value, str) and key != "device":
                assert inputs[key] == value


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
        gated = {item: repositories.table()[item].gated for item in models}
        server = HubServer({item: Repo(folders[item], gated=gated[item], token=rehearse.TOKEN) for item in models})
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
    base, tuned, far = (Checkpoint.open(item, allow_pickle=True) for item in (gated, pickled, code))
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
        message = [rehearsal.token(), rehearsal.whole()]
    assert rehearsal.failures == []
    assert "meta-llama/Llama-2-70b-hf is gated: accept its licence" in message[0]
    assert message[1] == "1 pages"
    assert Path(tmp_path / "pages" / "miqu.ipynb").is_file()


def test_the_page_on_matching_has_a_fine_tune_and_three_trees():
    models = next(
        item["parameters"]["models"] for item in PAPER["experiments"] if item["notebook"] == "matching_and_pvalues"
    )
    parents = [repositories.assumed(item).parent for item in models]
    assert set(parents) & {*map(repositories.bare, models)}
    assert parents.count("") > 2
