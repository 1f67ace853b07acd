"""Bad checkpoints: each is refused with the right error, in one line that names the thing at fault."""

import json
import pickle

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from provlab.errors import CheckpointError, InvalidWeightsError, ProvlabError
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint

NAME = "model.layers.1.mlp.up_proj.weight"
INDEX = "model.safetensors.index.json"


class Evil:
    """A pickle that would run a command."""

    def __reduce__(self):
        return (print, ("this must never be printed",))


def _write(file, content):
    return lambda folder: (folder / file).write_bytes(content)


def _config(**entries):
    return lambda folder: tiny_models.edit_json(folder / "config.json", lambda config: config.update(entries))


def _tensors(change):
    return lambda folder: tiny_models.rewrite(folder, change)


def _spoil(*positions_and_values):
    def change(tensors):
        for position, value in positions_and_values:
            tensors[NAME].view(-1)[position] = value

    return _tensors(change)


def _index(change):
    return lambda folder: tiny_models.edit_json(folder / INDEX, change)


def _weight_map(**entries):
    return _index(lambda index: index["weight_map"].update({NAME: entries["shard"]}))


def _shard(folder):
    return sorted(folder.glob("model-*.safetensors"))[0]


def _only_pickle(content):
    def change(folder):
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        with (folder / "pytorch_model.bin").open("wb") as stream:
            if content is None:
                torch.save(tensors, stream)
            elif isinstance(content, bytes):
                stream.write(content)
            else:
                torch.save(content, stream, pickle_protocol=2)

    return change


def _truncate(find, keep):
    def change(folder):
        path = find(folder)
        path.write_bytes(path.read_bytes()[:keep])

    return change


def _header(text, data=b""):
    content = len(text).to_bytes(8, "little") + text + data
    return _write("model.safetensors", content)


def _link_out(file):
    def change(folder):
        outside = folder.parent / f"outside-{file}"
        (folder / file).rename(outside)
        (folder / file).symlink_to(outside)

    return change


def _add_to_shard(folder):
    shard = _shard(folder)
    save_file({**load_file(shard), "stray": torch.zeros(2)}, shard)


def _rename_in_shard(folder):
    shard = _shard(folder)
    tensors = load_file(shard)
    first = min(tensors)
    tensors["renamed"] = tensors.pop(first)
    save_file(tensors, shard)


def _model(folder):
    return folder / "model.safetensors"


def read_all(folder, *, allow_pickle=False):
    checkpoint = Checkpoint.open(folder, allow_pickle=allow_pickle)
    anatomy.of(checkpoint)
    for name in checkpoint.tensor_names:
        checkpoint.tensor(name)


def load(folder):
    Checkpoint.open(folder).load_model()


def tokenizer(folder):
    Checkpoint.open(folder).tokenizer()


def read_pickle(folder):
    read_all(folder, allow_pickle=True)


def read_absent(folder):
    Checkpoint.open(folder).tensor("no.such.tensor")


# (what is wrong, how it came about, what is done, error, what the message must name)
SINGLE = [
    ("no config", lambda f: (f / "config.json").unlink(), read_all, CheckpointError, ["config.json"]),
    ("config is no JSON", _write("config.json", b"{"), read_all, CheckpointError, ["config.json", "JSON"]),
    ("config is a list", _write("config.json", b"[]"), read_all, CheckpointError, ["config.json", "object"]),
    ("config is binary", _write("config.json", b"\xff\xfe{}"), read_all, CheckpointError, ["config.json"]),
    ("config is nested without end", _write("config.json", b"[" * 99999), read_all, CheckpointError, ["config"]),
    ("config leads outside", _link_out("config.json"), read_all, CheckpointError, ["outside the folder"]),
    ("no architecture", _config(architectures=[]), read_all, CheckpointError, ["names no architecture"]),
    ("architecture is a number", _config(architectures=[7]), read_all, CheckpointError, ["architecture"]),
    ("no weights", lambda f: _model(f).unlink(), read_all, CheckpointError, ["no weights", "model.safetensors"]),
    ("weights lead outside", _link_out("model.safetensors"), read_all, CheckpointError, ["outside the folder"]),
    (
        "weights are a dangling link",
        lambda f: (_model(f).unlink(), _model(f).symlink_to("gone")),
        read_all,
        CheckpointError,
        ["model.safetensors"],
    ),
    ("weights are empty", _write("model.safetensors", b""), read_all, CheckpointError, ["truncated or corrupt"]),
    ("weights end in the header", _truncate(_model, 300), read_all, CheckpointError, ["model.safetensors"]),
    ("weights end in the data", _truncate(_model, -4), read_all, CheckpointError, ["model.safetensors"]),
    (
        "weights are text",
        _write("model.safetensors", b"no tensors here"),
        read_all,
        CheckpointError,
        ["corrupt"],
    ),
    ("weights have no tensor", _header(b"{}"), read_all, CheckpointError, ["holds no tensor"]),
    (
        "offsets beyond the file",
        _header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
        read_all,
        CheckpointError,
        ["corrupt"],
    ),
    (
        "negative shape",
        _header(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"1234"),
        read_all,
        CheckpointError,
        ["corrupt"],
    ),
    (
        "unknown dtype",
        _header(b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', b"1234"),
        read_all,
        CheckpointError,
        ["corrupt"],
    ),
    ("NaN", _spoil((3, float("nan"))), read_all, InvalidWeightsError, [NAME, "1 NaN and 0 Inf among 960"]),
    (
        "NaN and Inf",
        _spoil((3, float("nan")), (4, float("inf")), (9, float("-inf"))),
        read_all,
        InvalidWeightsError,
        [NAME, "1 NaN and 2 Inf"],
    ),
    (
        "shape against config",
        _config(intermediate_size=48),
        read_all,
        InvalidWeightsError,
        ["mlp.gate_proj.weight", "(40, 24)", "(48, 24)"],
    ),
    ("no such tensor", lambda f: None, read_absent, CheckpointError, ["no.such.tensor"]),
    (
        "pickle without permission",
        _only_pickle(None),
        read_all,
        CheckpointError,
        ["--allow-pickle", "allow_pickle=True"],
    ),
    ("pickle runs code", _only_pickle({"a": Evil()}), read_pickle, CheckpointError, ["more than weights"]),
    (
        "pickle runs code, bare",
        _only_pickle(pickle.dumps(Evil(), 2)),
        read_pickle,
        CheckpointError,
        ["more than weights"],
    ),
    ("pickle holds no table", _only_pickle([torch.ones(2)]), read_pickle, CheckpointError, ["no table of tensors"]),
    ("pickle holds numbers", _only_pickle({"a": 1}), read_pickle, CheckpointError, ["no table of tensors"]),
    ("pickle is damaged", _only_pickle(b"PK\x03\x04 and so on"), read_pickle, CheckpointError, ["pytorch_model.bin"]),
    ("pickle is empty", _only_pickle(b""), read_pickle, CheckpointError, ["pytorch_model.bin"]),
    (
        "custom code",
        _config(auto_map={"AutoModelForCausalLM": "modeling_evil.EvilForCausalLM"}),
        load,
        CheckpointError,
        ["auto_map", "EvilForCausalLM", "never run"],
    ),
    (
        "architecture unknown to transformers",
        _config(architectures=["NoSuchModel"]),
        load,
        CheckpointError,
        ["NoSuchModel"],
    ),
    ("architecture is no model", _config(architectures=["AutoTokenizer"]), load, CheckpointError, ["AutoTokenizer"]),
    ("loading with a tensor missing", _tensors(lambda t: t.pop(NAME)), load, InvalidWeightsError, [NAME]),
    ("loading with a wrong shape", _config(intermediate_size=48), load, InvalidWeightsError, ["mlp."]),
    ("no tokenizer", lambda f: None, tokenizer, CheckpointError, ["tokenizer"]),
]
SHARDED = [
    ("shard missing", lambda f: _shard(f).unlink(), read_all, CheckpointError, ["model-00001", INDEX]),
    ("shard truncated", _truncate(_shard, -1), read_all, CheckpointError, ["model-00001"]),
    ("shard lacks a tensor", _rename_in_shard, read_all, CheckpointError, ["model-00001", "lacks"]),
    ("shard has a tensor too many", _add_to_shard, read_all, CheckpointError, ["model-00001", "stray"]),
    ("index missing", lambda f: (f / INDEX).unlink(), read_all, CheckpointError, [INDEX, "copy the index"]),
    ("index is no JSON", _write(INDEX, b"{]"), read_all, CheckpointError, [INDEX, "JSON"]),
    ("index has no map", _write(INDEX, b"{}"), read_all, CheckpointError, [INDEX, "weight_map"]),
    ("index maps to a number", _weight_map(shard=3), read_all, CheckpointError, [INDEX, NAME]),
    ("index climbs out", _weight_map(shard="../a.safetensors"), read_all, CheckpointError, ["'../a.safetensors'"]),
    ("index is absolute", _weight_map(shard="/etc/passwd"), read_all, CheckpointError, ["'/etc/passwd'"]),
    ("index climbs out of Windows", _weight_map(shard="..\\a"), read_all, CheckpointError, ["outside the folder"]),
    ("index names a folder", _weight_map(shard=".."), read_all, CheckpointError, ["'..'"]),
    ("shard leads outside", lambda f: _link_out(_shard(f).name)(f), read_all, CheckpointError, ["outside the folder"]),
    (
        "index places a tensor elsewhere",
        _index(lambda index: index["weight_map"].update({NAME: min(index["weight_map"].values())})),
        read_all,
        CheckpointError,
        [NAME],
    ),
]


def _check(folder, spoil, act, error, named, capfd):
    act_on_good = act not in (read_pickle, read_absent, tokenizer)
    if act_on_good:
        act(folder)  # so that the refusal is due to the fault
    spoil(folder)
    with pytest.raises(ProvlabError) as refusal:
        act(folder)
    text = str(refusal.value)
    assert type(refusal.value) is error
    assert text
    assert "\n" not in text
    assert len(text) < 400 + len(str(folder))
    for word in named:
        assert word in text
    assert "never be printed" not in capfd.readouterr().out


@pytest.mark.parametrize(("spoil", "act", "error", "named"), [case[1:] for case in SINGLE], ids=[c[0] for c in SINGLE])
def test_refused(spoil, act, error, named, llama, capfd):
    _check(llama, spoil, act, error, named, capfd)


@pytest.mark.parametrize(
    ("spoil", "act", "error", "named"), [case[1:] for case in SHARDED], ids=[c[0] for c in SHARDED]
)
def test_refused_sharded(spoil, act, error, named, sharded, capfd):
    _check(sharded, spoil, act, error, named, capfd)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("", "empty"),
        ("./nowhere", "nowhere does not exist"),
        ("/no/where", "/no/where"),
        ("~/no where", "does not exist"),
        ("nope:oak", "unknown scheme 'nope'"),
        ("https://huggingface.co/org/name", "org/name"),
        ("a/b/c", "'a/b/c' is no folder here and no hub id; a hub id is org/name[@revision], a folder ./name; for a f"),
        ("two words", "'two words'"),
        ("a" * 5000, "aaa"),
        ("./" + "a" * 5000, "aaa"),
        ("~nobody-here/model", "~nobody-here/model"),
        ("~nobody-here/models--org--name", "~nobody-here/model"),
        ("models--" + "a" * 5000, "aaa"),
        ("a\0b", "no hub id"),
        ("org/name@", "org/name@"),
        ("org/name@../../etc", "no hub id"),
        ("org/na--me", "no hub id"),
        ("org/name@v1\n", "no hub id"),
    ],
)
def test_refused_sources(source, named):
    with pytest.raises(CheckpointError) as refusal:
        Checkpoint.open(source)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_file_is_no_folder(llama):
    with pytest.raises(CheckpointError, match="is a file; give the folder"):
        Checkpoint.open(llama / "model.safetensors")


def test_spoilt_index_is_really_read(sharded):
    """The table above edits the index; this fails if the checkpoint were read without it."""
    index = json.loads((sharded / INDEX).read_text())
    assert set(Checkpoint.open(sharded).tensor_names) == set(index["weight_map"])
