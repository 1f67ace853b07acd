"""Configs that contradict their weights, or themselves: read as transformers reads them, or refused; never otherwise.

``python benchmarks/contradictions.py [--n 1000] [--seed 0]`` spoils configs of small models, and leaves the head or the
embedding out of some files: tying, widths, numbers of blocks, heads and tokens, names of classes and kinds, and levels
of nested configs. Each folder is read by provlab and loaded by transformers, and their roles are compared number by
number. Outcomes are

- *right*: the same numbers,
- *refused*: by provlab, in one line,
- *alone*: read by provlab, and not loaded by transformers, or with weights drawn at random,
- *different*: other numbers. There should be none.
"""

import argparse
import json
import random
import resource
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sweep
import transformers
from safetensors.torch import load_file, save_file

from provlab.errors import ProvlabError, one_line
from provlab.reading import anatomy, examples
from provlab.reading.architectures import KEYS
from provlab.reading.checkpoint import Checkpoint

WEIGHTS, CONFIG, TIE, TEXT = "model.safetensors", "config.json", "tie_word_embeddings", "text_config"
#: classes that do more than language, whose configs have two levels; and two with other embeddings and widths
WRAPPERS = (
    "LlavaForConditionalGeneration", "PaliGemmaForConditionalGeneration", "InternVLForConditionalGeneration",
    "Qwen2VLForConditionalGeneration", "Gemma3ForConditionalGeneration",
)  # fmt: skip
_MEMORY = 9_000_000_000  # bytes
OTHERS = ("T5ForConditionalGeneration", "Gemma4ForCausalLM", "Qwen3VLMoeForConditionalGeneration", "OPTForCausalLM")
_KINDS = ("llama", "gemma", "qwen2", "gpt2", "mistral", "llava", "nobody", "", None)
_CLASSES = ("LlamaForCausalLM", "LlamaModel", "GemmaForCausalLM", "GPT2LMHeadModel", "Qwen2ForCausalLM", "Novel")
_COMPARED = ("embedding", "head", "gate", "up", "down")


class Tried(NamedTuple):
    """One folder: the model, what was changed, and how it was read."""

    model: str
    change: str
    outcome: str
    why: str = ""


def bases(folder: Path, labels: tuple[str, ...] | None = None) -> list[str]:
    """Save the small models, and return their names."""
    made: list[str] = []
    for label in labels or (*examples.TINY, *WRAPPERS, *OTHERS):
        model = examples.build(label) if label in examples.TINY else sweep.made(label, 0)
        model.save_pretrained(folder / label)
        made.append(label)
    return made


def _levels(config: dict[str, Any]) -> list[dict[str, Any]]:
    return [config, *([config[TEXT]] if isinstance(config.get(TEXT), dict) else [])]


def _tie(config: dict[str, Any], rng: random.Random) -> str:
    level = rng.choice(_levels(config))
    value = rng.choice([True, False, None, "absent"])
    if value == "absent":
        level.pop(TIE, None)
    else:
        level[TIE] = value
    return f"{TIE} {value} in {'text_config' if level is not config else 'config'}"


def _sizes(*names: str) -> Callable[[dict[str, Any], random.Random], str]:
    def change(config: dict[str, Any], rng: random.Random) -> str:
        level = rng.choice(_levels(config))
        known = [name for name in names if isinstance(level.get(name), int)]
        if not known:
            return ""
        name = rng.choice(known)
        value = level[name]
        n = next((level[key] for key in KEYS["blocks"] if isinstance(level.get(key), int)), 2)
        level[name] = rng.choice(
            [value + 1, max(value // 2, 1), 2 * value, 0, [value] * n, [value, *[2 * value] * (n - 1)], "absent"]
        )
        if level[name] == "absent":
            del level[name]
            return f"{name} absent"
        return f"{name} {level[name]}"

    return change


def _kind(config: dict[str, Any], rng: random.Random) -> str:
    level = rng.choice(_levels(config))
    level["model_type"] = rng.choice(_KINDS)
    return f"model_type {level['model_type']}"


def _classes(config: dict[str, Any], rng: random.Random) -> str:
    config["architectures"] = rng.choice([[], None, [rng.choice(_CLASSES)], [rng.choice(_CLASSES)] * 2, "absent"])
    if config["architectures"] == "absent":
        del config["architectures"]
        return "architectures absent"
    return f"architectures {config['architectures']}"


def _nest(config: dict[str, Any], rng: random.Random) -> str:
    """Put another level in, or take the inner one out."""
    if isinstance(config.get(TEXT), dict):
        if rng.random() < 0.5:
            config.update(config.pop(TEXT))
            return "text_config taken out"
        del config[TEXT]
        return "text_config absent"
    config[TEXT] = {key: value for key, value in config.items() if key != "architectures"}
    return "a text_config with the same"


CHANGES: tuple[Callable[[dict[str, Any], random.Random], str], ...] = (
    _tie, _tie, _sizes(*KEYS["mlp"], "moe_intermediate_size"), _sizes(*KEYS["blocks"], "num_decoder_layers"),
    _sizes("num_attention_heads", "num_key_value_heads", "n_head", "head_dim"), _sizes(*KEYS["model"]),
    _sizes("vocab_size"), _kind, _classes, _nest,
)  # fmt: skip


def _weights(path: Path, rng: random.Random) -> str:
    """Leave the head or the embedding out of the file, or keep one under the other's name."""
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    ends = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "shared.weight")
    heads = [name for name in tensors if name.endswith("lm_head.weight")]
    tables = [name for name in tensors if name.endswith(ends)]
    how = rng.choice(["no head", "no embedding", "the embedding as the head"])
    if how == "no head" and heads:
        del tensors[heads[0]]
    elif how == "no embedding" and tables:
        del tensors[tables[0]]
    elif tables and not heads:
        tensors["lm_head.weight"] = tensors.pop(tables[0])
    else:
        return ""
    save_file(tensors, path, metadata={"format": "pt"})
    return how


def spoilt(base: Path, folder: Path, rng: random.Random) -> str:
    """Make a copy of a model with one to three changes, and return these in words."""
    shutil.copytree(base, folder)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    words = [rng.choice(CHANGES)(config, rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    if rng.random() < 0.4:
        words.append(_weights(folder / WEIGHTS, rng))
    return "; ".join(filter(None, words)) or "nothing"


def _theirs(folder: Path, name: str) -> Any:
    """Return transformers' model; None where it loads none, or with weights that no file holds."""
    model_class = getattr(transformers, name, None)
    if model_class is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, report = model_class.from_pretrained(folder, output_loading_info=True, ignore_mismatched_sizes=True)
    except Exception:  # noqa: BLE001  whatever a class says of a config that is spoilt
        return None
    return None if report["missing_keys"] or report["mismatched_keys"] else model


def judged(folder: Path) -> tuple[str, str]:
    """Compare how provlab and transformers read a folder."""
    try:
        checkpoint = Checkpoint.open(folder)
        found = anatomy.of(checkpoint)
        ours = {}
        for part in found.parts:
            for segment in part.segments:
                if segment.role.partition(".")[0] in _COMPARED:
                    ours[segment.role, part.block] = found.read(checkpoint, segment.role, part.block)
        name = checkpoint.architecture
    except ProvlabError as error:
        return "refused", one_line(error, 200)
    model = _theirs(folder, name)
    if model is None:
        return "alone", name
    if found.tied:
        ours["head", None] = ours["embedding", None]
    state = {key: value.detach().numpy() for key, value in model.state_dict().items()}
    ends = {"embedding": model.get_input_embeddings(), "head": model.get_output_embeddings()}
    for (role, block), array in ours.items():
        if role in ends:
            module = ends[role]
            if module is None or role not in found.roles:
                continue
            theirs = [module.weight.detach().numpy()]
        else:  # wherever it stands: a part of a parameter of its block, turned or not
            number = found.path_of(block).rpartition(".")[2]
            theirs = [value for key, value in state.items() if f".{number}." in key and value.size >= array.size]
        if not any(_held(array, value) for value in theirs):
            return "different", f"{role} of block {block} is in no parameter of {name}"
    return "right", name


def _held(array: np.ndarray, value: np.ndarray) -> bool:
    """Whether a matrix is another one, turned, or some rows of it, or some of an expert's."""
    for matrix in value if value.ndim == 3 else [value]:
        for turned in (matrix, matrix.T):
            if turned.ndim == 2 and turned.shape[-1] == array.shape[-1]:
                rows = np.flatnonzero((turned == array[0]).all(axis=1))
                if any(np.array_equal(turned[row : row + len(array)], array) for row in rows):
                    return True
    return False


def tried(n: int, seed: int, labels: tuple[str, ...] | None = None) -> Iterator[Tried]:
    """Spoil and judge so many folders."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        names = bases(Path(scratch), labels)
        for i in range(n):
            label, folder = rng.choice(names), Path(scratch) / f"spoilt-{i}"
            change = spoilt(Path(scratch) / label, folder, rng)
            yield Tried(label, change, *judged(folder))
            shutil.rmtree(folder)


def main() -> None:
    """Print what came out, and every folder that was read differently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    # transformers makes what a spoilt config says before it looks at the weights: tens of gigabytes at times
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for one in tried(arguments.n, arguments.seed):
        counts[one.outcome] += 1
        if one.outcome == "different":
            print(f"{one.model}: {one.change}: {one.why}")
        if one.outcome == "refused":
            reasons[one.why.partition("; ")[0].rpartition(": ")[2][:60]] += 1
    print(dict(counts))
    for why, times in reasons.most_common(12):
        print(f"  {times:4d}  {why}")


if __name__ == "__main__":
    main()
