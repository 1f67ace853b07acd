"""The rehearsal of the paper profile: its table, what it serves, and one page of it."""

import csv
import re
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
from provlab_study.commands.reproduce import _cost, costs_of
from provlab_study.publishing import texts
from provlab_study.publishing.parameters import checked, find_notebook
from provlab_study.publishing.plan import Plan

TEXT = (rehearse.ROOT / "notebooks" / "profiles" / "paper.yml").read_text(encoding="utf-8")
PAPER = yaml.safe_load(TEXT)


PAGES = [item["notebook"] for item in rehearse.plan_of([]).experiments if not item.get("reads")]  # that fetch models
MODELS = [item for item in PAPER["fetches"] if not texts.on_the_hub(item["id"])]


def test_the_table_has_the_models_of_the_profile_and_their_lineage():
    pinned = [f"{item}@{line.revision}".removesuffix("@") for item, line in repositories.table().items()]
    assert pinned[: len(MODELS)] == [model["id"] for model in MODELS]
    others = {word for line in TEXT.splitlines() if "provlab compare" in line for word in line.split() if "/" in word}
    assert set(pinned[len(MODELS) :]) == others  # which pages have no room for
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


def test_the_text_of_the_profile_is_served_and_read(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rehearse.zoo, "held_out_text", lambda kind: "words of " + kind)
    (address,) = [item["id"] for item in PAPER["fetches"] if item not in MODELS]
    plan = rehearse.Plan("x", [], [{"id": address, "gigabytes": 0.0047}])
    made = rehearse.made_texts(plan, tmp_path / "texts")
    with HubServer({f"datasets/{name}": Repo(folder) for name, folder in made.items()}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        assert texts.read(address).content == "words of prose"


def test_announced_sizes_follow_from_shapes_and_dtypes():
    """To a tenth of a gigabyte, or a hundredth of the model: 992 GB in all."""
    for model in MODELS:
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
    name = "model.layers.0.mlp.up_proj.weight"
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


def kinds(plan):
    """What a plan's models have that another may read otherwise: widths, dtype, kind of file and of tokenizer."""
    found = set()
    for line in map(repositories.assumed, plan.models):
        config = line.true_config()
        width = config.get("hidden_size") or config["n_embd"]
        found |= {
            ("class, widths", *config["architectures"], width, config.get("intermediate_size"), config["vocab_size"]),
            ("dtype", "float32" if "float32" in line.weights.partition(";")[0] else "half"),
            ("file", "safetensors" if "safetensors" in line.weights else "bin"),
            ("tokenizer", "json" if "json" in line.tokenizer else line.tokenizer),
        }
    return found


@pytest.mark.parametrize("page", PAGES)
def test_at_true_width_fewer_models_are_read_and_none_of_another_kind(page):
    whole, cut = (rehearse.plan_of([page], width) for width in (repositories.SMALL, repositories.TRUE))
    given, left = (plan.experiments[0].get("parameters", {}) for plan in (whole, cut))
    checked(find_notebook(page), left, here=False)  # of a list that asks for four, four stay
    assert {model["id"] for model in cut.fetches} <= {model["id"] for model in whole.fetches}
    assert kinds(cut) == kinds(whole)
    for key in given.keys() & left.keys():
        if isinstance(given[key], list) and set(map(str, left[key])) < set(map(str, given[key])):
            of_profile = iter(given[key])
            assert all(value in of_profile for value in left[key])  # in its order


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_pickled_weights_is_allowed_to_read_them(page):
    plan = rehearse.plan_of([page])
    pickled = [id_ for id_ in plan.models if "safetensors" not in repositories.assumed(id_).weights]
    assert plan.experiments[0]["parameters"].get("allow_pickle", False) or pickled == []


def test_a_kind_that_no_model_is_left_of_is_seen(monkeypatch):
    monkeypatch.setattr(rehearse, "cuts_of", lambda cut: ({}, {}, {"llama_tree": {"models": [0, 1, 2, 6, 12]}}, {}))
    left = rehearse.plan_of(["llama_tree"], repositories.TRUE)
    assert ("tokenizer", "code") in kinds(Plan.read(rehearse.PROFILE)) - kinds(left)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # three minutes of one processor, that others may use as well
def test_one_page_at_true_width(tmp_path):
    """Two sizes of GPT-2 and a noisy copy, of 50,257 tokens, two blocks deep: what only size shows is seen here."""
    rehearsal = rehearse.alone("plagiarism", tmp_path)
    with rehearsal.server:
        outcome, took = rehearsal.measured(6.0)
    assert outcome == "done", took
    assert (rehearsal.pages / "plagiarism.ipynb").is_file()


def test_announced_costs_are_those_of_the_table_times_the_depth():
    """By hand: 3 minutes for 2 of 32 blocks are 48; sizes that were cut are said, and make it more."""
    row = {"outcome": "done", "processor_minutes": "3.0", "peak_gb": "5.2", "blocks": "2", "of_blocks": "32"}
    row |= {"times": "10.0", "date": "2026-11-30", "machine": "a processor"}
    said = _cost(row)
    assert said.startswith("about 48 min and 5 GB of memory, or more (2026-11-30")
    assert said.endswith("3.0 min for 2 of 32 blocks, with sizes up to 10 times smaller)")
    assert _cost(row | {"times": "1.0"}).endswith("3.0 min for 2 of 32 blocks)")
    assert _cost(row | {"outcome": "more than 9 GB"}) == _cost(None) == "time not measured"


def test_rows_of_costs_are_of_pages_and_sizes_as_they_are_now():
    """A page whose cuts or blocks change needs a new row; rows name no place on the machine that made them."""
    rows = costs_of(rehearse.PROFILE)
    assert rows.keys() <= set(PAGES)
    for name, row in rows.items():
        assert float(row["times"]) == pytest.approx(rehearse.times_longer(name), rel=0.01), name
        depths = rehearse.depths([repositories.assumed(item) for item in ids_of(name)])
        assert (int(row["blocks"]), int(row["of_blocks"])) == depths, name
        assert not re.search(r"/(work|home|tmp|root)/|127\.0\.0\.1", " ".join(row.values())), name
        if row["outcome"] == "done":
            assert float(row["peak_gb"]) > 0
            assert _cost(row) != "time not measured"


def ids_of(page):
    fetched = [model["id"] for model in rehearse.plan_of([page], repositories.TRUE).fetches]
    return [item for item in fetched if repositories.bare(item) in repositories.table()]


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
