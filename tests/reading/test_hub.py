"""The hub, played by a local server that logs what is asked of it."""

import json
import shutil
import threading
from pathlib import Path

import pytest
import tiny_models
import torch
from hub_server import COMMIT, HubServer, Repo
from huggingface_hub import hf_hub_download
from safetensors.torch import load_file, save_file

import provlab
from provlab.engine.store import Store
from provlab.errors import CheckpointError
from provlab.files import cache_dir
from provlab.planning.sketch import shapes_of
from provlab.planning.study import plan
from provlab.reading import anatomy, hub
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.options import Options


def test_resolves_to_a_commit_and_reads_one_shard(serve, sharded):
    server = serve(org__name=Repo(sharded))
    checkpoint = Checkpoint.open("org/name")
    assert checkpoint.commit == COMMIT
    assert (checkpoint.source, checkpoint.name) == ("org/name", "name")
    assert checkpoint.architecture == "LlamaForCausalLM"
    assert server.fetched() == ["config.json", "model.safetensors.index.json"]
    local = Checkpoint.open(sharded)
    assert checkpoint.tensor_names == local.tensor_names
    assert (checkpoint.files(), checkpoint.digest) == (local.files(), local.digest)
    assert torch.equal(checkpoint.tensor("lm_head.weight"), local.tensor("lm_head.weight"))
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    assert server.fetched()[2:] == [index["weight_map"]["lm_head.weight"]]
    # everything is asked of the commit, so that a push in between cannot mix two versions
    assert all(f"/resolve/{COMMIT}/" in path for _, path, _ in server.log if "/resolve/" in path)


def test_what_is_still_to_be_fetched_is_known(serve, sharded):
    """All shards at first; once a tensor is read, all but its own."""
    server = serve(org__name=Repo(sharded))
    checkpoint, local = Checkpoint.open("org/name"), Checkpoint.open(sharded)
    shards = {name: (sharded / name).stat().st_size for name in local.files() if name.endswith(".safetensors")}
    assert local.bytes_to_fetch() == 0
    assert checkpoint.bytes_to_fetch() == sum(shards.values())
    checkpoint.tensor("lm_head.weight")
    fetched = [name for name in server.fetched() if name in shards]
    assert checkpoint.bytes_to_fetch() == sum(shards.values()) - shards[fetched[0]]
    assert len(fetched) == 1


@pytest.mark.parametrize("ignores_range", [False, True])
def test_shapes_come_from_headers_alone(serve, llama, ignores_range):
    server = serve(org__name=Repo(llama, ignores_range=ignores_range))
    checkpoint, local = Checkpoint.open("org/name"), Checkpoint.open(llama)
    layout = anatomy.of(checkpoint)
    assert [part.shape for part in layout.parts] == [local.shape(part.name) for part in layout.parts]
    assert checkpoint.dtype("lm_head.weight") == "float32"
    assert server.fetched() == ["config.json"]
    assert not list((hub.hub_cache() / "models--org--name" / "blobs").glob("?" * 64))


def test_long_header_is_fetched_in_two_pieces(serve, tmp_path):
    """A header beyond the first 100,000 bytes."""
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["X"]}')
    save_file({f"a.tensor.with.a.long.name.{i}": torch.zeros(1) for i in range(2000)}, folder / "model.safetensors")
    server = serve(org__many=Repo(folder))
    checkpoint = Checkpoint.open("org/many")
    assert len(checkpoint.tensor_names) == 2000
    assert len([entry for entry in server.log if entry[2]]) == 2


def test_a_server_that_ignores_ranges_is_not_read_to_the_end(serve, tmp_path):
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "config.json").write_text("{}")
    save_file({"a": torch.zeros(15_000_000)}, tmp_path / "big" / "model.safetensors")
    server = serve(org__big=Repo(tmp_path / "big", ignores_range=True))
    assert Checkpoint.open("org/big").shape("a") == (15_000_000,)
    server.stop()
    assert server.n_bytes_sent < 30_000_000  # of 60 million; the sockets' buffers are never read


def test_remote_header_is_checked_as_a_local_one(serve, llama):
    """Offsets that do not cover the file: huggingface_hub's own parser of remote headers accepts them."""
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[-4,4]}}'
    (llama / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    serve(org__name=Repo(llama))
    with pytest.raises(CheckpointError, match="truncated or corrupt"):
        _ = Checkpoint.open("org/name").tensor_names


def test_second_opening_works_without_the_server(serve, sharded):
    server = serve(org__name=Repo(sharded, revisions=("main", "v1")))
    for source in ("org/name", "org/name@v1", f"org/name@{COMMIT}"):
        Checkpoint.open(source).tensor("lm_head.weight")
    digest = Checkpoint.open("org/name").digest
    server.stop()
    for source in ("org/name", "org/name@v1", f"org/name@{COMMIT}"):
        checkpoint = Checkpoint.open(source)
        assert checkpoint.commit == COMMIT
        assert checkpoint.name == f"name{source.removeprefix('org/name')}"[:12]  # a commit's begins alone
        assert checkpoint.tensor("lm_head.weight").shape == (tiny_models.VOCABULARY, tiny_models.WIDTH)
        assert checkpoint.digest == digest
    with pytest.raises(CheckpointError, match=r"is not in the cache .* cannot be fetched .*; connect"):
        checkpoint.tensor("model.layers.0.mlp.up_proj.weight")


def test_offline_asks_nobody(serve, llama, monkeypatch):
    server = serve(org__name=Repo(llama))
    Checkpoint.open("org/name").folder()
    server.log.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checkpoint = Checkpoint.open("org/name")
    assert torch.equal(checkpoint.tensor("lm_head.weight"), Checkpoint.open(llama).tensor("lm_head.weight"))
    assert checkpoint.load_model().config.hidden_size == tiny_models.WIDTH
    assert server.log == []
    with pytest.raises(CheckpointError, match=r"org/other .*HF_HUB_OFFLINE is set.* not in the cache"):
        Checkpoint.open("org/other")


def test_cache_filled_by_others_serves_offline(serve, llama):
    """A cache that only huggingface_hub wrote: the blobs' names give the hashes."""
    server = serve(org__name=Repo(llama))
    for name in ("config.json", "model.safetensors"):
        hf_hub_download("org/name", name, cache_dir=hub.hub_cache(), endpoint=server.endpoint)
    server.stop()
    checkpoint = Checkpoint.open("org/name")
    assert checkpoint.digest == Checkpoint.open(llama).digest
    assert checkpoint.commit == COMMIT


def test_whole_folder_has_no_code(serve, llama, tmp_path):
    (llama / "modeling_evil.py").write_text("raise SystemExit")
    for name in ("pytorch_model.bin", "notes.txt", "all_results.json", "pytorch_model.bin.index.json"):
        (llama / name).write_bytes(b"x")
    server = serve(org__name=Repo(llama))
    folder = Checkpoint.open("org/name").folder()
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "generation_config.json", "model.safetensors"]
    assert "modeling_evil.py" not in server.fetched()
    assert folder.is_relative_to(tmp_path / "hf-home" / "hub")  # not in the user's own cache
    assert Checkpoint.open("org/name").load_model().config.hidden_size == tiny_models.WIDTH


@pytest.mark.parametrize("in_part", [False, True])
def test_a_folder_within_a_repository(serve, llama, tmp_path, in_part, request):
    if in_part:
        request.getfixturevalue("large")
    repo = tmp_path / "repo"
    tiny_models.save("llama", repo, seed=7)
    tiny_models.copy(llama, repo / "final" / "best")
    server = serve(org__name=Repo(repo))
    local = Checkpoint.open(llama)
    checkpoint = Checkpoint.open("org/name/final/best")
    assert (checkpoint.name, checkpoint.digest) == ("best", local.digest)
    assert torch.equal(checkpoint.tensor("lm_head.weight"), local.tensor("lm_head.weight"))
    assert Checkpoint.open("org/name").digest != local.digest
    checkpoint.folder()
    server.stop()
    assert torch.equal(Checkpoint.open("org/name/final/best").tensor("lm_head.weight"), local.tensor("lm_head.weight"))
    with pytest.raises(CheckpointError, match="org/name/other is no folder here, cannot be asked"):
        Checkpoint.open("org/name/other")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_damaged_download_is_refused_and_removed(serve, llama, file):
    server = serve(org__name=Repo(llama, corrupt={file}))
    with pytest.raises(CheckpointError, match=rf"org/name: {file} arrived damaged .*; try again"):
        Checkpoint.open("org/name").tensor("lm_head.weight")
    server.repos["org/name"].corrupt.clear()
    assert Checkpoint.open("org/name").tensor("lm_head.weight").shape == (50, 24)


def test_damage_in_the_cache_is_found(serve, llama):
    serve(org__name=Repo(llama))
    path = Checkpoint.open("org/name").folder() / "model.safetensors"
    content = path.read_bytes()
    path.resolve().write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged in the cache .*; delete "):
        Checkpoint.open("org/name").tensor("lm_head.weight")


def test_gated(serve, llama, monkeypatch):
    serve(org__name=Repo(llama, gated=True, token="good"))
    with pytest.raises(CheckpointError, match=r"org/name is gated: accept its licence .* set HF_TOKEN"):
        Checkpoint.open("org/name")
    monkeypatch.setenv("HF_TOKEN", "bad")
    with pytest.raises(CheckpointError, match=r"org/name is gated"):
        Checkpoint.open("org/name")
    monkeypatch.setenv("HF_TOKEN", "good")
    assert Checkpoint.open("org/name").tensor("lm_head.weight").shape == (50, 24)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("org/unknown", r"org/unknown is neither a folder here nor a model on http://127"),
        ("unknown", r"unknown is neither a folder here nor a model"),
        ("org/name@v9", r"org/name@v9: the repository has no such revision"),
    ],
)
def test_unknown(serve, llama, source, message):
    serve(org__name=Repo(llama))
    with pytest.raises(CheckpointError, match=message) as refusal:
        Checkpoint.open(source)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("org/name/", "org/name"),
        ("https://huggingface.co/org/name", "org/name"),
        ("http://www.huggingface.co/org/name/?library=transformers#files", "org/name"),
        ("huggingface.co/org/name/tree/main", "org/name"),
        ("hf.co/org/name/tree/v1/", "org/name@v1"),
        ("https://huggingface.co/org/name/blob/refs%2Fpr%2F1/model.safetensors", "org/name@refs/pr/1"),
        ("https://huggingface.co/org/name/resolve/v1/config.json?download=true", "org/name@v1"),
        ("hf://org/name@v1", "org/name@v1"),
        ("hf://models/org/name", "org/name"),
        ("https://huggingface.co/org/name/tree/main/a/b", "org/name/a/b"),
        ("https://huggingface.co/org/name/blob/v1/a/b/config.json", "org/name/a/b@v1"),
        ("https://huggingface.co/gpt2/tree/main", "gpt2"),
    ],
)
def test_addresses_of_pages_are_names(serve, llama, address, source):
    repo = Repo(llama, revisions=("main", "v1", "refs/pr/1"))
    tiny_models.copy(llama, llama / "a" / "b")
    serve(org__name=repo, gpt2=repo)
    assert Checkpoint.open(address).source == source
    assert "/" not in Checkpoint.open(address).name.partition("@")[0]


@pytest.mark.parametrize("address", ["https://huggingface.co/datasets/org/name", "https://example.org/org/name"])
def test_addresses_of_other_pages_are_refused(address):
    with pytest.raises(CheckpointError, match="a hub id is written org/name"):
        Checkpoint.open(address)


def requested(server: HubServer) -> list[tuple[int, int]]:
    """Pieces that were asked for: first byte and length."""
    spans = [span.removeprefix("bytes=").split("-") for method, _, span in server.log if method == "GET" and span]
    return sorted((int(first), int(last) - int(first) + 1) for first, last in spans)


def test_of_a_large_file_one_tensor_is_fetched(serve, llama, large):
    """Header and tensor, byte for byte, once on this machine; the record names the file that was not verified."""
    server = serve(org__name=Repo(llama))
    checkpoint, local = Checkpoint.open("org/name"), Checkpoint.open(llama)
    info = local._weights.info("lm_head.weight")
    assert torch.equal(checkpoint.tensor("lm_head.weight"), local.tensor("lm_head.weight"))
    header = [place for place in requested(server) if place[0] < info.start]
    tensor = [place for place in requested(server) if place[0] >= info.start]
    assert sum(length for _, length in tensor) == info.nbytes
    assert tensor[0] == (info.start, 1000)
    beginning = int.from_bytes((llama / "model.safetensors").read_bytes()[:8], "little") + 8
    assert sum(length for _, length in header) == 8 + beginning
    assert "model.safetensors" not in server.fetched()
    assert (checkpoint.unverified, local.unverified) == (["model.safetensors"], [])
    n = len(server.log)
    assert torch.equal(checkpoint.tensor("lm_head.weight"), local.tensor("lm_head.weight"))
    assert len(server.log) == n
    server.stop()
    assert torch.equal(Checkpoint.open("org/name").tensor("lm_head.weight"), local.tensor("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"is not in the cache .* cannot be fetched .*; connect"):
        checkpoint.tensor("model.norm.weight")


def test_a_pickle_is_fetched_whole_once_its_tensors_are_needed(serve, llama, large):
    tensors = load_file(llama / "model.safetensors")
    (llama / "model.safetensors").unlink()
    torch.save(tensors, llama / "pytorch_model.bin")
    server = serve(org__name=Repo(llama))
    checkpoint = Checkpoint.open("org/name", allow_pickle=True)
    size = (llama / "pytorch_model.bin").stat().st_size
    assert checkpoint.bytes_to_fetch() == size
    sketch = shapes_of(["org/name", "shape:llama-2-7b"], allow_pickle=True)
    assert sketch.to_fetch["org/name"] == size
    assert plan(sketch.models, ["phi_u"], Options(), blocks=[1]).to_fetch(sketch)["org/name"] == size
    assert not any(path.endswith(".bin") for _, path, _ in server.log)
    assert torch.equal(checkpoint.tensor("lm_head.weight"), tensors["lm_head.weight"])
    assert (checkpoint.bytes_to_fetch(), checkpoint.unverified) == (0, [])


def test_a_model_that_is_run_is_verified_and_its_pieces_go(serve, llama, large):
    serve(org__name=Repo(llama))
    checkpoint = Checkpoint.open("org/name")
    checkpoint.tensor("lm_head.weight")
    pieces = [path for path in (cache_dir() / "hub").rglob("*-1000") if path.is_file()]
    assert pieces
    checkpoint.folder()
    assert checkpoint.unverified == []
    assert not any(piece.exists() for piece in pieces)


def test_a_server_without_ranges_sends_the_file(serve, llama, large):
    server = serve(org__name=Repo(llama, ignores_range=True))
    checkpoint = Checkpoint.open("org/name")
    assert torch.equal(checkpoint.tensor("lm_head.weight"), Checkpoint.open(llama).tensor("lm_head.weight"))
    assert server.fetched()[-1] == "model.safetensors"
    assert checkpoint.unverified == []


def test_what_was_read_in_part_is_not_kept_for_the_verified_model(serve, models, large, tmp_path):
    """Bytes damaged on the way are in no record of the whole model, which is read again once it is here."""
    folder = tmp_path / "base"
    shutil.copytree(models["base"], folder)
    repo = Repo(folder, corrupt={"model.safetensors"})
    serve(org__base=repo)

    def compare():
        store = Store(tmp_path / "results")
        comparison = provlab.compare("org/base", models["tuned"], statistics=["phi_u"], store=store, progress=False)
        return comparison, {key for record in comparison.records for key in record.keys}

    part, kept = compare()
    assert "Tensors of org/base were fetched one by one" in part.verdict()
    assert [model["not_verified"] for model in part.models] == [["model.safetensors"], []]
    repo.corrupt.clear()
    Checkpoint.open("org/base").folder()
    whole, others = compare()
    assert [model["not_verified"] for model in whole.models] == [[], []]
    assert kept.isdisjoint(others)


def test_of_one_block_its_rows_alone_are_fetched(serve, models, large):
    """As planned before: rows of the one block, byte for byte, the header, and nothing else of the file."""
    server = serve(org__base=Repo(Path(models["base"])))
    options = Options()
    sketch = shapes_of(["org/base", models["tuned"]])
    laid = plan(sketch.models, ["phi_u"], options, blocks=[1])
    assert laid.to_fetch(sketch) == {"org/base": 48 * 24 * 4, models["tuned"]: 0}
    server.log.clear()
    settings = {"statistics": ["phi_u"], "blocks": [1]}
    comparison = provlab.compare("org/base", models["tuned"], progress=False, **settings)
    whole = Checkpoint.open(models["base"])
    start = whole._weights.info("model.layers.1.mlp.up_proj.weight").start
    pieces = sorted(place for place in requested(server) if place[0] >= start)
    assert [first for first, _ in pieces] == list(range(start, start + 48 * 24 * 4, 1000))
    assert sum(size for _, size in pieces) == 48 * 24 * 4
    assert comparison.records[0].outcome.blocks[0].detail.n == 48
    run = plan(sketch.models, ["phi_h"], options, blocks=[1])
    assert run.to_fetch(sketch)["org/base"] == (Path(models["base"]) / "model.safetensors").stat().st_size


def test_access_is_asked_for_without_fetching(serve, sharded, monkeypatch):
    server = serve(org__open=Repo(sharded), org__gated=Repo(sharded, gated=True, token="hf_mine"))
    with pytest.raises(CheckpointError, match=r"^org/gated is gated: accept its licence .* set HF_TOKEN to your t"):
        hub.check_access(["org/open", "org/gated"])
    with pytest.raises(CheckpointError, match=r"^org/none is neither a folder here nor a model on "):
        hub.check_access(["org/none"])
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    hub.check_access(["org/open", "org/gated"])
    assert server.fetched() == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.check_access(["org/none"])  # the cache may have it


def test_headers_of_shards_are_asked_for_side_by_side(serve, sharded):
    """Each answer waits until all have been asked; one after the other would wait for ever."""
    n = len(list(sharded.glob("*.safetensors")))
    assert n > 1
    together = threading.Barrier(min(n, hub._AT_ONCE), timeout=20)

    def late(request, path):
        if path.endswith(".safetensors"):
            together.wait()
        return False

    server = serve(org__name=Repo(sharded))
    server.trouble = late
    model = anatomy.of(Checkpoint.open("org/name"))
    assert model.n_blocks == anatomy.of(Checkpoint.open(sharded)).n_blocks
    assert sum(path.endswith(".safetensors") for _, path, _ in server.log) == 2 * n  # of these small ones in two parts
