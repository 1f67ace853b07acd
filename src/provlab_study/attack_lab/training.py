"""Two attacks that train: every MLP of a model again, and a whole model that imitates another's predictions."""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from provlab.attacks.state import AttackedModel
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.options import Options
from provlab.statistics.text import encode
from provlab.zoo.train import Mixture
from provlab_study.shared.students import Settings, distill
from provlab_study.shared.teachers import block_mlp, mlp_inputs

_TEXTS = {"prose": 0.5, "code": 0.5}  # what a distilled model is shown
_BATCH, _RATE = 16, 0.003


def retrained(checkpoint: Checkpoint, folder: Path, options: Options, steps: int) -> Path:
    """Write a model all of whose MLPs were trained from scratch to imitate it, on noise like what enters them."""
    inputs = mlp_inputs(checkpoint, encode(checkpoint, options))
    state = AttackedModel.read(checkpoint)
    new: dict[tuple[str, int | None], torch.Tensor] = {}
    for block, sample in enumerate(inputs):
        settings = Settings(width_factor=1.0, steps=steps, inputs="matched", seed=options.seed + block)
        student = distill(block_mlp(checkpoint, block), settings, sample=sample, progress=False)
        new |= {(role, block): getattr(student, role).double() for role in ("gate", "up", "down")}
    return state.with_parts(new).write(folder)


def distilled(checkpoint: Checkpoint, folder: Path, seed: int, steps: int) -> Path:
    """Write a model of the same shape with weights of its own, trained to predict as this one does."""
    teacher = checkpoint.load_model()
    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        student = type(teacher)(teacher.config).train()
    optimizer = torch.optim.AdamW(student.parameters(), lr=_RATE, betas=(0.9, 0.95), fused=True)
    text, length = Mixture.load(_TEXTS, "train"), int(teacher.config.max_position_embeddings)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1.0, (step + 1) / 20) * (0.1 + 0.9 * (1 + np.cos(np.pi * step / steps)) / 2)
        tokens = text.draw(_BATCH, length, rng)
        with torch.inference_mode():
            expected = teacher(input_ids=tokens, use_cache=False).logits.log_softmax(-1)
        result = student(input_ids=tokens, use_cache=False).logits.log_softmax(-1)
        loss = functional.kl_div(result, expected.clone(), log_target=True, reduction="sum") / tokens.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    names = dict(student.named_parameters())
    weights = {name: names[name].detach() for name in checkpoint.tensor_names}
    state = AttackedModel.read(checkpoint)
    return state.having({name: tensor.double() for name, tensor in weights.items()}).write(folder)
