"""A config promises what transformers makes of it."""

import json
import math

import pytest

from provlab.errors import CheckpointError, InputError, InvalidWeightsError, UnknownArchitectureError
from provlab.planning.shapes import shape
from provlab.planning.skeleton import Skeleton
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint


@pytest.fixture(params=["llama", "llama_tied", "gpt2", "mistral", "qwen3", "gemma2", "olmo2", "phi3", "mixtral"])
def saved(request, tiny):
    """A model that transformers made and saved."""
    return Checkpoint.open(tiny(request.param))


def test_names_and_shapes_are_those_of_transformers(saved):
    """The reference is what transformers saved."""
    promised = Skeleton("x", saved.config)
    assert set(promised.tensor_names) == set(saved.tensor_names)
    for name in saved.tensor_names:
        assert promised.shape(name) == saved.shape(name), name


def test_biases_alone_are_left_out(tiny):
    saved = Checkpoint.open(tiny("qwen2"))
    promised = Skeleton("x", saved.config)
    left_out = set(saved.tensor_names) - set(promised.tensor_names)
    assert left_out
    assert all(name.endswith("bias") for name in left_out)
    assert all(promised.shape(name) == saved.shape(name) for name in promised.tensor_names)


def test_its_anatomy_is_that_of_the_checkpoint(saved):
    promised, result = anatomy.of(Skeleton("x", saved.config)), anatomy.of(saved)
    assert promised.parts == result.parts
    assert promised.tied == result.tied


@pytest.mark.parametrize(
    ("name", "millions"),  # of parameters, from the model cards' files
    [
        ("llama-2-7b", 6738.415616),
        ("llama-2-13b", 13015.864320),
        ("llama-2-70b", 68976.648192),
        ("llama-3.1-8b", 8030.261248),
        ("llama-3.1-70b", 70553.706496),
        ("llama-3.2-3b", 3212.749824),
    ],
)
def test_published_models_have_the_published_size(name, millions):
    shapes = Skeleton(name, shape(name)).shapes
    assert sum(math.prod(lengths) for lengths in shapes.values()) == round(millions * 1e6)


def test_it_has_no_weights():
    bones = Skeleton("bones", shape("tiny"))
    assert bones.dtype("model.norm.weight") == "bfloat16"
    with pytest.raises(CheckpointError, match="bones is a config without weights"):
        bones.array("model.norm.weight")


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"architectures": ["NovelForCausalLM"]}, UnknownArchitectureError, "NovelForCausalLM"),
        ({"architectures": None}, CheckpointError, "names no architecture"),
        ({"hidden_size": None}, InvalidWeightsError, "hidden_size"),
        ({"intermediate_size": "wide"}, InvalidWeightsError, "intermediate_size"),
        ({"dtype": "float31"}, InvalidWeightsError, "float31"),
    ],
)
def test_a_config_that_promises_nothing_is_refused(change, error, text):
    bones = Skeleton("bones", shape("tiny") | change)
    with pytest.raises(error, match=text):
        bones.dtype(bones.tensor_names[0])


def test_an_axis_without_a_length_is_named():
    """Only the weights of a classifier give its number of labels."""
    config = {"architectures": ["BertForSequenceClassification"], "hidden_size": 8, "num_attention_heads": 2}
    config |= {"num_hidden_layers": 1, "vocab_size": 9, "max_position_embeddings": 4, "type_vocab_size": 2}
    with pytest.raises(InvalidWeightsError, match="labels"):
        _ = Skeleton("classifier", config).shapes


@pytest.mark.parametrize(
    ("name", "blocks", "message"),
    [("llama-9", None, "no known shape"), ("tiny", 5, "must be 1 to 4"), ("tiny", 0, "must be 1 to 4")],
)
def test_unknown_shapes_are_refused(name, blocks, message):
    with pytest.raises(InputError, match=message):
        shape(name, blocks)


def test_a_config_is_a_shape(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(shape("tiny")))
    assert shape(str(path), 2) == shape("tiny", 2)
    path.write_text("[]")
    with pytest.raises(InputError, match="no JSON object"):
        shape(str(path))
