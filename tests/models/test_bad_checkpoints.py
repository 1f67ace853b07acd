"""Bad checkpoints: each is refused with the right error, in one line that names the thing at fault."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from provlab.errors import CheckpointError, InvalidWeightsError, ProvlabError, UnknownArchitectureError
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


class Case(NamedTuple):
    """A fault, the words that its message must have, the use of the checkpoint that meets it, and the error."""

    spoil: Callable[[Path], object]
    words: list[str]
    act: Callable[[Path], object] = read_all
    error: type[ProvlabError] = CheckpointError


SINGLE = {
    "no config": Case(lambda f: (f / "config.json").unlink(), ["config.json"]),
    "config is no JSON": Case(_write("config.json", b"{"), ["config.json", "JSON"]),
    "config is a list": Case(_write("config.json", b"[]"), ["config.json", "object"]),
    "config is binary": Case(_write("config.json", b"\xff\xfe{}"), ["config.json"]),
    "config is nested without end": Case(_write("config.json", b"[" * 99999), ["config"]),
    "config leads outside": Case(_link_out("config.json"), ["outside the folder"]),
    "no architecture": Case(_config(architectures=[]), ["names no architecture"]),
    "architecture is a number": Case(_config(architectures=[7]), ["architecture"]),
    "no weights": Case(lambda f: _model(f).unlink(), ["no weights", "model.safetensors"]),
    "weights lead outside": Case(_link_out("model.safetensors"), ["outside the folder"]),
    "weights are a dangling link": Case(
        lambda f: (_model(f).unlink(), _model(f).symlink_to("gone")), ["model.safetensors"]
    ),
    "weights are a link in a circle": Case(
        lambda f: (_model(f).unlink(), _model(f).symlink_to("model.safetensors")), ["a link that leads to no file"]
    ),
    "text_config of an odd type": Case(
        _config(text_config={"model_type": ["llama"]}), ["config.json lacks"], error=InvalidWeightsError
    ),
    "text_config of odd entries": Case(
        _config(text_config={"model_type": "llama", "hidden_size": "x"}), ["text_config"], error=InvalidWeightsError
    ),
    "architecture that a terminal obeys": Case(
        _config(architectures=["\x1b[31mEvil\x9b\x07"], intermediate_size=9),
        ["?[31mEvil??"],
        error=UnknownArchitectureError,
    ),
    "weights are empty": Case(_write("model.safetensors", b""), ["truncated or corrupt"]),
    "weights end in the header": Case(_truncate(_model, 300), ["model.safetensors"]),
    "weights end in the data": Case(_truncate(_model, -4), ["model.safetensors"]),
    "weights are text": Case(_write("model.safetensors", b"no tensors here"), ["corrupt"]),
    "weights have no tensor": Case(_header(b"{}"), ["holds no tensor"]),
    "offsets beyond the file": Case(_header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'), ["corrupt"]),
    "negative shape": Case(_header(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"1234"), ["corrupt"]),
    "unknown dtype": Case(_header(b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', b"1234"), ["corrupt"]),
    "NaN": Case(_spoil((3, float("nan"))), [NAME, "1 NaN and 0 Inf among 960"], error=InvalidWeightsError),
    "NaN and Inf": Case(
        _spoil((3, float("nan")), (4, float("inf")), (9, float("-inf"))),
        [NAME, "1 NaN and 2 Inf"],
        error=InvalidWeightsError,
    ),
    "shape against config": Case(
        _config(intermediate_size=48), ["mlp.gate_proj.weight", "(40, 24)", "(48, 24)"], error=InvalidWeightsError
    ),
    "no such tensor": Case(lambda f: None, ["no.such.tensor"], act=read_absent),
    "pickle without permission": Case(_only_pickle(None), ["--allow-pickle", "allow_pickle=True"]),
    "pickle runs code": Case(_only_pickle({"a": Evil()}), ["more than weights"], act=read_pickle),
    "pickle runs code, bare": Case(_only_pickle(pickle.dumps(Evil(), 2)), ["more than weights"], act=read_pickle),
    "pickle holds no table": Case(_only_pickle([torch.ones(2)]), ["no table of tensors"], act=read_pickle),
    "pickle holds numbers": Case(_only_pickle({"a": 1}), ["no table of tensors"], act=read_pickle),
    "pickle is damaged": Case(_only_pickle(b"PK\x03\x04 and so on"), ["pytorch_model.bin"], act=read_pickle),
    "pickle is empty": Case(_only_pickle(b""), ["pytorch_model.bin"], act=read_pickle),
    "custom code": Case(
        _config(auto_map={"AutoModelForCausalLM": "modeling_evil.EvilForCausalLM"}),
        ["auto_map", "EvilForCausalLM", "never run"],
        act=load,
    ),
    "architecture unknown to transformers": Case(_config(architectures=["NoSuchModel"]), ["NoSuchModel"], act=load),
    "architecture is no model": Case(_config(architectures=["AutoTokenizer"]), ["AutoTokenizer"], act=load),
    "loading with a tensor missing": Case(_tensors(lambda t: t.pop(NAME)), [NAME], act=load, error=InvalidWeightsError),
    "loading with a wrong shape": Case(_config(intermediate_size=48), ["mlp."], act=load, error=InvalidWeightsError),
    "no tokenizer": Case(lambda f: None, ["has no tokenizer; put its files"], act=tokenizer),
}
SHARDED = {
    "shard missing": Case(lambda f: _shard(f).unlink(), ["model-00001", INDEX]),
    "shard truncated": Case(_truncate(_shard, -1), ["model-00001"]),
    "shard lacks a tensor": Case(_rename_in_shard, ["model-00001", "lacks"]),
    "shard has a tensor too many": Case(_add_to_shard, ["model-00001", "stray"]),
    "index missing": Case(lambda f: (f / INDEX).unlink(), [INDEX, "copy the index"]),
    "index is no JSON": Case(_write(INDEX, b"{]"), [INDEX, "JSON"]),
    "index has no map": Case(_write(INDEX, b"{}"), [INDEX, "weight_map"]),
    "index maps to a number": Case(_weight_map(shard=3), [INDEX, NAME]),
    "index climbs out": Case(_weight_map(shard="../a.safetensors"), ["'../a.safetensors'"]),
    "index is absolute": Case(_weight_map(shard="/etc/passwd"), ["'/etc/passwd'"]),
    "index climbs out of Windows": Case(_weight_map(shard="..\\a"), ["outside the folder"]),
    "index names a folder": Case(_weight_map(shard=".."), ["'..'"]),
    "shard leads outside": Case(lambda f: _link_out(_shard(f).name)(f), ["outside the folder"]),
    "index places a tensor elsewhere": Case(
        _index(lambda index: index["weight_map"].update({NAME: min(index["weight_map"].values())})), [NAME]
    ),
}


@pytest.mark.parametrize(
    ("kind", "label"), [("llama", label) for label in SINGLE] + [("sharded", label) for label in SHARDED]
)
def test_refused(kind, label, request, capfd):
    folder, case = request.getfixturevalue(kind), {**SINGLE, **SHARDED}[label]
    if case.act not in (read_pickle, read_absent, tokenizer):
        case.act(folder)  # so that the refusal is due to the fault
    case.spoil(folder)
    with pytest.raises(ProvlabError) as refusal:
        case.act(folder)
    text = str(refusal.value)
    assert type(refusal.value) is case.error
    assert text
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < (400 if case.error is not UnknownArchitectureError else 2000) + len(str(folder))
    assert all(word in text for word in case.words)
    assert "never be printed" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("", "empty"),
        ("./nowhere", "nowhere does not exist"),
        ("/no/where", "/no/where"),
        ("~/no where", "does not exist"),
        ("nope:oak", "unknown scheme 'nope'"),
        ("https://huggingface.co/org/name", "org/name"),
        (
            "a/b/../c",
            "'a/b/../c' is no folder here and no hub id; a hub id is org/name[/folder][@revision], a folder .",
        ),
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
