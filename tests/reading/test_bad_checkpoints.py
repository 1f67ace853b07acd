"""Bad checkpoints, and files that are no weights: each is refused with the right error, in one line that names the
thing at fault, and the remedy."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from provlab.errors import CheckpointError, InvalidWeightsError, ProvlabError, UnknownArchitectureError
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint

NAME = "model.layers.1.mlp.up_proj.weight"
UP = "model.layers.0.mlp.up_proj.weight"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


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


def _shard_of_name(choose):
    """Let the index place a tensor elsewhere."""

    def change(index):
        index["weight_map"][NAME] = choose(index) if callable(choose) else choose

    return lambda folder: tiny_models.edit_json(folder / INDEX, change)


def _shard(folder):
    return sorted(folder.glob("model-*.safetensors"))[0]


def _only_pickle(content):
    def change(folder):
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        with (folder / "pytorch_model.bin").open("wb") as stream:
            if content is None:
                torch.save(tensors, stream)
            else:
                stream.write(content)

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


def _in_shard(change, number=0):
    def spoil(folder):
        shard = sorted(folder.glob("model-*.safetensors"))[number]
        tensors = load_file(shard)
        change(tensors)
        save_file(tensors, shard)

    return spoil


def _alone(**contents):
    """Leave these files alone in the folder."""

    def make(folder):
        for path in folder.iterdir():
            path.unlink()
        for name, content in contents.items():
            (folder / name.replace("__", ".")).write_bytes(content)

    return make


def _codes(change, **config):
    return lambda folder: (_tensors(change)(folder), _config(**config)(folder))


def _as(dtype, beside=None):
    """Turn a weight into another dtype, and put a tensor beside it that a way of quantising writes."""

    def change(tensors):
        tensors[UP] = (100 * tensors[UP]).to(torch.int32).to(dtype)
        if beside:
            tensors[UP.replace("weight", beside)] = torch.ones(4)

    return change


def _stored(shape, dtype, *beside):
    """Store a weight in a layout of its own, with scales beside it."""

    def change(tensors):
        tensors[UP] = torch.zeros(shape(*tensors[UP].shape), dtype=dtype)
        tensors |= {UP.removesuffix("weight") + name: torch.ones(1) for name in beside}

    return change


def _packed(beside):
    """Put codes under another name in place of a weight."""
    return lambda tensors: tensors.update({UP.replace("weight", beside): tensors.pop(UP).to(torch.int32)})


def _model(folder):
    return folder / WEIGHTS


def read_all(folder, *, allow_pickle=False):
    checkpoint = Checkpoint.open(folder, allow_pickle=allow_pickle)
    anatomy.of(checkpoint)
    for name in checkpoint.tensor_names:
        checkpoint.tensor(name)


load = lambda folder: Checkpoint.open(folder).load_model()  # noqa: E731
tokenizer = lambda folder: Checkpoint.open(folder).tokenizer()  # noqa: E731
read_pickle = lambda folder: read_all(folder, allow_pickle=True)  # noqa: E731
read_absent = lambda folder: Checkpoint.open(folder).tensor("no.such.tensor")  # noqa: E731


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
    "no architecture": Case(_config(architectures=[], model_type=""), ["names no architecture"]),
    "architecture is a number": Case(_config(architectures=[7]), ["architecture"]),
    "no weights": Case(lambda f: _model(f).unlink(), ["no weights", "model.safetensors"]),
    "weights lead outside": Case(_link_out("model.safetensors"), ["outside the folder"]),
    "weights are a dangling link": Case(
        lambda f: (_model(f).unlink(), _model(f).symlink_to("gone")), ["model.safetensors"]
    ),
    "weights are a pipe": Case(lambda f: (_model(f).unlink(), os.mkfifo(_model(f))), ["is no regular file"]),
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
QUANTISED, UNREAD = "codes of a quantised copy (", " in a layout that is not read"
CODED = f"{UP} is stored as codes: "
#: what people give in place of weights
GIVEN: dict[str, Case] = {
    "an adapter": Case(
        _alone(adapter_config__json=b'{"base_model_name_or_path": "org/base"}', adapter_model__safetensors=b"x"),
        ["is an adapter, ", " added to org/base; name both, as BASE+ADAPTER"],
    ),
    "an adapter that says nothing": Case(
        _alone(adapter_config__json=b"["), ["is an adapter", "added to its base model"]
    ),
    "ONNX": Case(
        _alone(config__json=b"{}", model__onnx=b"x"), ["but model.onnx: a graph for inference; give the check"]
    ),
    "Meta's layout": Case(
        _alone(params__json=b"{}", consolidated__00__pth=b"x"),
        ["but consolidated.00.pth: ", "often named -hf"],
    ),
    "TensorFlow": Case(_alone(config__json=b"{}", tf_model__h5=b"x"), ["but tf_model.h5: TensorFlow"]),
    "another name": Case(
        _alone(config__json=b"{}", other__safetensors=b"x"),
        ["has no model.safetensors", "give the path of one: ", "other.safetensors"],
    ),
    "a pointer": Case(
        _write(WEIGHTS, b"version https://git-lfs.github.com/spec/v1"), ["Git LFS", ": run git lfs pull"]
    ),
    "a page": Case(_write(WEIGHTS, b"<!DOCTYPE html>"), ["it is a web page, ", ": download it again"]),
    "a page in place of the config": Case(
        _write("config.json", b"<html>Sign in</html>"),
        ["config.json is no valid JSON; it is a web page"],
    ),
    "a pickle": Case(_write(WEIGHTS, b"PK\x03\x04" + bytes(99)), ["it is a pickle under another name: convert"]),
    "GGUF under another name": Case(
        _write(WEIGHTS, b"GGUF" + bytes(99)), ["GGUF under another name: name it model.gguf"]
    ),
    "GPTQ": Case(
        _codes(_packed("qweight"), quantization_config={"quant_method": "gptq"}),
        [QUANTISED + "gptq; ", UNREAD + "; give the checkpoint that it was made from"],
        error=InvalidWeightsError,
    ),
    "AWQ that does not say so": Case(
        _codes(_packed("qweight")), [QUANTISED + "GPTQ or AWQ"], error=InvalidWeightsError
    ),
    "compressed tensors": Case(
        _codes(_packed("weight_packed")), [QUANTISED + "compressed-tensors"], error=InvalidWeightsError
    ),
    "MLX": Case(
        _codes(_as(torch.uint32, "scales"), quantization={"bits": 4}),
        [CODED, "group_size or q_group_size, which decides the numbers, is not stated in quantization of config.json"],
    ),
    "bitsandbytes": Case(_codes(_as(torch.int8, "SCB")), [CODED, "its scales are 4 for 40 x 24 numbers"]),
    "4 bits": Case(_codes(_as(torch.uint8, "weight.absmax")), [CODED, "holds uint8 and no scale that is known"]),
    "fp8": Case(
        _codes(_as(torch.float8_e4m3fn, "weight_scale_inv")),
        [CODED, "quant_method, which decides the numbers, is not stated in quantization_config of config.json"],
    ),
    "int8": Case(_codes(_as(torch.int8)), [CODED, "it holds int8 and no scale that is known (nothing declares"]),
    "a quantised head alone": Case(
        _tensors(lambda tensors: tensors.update({"lm_head.weight": tensors["lm_head.weight"].to(torch.int8)})),
        ["lm_head.weight is stored as codes", "int8 and no scale"],
    ),
    "BitNet": Case(
        _codes(
            _stored(lambda outputs, inputs: (outputs // 4, inputs), torch.uint8, "weight_scale"),
            quantization_config={"quant_method": "bitnet"},
        ),
        [CODED, "says bitnet, a way of coding that is not read; give the checkpoint that it was made from"],
    ),
    "NVFP4 whose scales are no groups'": Case(
        _codes(
            _stored(lambda outputs, inputs: (outputs, inputs // 2), torch.uint8, "weight_scale", "weight_scale_2"),
            quantization_config={"quant_method": "modelopt", "group_size": 16},
        ),
        [CODED, "group_size of quantization_config says 16, and its scales are 1 for 40 x 24 numbers; correct it, or"],
    ),
    "EETQ": Case(
        _codes(_stored(lambda outputs, inputs: (inputs, outputs), torch.int8, "weight_scales")),
        [CODED, "it holds int8 and no scale that is known"],
    ),
    "Meta's names": Case(
        _tensors(lambda tensors: tensors.update({"layers.0.feed_forward.w3.weight": tensors.pop(UP)})),
        [f"lacks the tensor {UP}, ", " its files are whole: give ", ", as transformers saves them"],
        error=InvalidWeightsError,
    ),
}
SHARDED = {
    "shard missing": Case(lambda f: _shard(f).unlink(), ["model-00001", INDEX]),
    "shard truncated": Case(_truncate(_shard, -1), ["model-00001"]),
    "shard lacks a tensor": Case(_in_shard(lambda t: t.update(renamed=t.pop(min(t)))), ["model-00001", "lacks"]),
    "index missing": Case(lambda f: (f / INDEX).unlink(), [INDEX, "copy the index"]),
    "index is no JSON": Case(_write(INDEX, b"{]"), [INDEX, "JSON"]),
    "index has no map": Case(_write(INDEX, b"{}"), [INDEX, "weight_map"]),
    "index maps to a number": Case(_shard_of_name(3), [INDEX, NAME]),
    "index climbs out": Case(_shard_of_name("../a.safetensors"), ["'../a.safetensors'"]),
    "index is absolute": Case(_shard_of_name("/etc/passwd"), ["'/etc/passwd'"]),
    "index climbs out of Windows": Case(_shard_of_name("..\\a"), ["outside the folder"]),
    "index names a folder": Case(_shard_of_name(".."), ["'..'"]),
    "shard leads outside": Case(lambda f: _link_out(_shard(f).name)(f), ["outside the folder"]),
    "two shards have a tensor": Case(
        lambda f: [_in_shard(lambda t, i=i: t.update(stray=torch.full((2,), float(i))), i)(f) for i in range(2)],
        ["model-00001", "model-00002", "hold stray with different numbers"],
    ),
}


def _renamed(change):
    """Give every tensor another name."""
    return _tensors(lambda tensors: [tensors.update({change(name): tensors.pop(name)}) for name in list(tensors)])


def _two_models(*places):
    """Put another model beside the one there, each behind a prefix."""

    def change(tensors):
        others, own = tiny_models.build("llama", seed=5).state_dict(), dict(tensors)
        tensors.clear()
        for place, some in zip(places, (own, others), strict=True):
            tensors |= {place + name: value.clone() for name, value in some.items()}

    return _tensors(change)


def _unmerged(within):
    """Leave an adapter beside what it changes, as a trainer saves the whole of a model."""

    def change(tensors):
        for name in list(tensors):
            tensors[name.replace("up_proj.", within)] = tensors.pop(name)
        tensors[UP.replace("weight", "lora_A.default.weight")] = torch.ones(2, 24)
        tensors[UP.replace("weight", "lora_B.default.weight")] = torch.ones(40, 2)

    return _tensors(change)


def _both(*changes):
    return lambda folder: [change(folder) for change in changes]


def _base_in_shards_and_a_fine_tune(folder):
    """One matrix changed, in one row that is not the first."""
    tiny_models.build("llama").save_pretrained(folder / "other", max_shard_size="20KB")
    for path in (folder / "other").glob("model*"):
        path.rename(folder / path.name)
    shutil.rmtree(folder / "other")
    tiny_models.rewrite(folder, lambda tensors: tensors["model.layers.1.mlp.down_proj.weight"][-1].mul_(1.01))


def _into_folders(folder):
    """Move all files into a folder below a folder."""
    inner = folder / "inner" / "abc"
    inner.mkdir(parents=True)
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(inner / path.name)


TWO_OF_ONE_CLASS = ["two models of one class, in ", "* and ", "*; save one of them alone"]
#: folders as trainers, mergers and converters leave them
ODD = {
    "a fine-tune beside its base": Case(
        _base_in_shards_and_a_fine_tune, ["which differ in model.layers.1.mlp.down_proj.weight; give the path"]
    ),
    "a folder around a model": Case(_into_folders, ["no config.json, but the folder ", "inner/abc has; give that one"]),
    "a wrapper that is unknown": Case(
        _renamed(lambda name: name.replace("layers.1.", "layers.1.inner.")),
        [
            "lacks the tensor model.layers.1.input_layernorm.weight, ",
            "it has model.layers.1.inner.input_layernorm.weight: rename its tensors",
        ],
        error=InvalidWeightsError,
    ),
    "two tensors of one name": Case(
        _tensors(lambda tensors: tensors.update({UP.replace("mlp", "_orig_mod.mlp"): tensors[UP] + 1})),
        ["are both model.layers.0.mlp.up_proj.weight, without what wrapped them"],
    ),
    "a student and its teacher": Case(_two_models("student.", "teacher."), TWO_OF_ONE_CLASS),
    "a policy and its reference": Case(_two_models("", "ref_model."), TWO_OF_ONE_CLASS),
    "a model and its running mean": Case(_two_models("module.", "ema."), TWO_OF_ONE_CLASS),
    "an adapter not merged, by a new peft": Case(
        _unmerged("up_proj.base_layer."), ["lora_A.default.weight is of an adapter that was not merged"]
    ),
    "an adapter not merged, by an old peft": Case(
        _unmerged("up_proj."), ["lora_A.default.weight is of an adapter that was not merged"]
    ),
    # what is called a pickle and is none asks for no trust
    "GGUF called a pickle": Case(
        _only_pickle(b"GGUF"), ["it is GGUF under another name: name it model.gguf, alone in a folder"]
    ),
    "a pointer called a pickle": Case(
        _only_pickle(b"version https://git-lfs.github.com/spec/v1"), ["run git lfs pull"]
    ),
    "a page called a pickle": Case(_only_pickle(b"<!DOCTYPE html>"), ["download it again"]),
    "settings of a tokenizer that are null": Case(
        _write("tokenizer_config.json", b"null"),
        ["no usable tokenizer: tokenizer_config.json must hold a JSON object; copy it again"],
        act=tokenizer,
    ),
    "special tokens that are a list": Case(
        _write("special_tokens_map.json", b"[]"),
        ["no usable tokenizer: special_tokens_map.json must hold a JSON object; copy it again"],
        act=tokenizer,
    ),
}


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(kind, case, id=label)
        for kind, table in (("llama", SINGLE | GIVEN | ODD), ("sharded", SHARDED))
        for label, case in table.items()
    ],
)
def test_refused(kind, case, request):
    folder = request.getfixturevalue(kind)
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


def test_a_file_without_weights_is_no_folder(llama, sharded):
    with pytest.raises(CheckpointError, match="is a file; give the folder"):
        Checkpoint.open(llama / "config.json")
    with pytest.raises(CheckpointError, match="is one of several parts; give its folder"):
        Checkpoint.open(_shard(sharded))


def test_spoilt_index_is_really_read(sharded):
    """The table above edits the index; this fails if the checkpoint were read without it."""
    index = json.loads((sharded / INDEX).read_text())
    assert set(Checkpoint.open(sharded).tensor_names) == set(index["weight_map"])


@pytest.mark.parametrize("file", [WEIGHTS, "model.gguf"])
def test_a_file_that_this_user_may_not_open_is_not_called_corrupt(file, llama, monkeypatch):
    """The parser of safetensors says of it that no such file exists. Root opens all, so a refusal is planted."""
    (llama / WEIGHTS).unlink()
    (llama / file).write_bytes(b"")
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: Path(path).name != file and may(path, mode, **more))
    with pytest.raises(CheckpointError, match=rf"this user may not open .*{file}; change its permissions"):
        read_all(llama)
