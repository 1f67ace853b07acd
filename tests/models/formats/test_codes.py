"""Weights that are stored as codes come back as the floats that they stand for."""

import numpy as np
import tiny_models
import torch

from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint


def int8_by_row(weight):
    """As bitsandbytes stores a matrix (LLM.int8): rows of codes, of which 127 is the row's largest."""
    largest = weight.abs().amax(dim=1)
    return {"weight": torch.round(weight * 127 / largest[:, None]).to(torch.int8), "SCB": largest}


def quantise(folder, store):
    """Store every matrix of the blocks in another way."""

    def change(tensors):
        for name in [name for name in tensors if name.startswith("model.layers") and tensors[name].ndim == 2]:
            module, weight = name.removesuffix(".weight"), tensors.pop(name)
            tensors |= {f"{module}.{ending}": value for ending, value in store(weight).items()}

    tiny_models.rewrite(folder, change)


def test_coded_weights_look_like_any_others(llama, tmp_path):
    full = Checkpoint.open(tiny_models.copy(llama, tmp_path / "full"))
    quantise(llama, int8_by_row)
    coded = Checkpoint.open(llama)
    assert coded.tensor_names == full.tensor_names
    assert coded.stored == ["bitsandbytes int8"]
    roles = anatomy.of(coded)
    for name in full.tensor_names:
        assert coded.shape(name) == full.shape(name)
        error = np.abs(coded.array(name) - full.array(name)).max()
        assert error <= np.abs(full.array(name)).max() / 253, name
    assert roles.parts == anatomy.of(full).parts
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        ours, theirs = (one.load_model()(tokens).logits for one in (coded, full))
    assert torch.allclose(ours, theirs, atol=0.05 * float(theirs.abs().max()))
