"""Opening and reading local checkpoints; tensors that transformers wrote are the reference."""

import hashlib
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coded
import numpy as np
import peft
import pytest
import same_content
import tiny_models
import torch
import transformers
from safetensors.torch import load_file, save_file

from provlab import compare, files
from provlab.engine import jobs
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.reference import Reference
from provlab.engine.store import Store
from provlab.errors import CheckpointError
from provlab.reading import checkpoint as checkpoint_module
from provlab.reading import local
from provlab.reading.checkpoint import Checkpoint, identical, register_scheme
from provlab.reading.counting import counting
from provlab.reading.files import dtypes
from provlab.report.comparison import Comparison
from provlab.report.decide import EQUAL, IDENTICAL
from provlab.report.described import described
from provlab.statistics.options import Options


def test_reads_what_was_written(llama):
    checkpoint = Checkpoint.open(llama)
    written = load_file(llama / "model.safetensors")
    assert checkpoint.tensor_names == tuple(sorted(written))
    for name, tensor in written.items():
        assert torch.equal(checkpoint.tensor(name), tensor)
        assert checkpoint.shape(name) == tuple(tensor.shape)
        assert checkpoint.dtype(name) == "float32"
    assert checkpoint.architecture == "LlamaForCausalLM"
    assert checkpoint.config["hidden_size"] == tiny_models.WIDTH
    assert (checkpoint.source, checkpoint.name, checkpoint.commit) == (str(llama), "llama", None)
    assert checkpoint.folder() == llama
    assert repr(checkpoint) == f"Checkpoint('{llama}')"


def test_every_byte_of_float8_is_read_as_torch_reads_it(tmp_path):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        codes = torch.arange(256, dtype=torch.uint8)
        finite = codes[torch.isfinite(codes.view(dtype).float())]
        numbers = dtypes.values(finite.numpy(), str(dtype).removeprefix("torch."))
        assert np.array_equal(numbers, finite.view(dtype).float())
        lost = codes[~torch.isfinite(codes.view(dtype).float())]
        assert not np.isfinite(dtypes.values(lost.numpy(), str(dtype).removeprefix("torch."))).any()


def test_arrays_are_float32_whatever_the_file_holds(tmp_path):
    """Several dtypes in one file: each tensor begins where the one before it ends. The reference is torch's cast."""
    values = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    kinds = [
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    ]
    tensors = {str(kind): (10 * values.abs()).to(kind)[: i + 1] for i, kind in enumerate(kinds)}
    tensors |= {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file(tensors, folder / "model.safetensors")
    checkpoint = Checkpoint.open(folder)
    for name, tensor in tensors.items():
        assert checkpoint.tensor(name).dtype == tensor.dtype
        assert checkpoint.dtype(name) == str(tensor.dtype).removeprefix("torch.")
        assert torch.equal(checkpoint.tensor(name).double(), tensor.double()), name
        numbers = checkpoint.array(name)
        assert numbers.dtype == np.float32
        assert np.array_equal(numbers, tensor.float()), name


def test_models_are_loaded_one_at_a_time(llama, monkeypatch):
    """Two loads at once leave transformers' `tie_weights` replaced by nothing, for the rest of the process."""
    at_once, most = [], []
    load = transformers.LlamaForCausalLM.from_pretrained

    def watched(*arguments, **settings):
        at_once.append(1)
        time.sleep(0.05)
        most.append(len(at_once))
        at_once.pop()
        return load(*arguments, **settings)

    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", watched)
    before = transformers.PreTrainedModel.tie_weights
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: Checkpoint.open(llama).load_model(), range(4)))
    assert most == [1, 1, 1, 1]
    assert transformers.PreTrainedModel.tie_weights is before


def test_one_tensor_does_not_read_the_others(sharded, monkeypatch):
    checkpoint = Checkpoint.open(sharded)
    read = []

    def watched(path, dtype, count, **settings):
        read.append((Path(path).name, count))
        return fromfile(path, dtype, count, **settings)

    fromfile = np.fromfile
    monkeypatch.setattr(np, "fromfile", watched)
    checkpoint.tensor("model.norm.weight")
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    assert read == [(index["weight_map"]["model.norm.weight"], 4 * tiny_models.WIDTH)]


def test_source_may_be_relative_or_below_home(llama, monkeypatch):
    monkeypatch.chdir(llama.parent)
    monkeypatch.setenv("HOME", str(llama.parent))
    for source in ("llama", "./llama", "~/llama", Path("llama")):
        assert Checkpoint.open(source).source == str(llama)


def test_files_and_digest(llama):
    checkpoint = Checkpoint.open(llama)
    files = checkpoint.files()
    assert list(files) == ["config.json", "model.safetensors"]
    lines = ""
    for name, entry in files.items():
        content = (llama / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        lines += f"{name} {entry['sha256']}\n"
    assert checkpoint.digest == hashlib.sha256(lines.encode()).hexdigest()


def test_digest_depends_on_weights_and_config_only(llama, tmp_path):
    digest = Checkpoint.open(llama).digest
    twin = tiny_models.copy(llama, tmp_path / "other name")
    (twin / "generation_config.json").unlink()
    assert Checkpoint.open(twin).digest == digest
    tiny_models.rewrite(twin, lambda tensors: tensors["model.norm.weight"].mul_(1.001))
    assert Checkpoint.open(twin).digest != digest


def test_hash_of_a_big_file_is_remembered_until_it_changes(tmp_path, monkeypatch):
    big = tmp_path / "big"
    big.write_bytes(b"a" * (1 << 20))
    calls = []
    real = local.sha256_of_parts
    monkeypatch.setattr(local, "sha256_of_parts", lambda path, parts: calls.append(path) or real(path, parts))
    first = local.remembered_sha256(big)
    assert local.remembered_sha256(big) == first
    assert len(calls) == 2  # too young to be remembered: it might change within a tick of the clock
    monkeypatch.setattr(local, "_SETTLED_SECONDS", -1.0)
    os.utime(big, (1, 1))
    for _ in range(2):
        assert local.remembered_sha256(big) == first
    assert len(calls) == 3
    big.write_bytes(b"b" * (1 << 20))
    os.utime(big, (1, 1))  # as an archive does that is unpacked over it
    assert local.remembered_sha256(big) == hashlib.sha256(b"b" * (1 << 20)).hexdigest()
    for sidecar in (tmp_path / "provlab-cache" / "hashes").iterdir():
        sidecar.write_text("{")  # damaged: computed again
    assert local.remembered_sha256(big) == hashlib.sha256(b"b" * (1 << 20)).hexdigest()
    monkeypatch.setenv("PROVLAB_CACHE", str(big))  # a cache that cannot be written costs time alone
    assert local.remembered_sha256(big) == hashlib.sha256(b"b" * (1 << 20)).hexdigest()


def test_files_are_read_again_before_two_models_are_called_identical(llama, tmp_path, monkeypatch):
    twin, other = (shutil.copytree(llama, tmp_path / name) for name in ("twin", "other"))
    tiny_models.rewrite(other, lambda tensors: tensors["model.norm.weight"].mul_(1.001))
    opened = lambda *folders: map(Checkpoint.open, (llama, *folders))  # noqa: E731
    assert checkpoint_module.identical(opened(twin))
    assert not checkpoint_module.identical(opened(other))
    monkeypatch.setattr(local, "remembered_sha256", lambda path: "0" * 64)  # a memory that is wrong
    with pytest.raises(CheckpointError, match="changed unseen since it was hashed; delete"):
        checkpoint_module.identical(opened(other))


def test_snapshot_in_the_cache_of_the_hub_may_link_to_its_blobs(llama, tmp_path):
    repo = tmp_path / "hub" / "models--org--name"
    snapshot, blobs = repo / "snapshots" / ("0" * 40), repo / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in llama.iterdir():
        path.rename(blobs / f"blob-{path.name}")
        (snapshot / path.name).symlink_to(f"../../blobs/blob-{path.name}")
    assert Checkpoint.open(snapshot).tensor("model.norm.weight").shape == (tiny_models.WIDTH,)
    for source in (snapshot, repo, f"{repo}/"):
        assert (Checkpoint.open(source).name, Checkpoint.open(source).source) == ("name", str(snapshot))
    shutil.copytree(snapshot, repo / "snapshots" / ("1" * 40))
    with pytest.raises(CheckpointError, match="holds 2 snapshots and does not say which is main; give one"):
        Checkpoint.open(repo)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("1" * 40)
    assert Checkpoint.open(repo).source == str(repo / "snapshots" / ("1" * 40))


def test_schemes(llama, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "_schemes", {})
    register_scheme("farm", lambda name: llama.parent / name)
    register_scheme("farm", lambda name: llama.parent / name)  # again, as a reloaded notebook does
    checkpoint = Checkpoint.open("farm:llama")
    assert (checkpoint.source, checkpoint.name) == ("farm:llama", "llama")
    with pytest.raises(CheckpointError, match=r"unknown scheme 'barn'; known are .*farm:NAME"):
        Checkpoint.open("barn:llama")
    permissions = []
    register_scheme("shop", lambda name, *, allow_pickle: permissions.append(allow_pickle) or llama.parent / name)
    Checkpoint.open("shop:llama", allow_pickle=True)  # what it opens itself may be pickled
    assert permissions == [True]


def test_loading_prints_nothing_and_leaves_transformers_talkative(llama, capfd):
    log = transformers.utils.logging
    before = log.get_verbosity(), log.is_progress_bar_enabled()
    Checkpoint.open(llama).load_model()
    assert capfd.readouterr() == ("", "")
    assert (log.get_verbosity(), log.is_progress_bar_enabled()) == before


def test_auto_map_to_classes_of_transformers_is_harmless(llama):
    """Phi-3 on the hub carries such entries; transformers' own class is used and nothing else is run."""
    auto_map = {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}
    tiny_models.edit_json(llama / "config.json", lambda config: config.update(auto_map=auto_map))
    (llama / "modeling_llama.py").write_text("raise SystemExit('code of the checkpoint was run')")
    checkpoint = Checkpoint.open(llama)
    assert type(checkpoint.load_model()) is transformers.LlamaForCausalLM
    (note,) = checkpoint.notes
    assert "llama may be another model: the code that its config.json names (auto_map), not obeyed here" in note


def test_safetensors_is_preferred_to_pickle_and_a_pickle_of_other_numbers_is_named(llama, tiny):
    """By the archive's checksums alone: nothing of it is loaded."""
    pickled = llama / "pytorch_model.bin"
    written = load_file(llama / "model.safetensors")
    others = {name: tensor * 1.001 for name, tensor in written.items()}
    halves = {name: tensor.half() for name, tensor in others.items()}  # which says nothing of the numbers
    for content, rival in ((b"no pickle", ""), (written, ""), (halves, ""), (others, "pytorch_model.bin")):
        pickled.write_bytes(content) if content == b"no pickle" else torch.save(content, pickled)
        checkpoint = Checkpoint.open(llama, allow_pickle=True)
        assert checkpoint.files().keys() == {"config.json", "model.safetensors"}
        assert checkpoint.rival == rival
    text = compare(llama, tiny("llama_base"), statistics=["phi_u"], progress=False).verdict()
    assert f"Beside the weights of {llama} that were read lies pytorch_model.bin, which holds other numbers." in text


def test_several_threads_read_from_shards_what_is_in_one_file(llama, sharded):
    assert len(list(sharded.glob("*.safetensors"))) > 2
    whole, shards = Checkpoint.open(llama), Checkpoint.open(sharded)
    assert shards.tensor_names == whole.tensor_names
    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            read = threads.map(shards.tensor, shards.tensor_names)
            assert all(map(torch.equal, read, map(whole.tensor, whole.tensor_names)))


@pytest.mark.parametrize("shard", ["5GB", "10KB"])
def test_a_variant_alone_is_read(llama, tmp_path, shard):
    model = transformers.LlamaForCausalLM.from_pretrained(llama)
    model.save_pretrained(tmp_path / "half", variant="fp16", max_shard_size=shard)
    half, full = Checkpoint.open(tmp_path / "half"), Checkpoint.open(llama)
    assert all("fp16" in name for name in half.files() if name != "config.json")
    assert all(torch.equal(half.tensor(name), full.tensor(name)) for name in full.tensor_names)
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(half.load_model()(tokens).logits, full.load_model()(tokens).logits)


def test_tokenizer(llama):
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(llama)
    checkpoint = Checkpoint.open(llama)
    assert checkpoint.tokenizer()("b")["input_ids"] == [1]
    beside = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    assert [path.name for path in checkpoint.side_files()] == beside


@pytest.mark.parametrize("label", sorted(tiny_models.TINY))
def test_the_model_that_runs_holds_the_tensors_that_are_read(tiny, label):
    checkpoint, original = Checkpoint.open(tiny(label)), tiny_models.build(label).double()
    model = checkpoint.load_model(dtype=torch.float64)
    assert (type(model), model.training) == (type(original), False)
    running = model.state_dict()
    for name, value in original.state_dict().items():
        assert torch.equal(running[name], value), name
    for name in checkpoint.tensor_names if label != "mixtral" else ():  # whose experts transformers stacks
        held = running[name.replace("embed_out.", "lm_head.")]  # GPT-NeoX's head
        assert torch.equal(held, checkpoint.tensor(name).double()), name


def _adapt(folder):
    """Put an adapter beside the weights that changes every up projection."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["up_proj"], init_lora_weights=False))
    adapted.save_pretrained(folder)


def _name_another_file(folder):
    """Let the config name a file of other weights."""
    other = folder / "other.safetensors"
    shutil.copy(folder / "model.safetensors", other)
    tensors = load_file(other)
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, other, metadata={"format": "pt"})
    tiny_models.edit_json(folder / "config.json", lambda config: config.update(transformers_weights=other.name))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # by peft
@pytest.mark.parametrize("plant", [_adapt, _name_another_file])
def test_nothing_beside_the_hashed_files_decides_which_model_runs(llama, tmp_path, plant):
    folder = tiny_models.copy(llama, tmp_path / "planted")
    plant(folder)
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        theirs = transformers.LlamaForCausalLM.from_pretrained(folder)(tokens).logits
        ours = Checkpoint.open(folder).load_model()(tokens).logits
        honest = Checkpoint.open(llama).load_model()(tokens).logits
    assert not torch.equal(theirs, honest)  # a plain load of the folder has the fault
    assert torch.equal(ours, honest)
    assert Checkpoint.open(llama).notes == ()
    warning = "Loaded by transformers, planted may be another model"
    assert any(note.startswith(warning) for note in Checkpoint.open(folder).notes)
    result = compare(llama, folder, statistics=["phi_u"], progress=False)
    assert result.outcome in (IDENTICAL, EQUAL)
    assert warning in result.verdict()
    assert f"The two models are {result.outcome}" in result.verdict()


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "spm.model", "sentencepiece.bpe.model", "bpe.codes", "source.spm", "target.spm", "tekken.json",
     "tiktoken.model", "qwen.tiktoken", "dict.txt", "vocab.json", "word_shape.json"],
)  # fmt: skip
def test_each_file_that_a_tokenizer_is_made_from_decides_its_digest(llama, tmp_path, name):
    folder = shutil.copytree(llama, tmp_path / "model")
    digests = {Checkpoint.open(folder).tokenizer_digest}
    for content in ("{}", "{ }"):
        (folder / name).write_text(content)
        digests.add(Checkpoint.open(folder).tokenizer_digest)
    assert len(digests) == 3


def test_of_what_is_read_in_part_no_large_file_is_hashed(models, tmp_path, monkeypatch):
    """Weights that change are other weights to the store; the whole model has its digest as before."""
    monkeypatch.setattr(local, "_SMALL", 0)
    base, store = shutil.copytree(models["base"], tmp_path / "base"), Store(tmp_path / "results")
    size = (base / "model.safetensors").stat().st_size

    def compared(in_part):
        with counting() as count:
            opened = open_models([str(base), models["tuned"]], in_part=in_part)
            records = tuple(run_pairs(opened, ["phi_u"], Options(), store=store, progress=False))
            result = Comparison(described(opened.models), records, Options())
        return count.hashed, result

    hashed, some = compared(True)
    assert hashed == 0
    assert [model["not_verified"] for model in some.models] == [["config.json", "model.safetensors"]] * 2
    assert some.models[0]["files"]["model.safetensors"] == {"sha256": None, "size": size}
    assert f"Files of {base}, {models['tuned']} were read in part, and their SHA-256 was not" in some.verdict()
    assert compared(True)[1].records[0].keys == some.records[0].keys
    tiny_models.rewrite(base, lambda tensors: tensors["model.norm.weight"].mul_(1.001))
    assert set(compared(True)[1].records[0].keys).isdisjoint(some.records[0].keys)
    hashed, whole = compared(False)
    assert hashed > 2 * size
    assert whole.models[0]["digest"] == Checkpoint.open(base).digest
    reference = Reference(str(base), some.models[1]["digest"], in_part=True)
    with pytest.raises(CheckpointError, match="holds other weights"):  # of a worker, which opens it likewise
        jobs._opened(reference)


@pytest.mark.parametrize("way", same_content.WAYS)
def test_the_same_tensors_in_other_files_have_one_content(way, tiny, tmp_path):
    first = Checkpoint.open(tiny("llama"))
    path = tiny_models.copy(tiny("llama"), tmp_path / "b")
    same_content.WAYS[way](path)
    other = Checkpoint.open(path)
    assert other.digest != first.digest
    assert other.content == first.content
    assert not identical([first, other])


@pytest.mark.parametrize("change", ["a number", "a name", "a shape", "a dtype"])
def test_any_change_of_a_tensor_changes_the_content(change, tiny, tmp_path):
    def changed(tensors):
        head = tensors.pop("lm_head.weight")
        if change == "a number":
            head[3, 5] += 1e-3
        tensors["head.weight" if change == "a name" else "lm_head.weight"] = {
            "a shape": head.T.contiguous(), "a dtype": head.view(torch.int32)
        }.get(change, head)  # fmt: skip

    path = tiny_models.copy(tiny("llama"), tmp_path / "b")
    tiny_models.rewrite(path, changed)
    assert Checkpoint.open(path).content not in (None, Checkpoint.open(tiny("llama")).content)


def test_what_says_how_codes_are_read_is_part_of_the_content(tiny, tmp_path):
    """The same words under two labels are two models: each weight differs by a step."""
    label = "checkpoint_format"
    reference = coded.references()["GPTQ 4 bits gptq"]

    def stored(tensors):
        del tensors[f"{coded.MODULE}.weight"]
        for name, (dtype, shape, content) in reference.named().items():
            kind = {"I32": torch.int32, "F16": torch.float16}.get(dtype) or getattr(torch, dtype)
            tensors[name] = torch.frombuffer(bytearray(content), dtype=kind).reshape(shape)

    contents, numbers = [], []
    for name, change in (("a", {}), ("b", {label: "gptq_v2"}), ("c", {}), ("d", {"damp_percent": float("nan")})):
        path = tiny_models.copy(tiny("llama"), tmp_path / name)
        tiny_models.rewrite(path, stored)
        config = {key: value | change for key, value in reference.config.items()}
        config |= {"use_cache": name != "c"}  # has no part in it
        tiny_models.edit_json(path / "config.json", lambda content, config=config: content.update(config))
        checkpoint = Checkpoint.open(path)
        contents.append(checkpoint.content)
        numbers.append(checkpoint.array(f"{coded.MODULE}.weight"))
    assert not np.allclose(numbers[0], numbers[1])
    np.testing.assert_array_equal(numbers[0], numbers[2])
    assert contents[0] == contents[2] != contents[1]
    assert contents[3] not in (None, *contents[:3])


def test_files_and_tensors_are_hashed_in_one_reading(tiny, tmp_path, monkeypatch):
    """References: hashlib over the whole file, and over the bytes of each tensor."""
    monkeypatch.setattr(files, "_CHUNK", 1000)  # tensors begin and end anywhere in a piece
    path = tiny_models.copy(tiny("llama"), tmp_path / "b") / "model.safetensors"
    with counting() as count:
        hashes = local.hashed(path)
    assert count.hashed == path.stat().st_size
    assert hashes.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    tensors = {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()}
    assert hashes.tensors == {name: hashlib.sha256(content).hexdigest() for name, content in tensors.items()}


def test_a_file_that_is_no_safetensors_has_no_content(tmp_path):
    for content in (b"", b"abc", b"\xff" * 20, (2).to_bytes(8, "little") + b"[]", (2).to_bytes(8, "little") + b"{}"):
        path = tmp_path / "x"
        path.write_bytes(content)
        assert local.hashed(path) == (hashlib.sha256(content).hexdigest(), {} if content.endswith(b"{}") else None)
