"""Every language class of transformers, made tiny and read back: right, wrong, or refused with the reason.

``python benchmarks/sweep.py causal [masked seq2seq] --out FILE [--only CLASS ...] [--again refused ...]`` makes a
random model of each class, a noised copy, and another seed, and saves all three as transformers does. A class is read
right if

- phi_U rejects for the copy and not for the other seed, and
- hidden units that are reordered, along every axis that the table calls ``mlp``, leave the outputs of transformers'
  model as they were, while the same order of the down projections alone changes them, and
- the model that `Checkpoint.load_model` makes is the one that transformers makes.

Anything else that gives a p-value is wrong. Lines of FILE are kept: a class that stands there is not tried again unless
its outcome is named after ``--again``. ``sweep.toml`` has the entries of configs that no rule gives.
"""

import argparse
import gc
import json
import sys
import tempfile
import tomllib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.auto import modeling_auto

from provlab.engine.pairs import open_models, run_pairs
from provlab.errors import ProvlabError, one_line
from provlab.reading import anatomy as anatomy_module
from provlab.reading.architectures import classes
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.symmetry import Permutation, write
from provlab.reading.tying import KEY
from provlab.statistics.options import Options

KINDS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "pictures": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
}
_SETTINGS = tomllib.loads((Path(__file__).parent / "sweep.toml").read_text(encoding="utf-8"))
#: log10 p: of a copy at most, of another seed at least (0.001 over 180 classes; at -3.5 one of them failed by chance)
_COPY, _OTHER = -30.0, -5.25
_MOST = 15_000_000  # parameters
_SAME, _CHANGED = 1e-3, 1e-2  # of the largest output


def shrunk(config_class: type[transformers.PretrainedConfig], **own: Any) -> dict[str, Any]:
    """Return arguments for a small config: of the entries that the class knows, those that `sweep.toml` makes small."""
    try:
        usual = config_class()
    except (TypeError, ValueError, AttributeError):  # such a class wants its parts given
        return {**_SETTINGS["small"], **own}
    entries = usual.to_dict()
    known = {*entries, *(usual.attribute_map or {})}
    nested = {
        name: shrunk(type(part), **own.pop(name, {}))
        for name, entry in entries.items()
        if isinstance(entry, dict) and isinstance(part := getattr(usual, name), transformers.PretrainedConfig)
    }
    small = {name: value for name, value in _SETTINGS["small"].items() if name in known}
    return {**small, **nested, **own}


def made(name: str, seed: int, noise: float = 0.0) -> transformers.PreTrainedModel:
    """Make a random tiny model of a class, every parameter away from its constant, and noise a part of its spread."""
    model_class = getattr(transformers, name)
    config = model_class.config_class(**shrunk(model_class.config_class, **_SETTINGS["classes"].get(name, {})))
    with torch.device("meta"):
        if (n := sum(parameter.numel() for parameter in model_class(config).parameters())) > _MOST:
            raise ValueError(f"not tiny: {n:,} parameters")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model: transformers.PreTrainedModel = model_class(config).eval()
        for parameter in model.parameters():
            parameter.nan_to_num_(0.0).clamp_(-2.0, 2.0).add_(0.1 * torch.randn_like(parameter))
        for parameter in model.parameters():
            parameter.add_(noise * parameter.std(unbiased=False) * torch.randn_like(parameter))
    return model


def outputs(folder: Path, name: str) -> torch.Tensor:
    """Logits, or hidden states, of a saved model on fixed tokens."""
    model = getattr(transformers, name).from_pretrained(folder).eval()
    tokens = torch.from_numpy(np.random.default_rng(0).integers(5, 50, size=(2, 24)))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "use_cache": False}
    if model.main_input_name == "input_features":  # it hears: as many frames as it has places for
        shape = 2, model.config.num_mel_bins, 2 * model.config.max_source_positions
        inputs = {"input_features": torch.randn(shape, generator=torch.Generator().manual_seed(0)), "use_cache": False}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    with torch.inference_mode():
        result = model(**inputs)
    values: torch.Tensor = result.logits if "logits" in result else result[0]
    return values.double()


def orders(anatomy: anatomy_module.Anatomy) -> dict[tuple[str, int | None], Any]:
    """Draw an order for every axis of hidden units."""
    rng, drawn = np.random.default_rng(1), {}
    for part in anatomy.parts:
        for segment, rows in zip(part.segments, part.sizes, strict=True):
            if segment.axes[0].partition(".")[0] == "mlp":
                drawn.setdefault((segment.axes[0], part.block), rng.permutation(rows))
    return drawn


def asymmetry(folder: Path, name: str, scratch: Path) -> str | None:
    """Say how the hidden units that the table names are none of the model's; None where they are."""
    checkpoint = Checkpoint.open(folder)
    anatomy = anatomy_module.of(checkpoint)
    ours, theirs = checkpoint.load_model(), getattr(transformers, name).from_pretrained(folder)
    notes = [note for note in checkpoint.notes if KEY not in note]  # some classes' own defaults contradict each other
    if type(ours) is not type(theirs) or notes:
        return f"it is opened as {checkpoint.architecture}: {' '.join(notes)}"
    states = ours.state_dict(), theirs.state_dict()
    if other := next((key for key, value in states[1].items() if not torch.equal(states[0][key], value.float())), ""):
        return f"it is opened with another {other}"
    weights = {tensor: checkpoint.tensor(tensor) for tensor in checkpoint.tensor_names}
    drawn = orders(anatomy)
    every = Permutation(anatomy.parts, drawn)
    down = [part for part in anatomy.parts if any(s.role.partition(".")[0] == "down" for s in part.segments)]
    before = outputs(folder, name)
    if not torch.isfinite(before).all():
        return "its outputs are not finite"
    scale = before.abs().max()
    for kind, order in (("all", every), ("down", Permutation(tuple(down), drawn))):
        write(order(weights), checkpoint, scratch / kind, {})
        change = float((outputs(scratch / kind, name) - before).abs().max() / scale)
        if kind == "all" and change > _SAME:
            return f"reordered hidden units change its outputs by {change:.3g}"
        if kind == "down" and change < _CHANGED:
            return f"down projections in another order change its outputs by {change:.3g} only"
    return None


def tried(name: str) -> dict[str, str]:
    """Judge one class."""
    folders = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for label, seed, noise in (("base", 0, 0.0), ("copy", 0, 0.1), ("other", 1, 0.0)):
                folders[label] = Path(folder) / label
                made(name, seed, noise).save_pretrained(folders[label])
            outputs(folders["base"], name)
        except Exception as error:  # noqa: BLE001  whatever a class wants that is not given
            return {"outcome": "not built", "why": f"{type(error).__name__}: {one_line(error, 160)}"}
        sources = {label: str(path) for label, path in folders.items()}
        try:
            pairs = [(sources["base"], sources[label]) for label in ("copy", "other")]
            bench = open_models(list(sources.values()), strict=True)
            copy, other = run_pairs(bench, ["phi_u"], Options(), pairs=pairs, progress=False)
        except ProvlabError as error:
            return {"outcome": "refused", "why": one_line(error, 240).replace(folder, "")}
        read = bench.models[sources["base"]].anatomy
        how = f"by its tensors as {read.architecture}" if read.named else ""
        if copy.outcome is None or other.outcome is None:
            return {"outcome": "refused", "why": one_line(copy.error or other.error, 240).replace(folder, "")}
        p = [outcome.log10_p for outcome in (copy.outcome, other.outcome)]
        if p[0] is None or p[1] is None or p[0] > _COPY or p[1] < _OTHER:
            return {"outcome": "wrong", "why": f"log10 p of the copy {p[0]}, of the other seed {p[1]}", "how": how}
        try:
            why = asymmetry(folders["base"], name, Path(folder))
        except Exception as error:  # noqa: BLE001  a model that cannot be written or run again
            why = f"{type(error).__name__}: {one_line(error, 160)}"
        if why:
            return {"outcome": "wrong", "why": why, "how": how}
        return {"outcome": "right", "why": f"{p[0]:.1f}, {p[1]:.1f}", "how": how}


def main() -> None:
    """Try the classes that FILE lacks, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []])
    parser.add_argument("--out", type=Path, default=Path("sweep.jsonl"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--again", nargs="*", default=[], help="outcomes, or all")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    names: list[str] = []
    for kind in arguments.kinds:
        for value in getattr(modeling_auto, KINDS[kind]).values():
            names += [value] if isinstance(value, str) else value[:1]
    names = sorted({*names, *arguments.only} if not arguments.only else arguments.only)
    lines = arguments.out.read_text(encoding="utf-8").splitlines() if arguments.out.exists() else []
    done = {row["class"]: row for row in map(json.loads, lines)}
    for name in names:
        if name in done and not {done[name]["outcome"], "all"} & {*arguments.again}:
            continue
        done[name] = {"class": name, "in table": str(name in classes()), **tried(name)}
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[name]) + "\n")
        print(*done[name].values(), sep="  ", flush=True)
        gc.collect()
    rows = [done[name] for name in names]
    print(
        len(rows), "classes:", ", ".join(f"{n} {outcome}" for outcome, n in Counter(r["outcome"] for r in rows).items())
    )


if __name__ == "__main__":
    sys.exit(main())
