"""The library's tiny random models as folders, and ways to spoil them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer, SentencePieceBPETokenizer, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaTokenizerFast, PreTrainedTokenizerFast

from provlab.reading.examples import TINY, build

__all__ = [
    "BLOCKS", "MLP_WIDTH", "TINY", "VOCABULARY", "WIDTH", "as_gpt2s", "as_llamas", "build", "copy", "edit_json",
    "rewrite", "save", "with_tokens",
]  # fmt: skip

#: of most of the models in `examples.toml`
WIDTH, MLP_WIDTH, BLOCKS, VOCABULARY = 24, 40, 2, 50


def save(label: str, folder: Path, *, seed: int = 0) -> Path:
    """Save `build(label)` as transformers writes it, and return the folder."""
    build(label, seed=seed).save_pretrained(folder)
    return folder


def copy(folder: Path, to: Path) -> Path:
    """Copy a checkpoint folder."""
    return Path(shutil.copytree(folder, to))


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Let `change` alter the table of tensors in ``model.safetensors``."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Let `change` alter a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def as_gpt2s(folder: Path, text: str, size: int) -> None:
    """Put a tokenizer beside a model as GPT-2's lies there: ``vocab.json``, ``merges.txt``, no ``tokenizer.json``."""
    for path in folder.glob("*token*"):
        path.unlink()
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator([text], vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False)
    trainer.save_model(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))


def as_llamas(folder: Path, text: str, size: int) -> None:
    """Put a tokenizer beside a model as Llama's lies there: words that begin with the mark of SentencePiece."""
    for path in folder.glob("*token*"):
        path.unlink()
    trainer = SentencePieceBPETokenizer()
    special = ["<unk>", "<s>", "</s>"]
    trainer.train_from_iterator([text], vocab_size=size, special_tokens=special, show_progress=False)
    LlamaTokenizerFast(tokenizer_object=trainer._tokenizer).save_pretrained(folder)


def with_tokens(folder: Path, size: int) -> Path:
    """Put a tokenizer of so many tokens beside a model: bytes, and words that no text has."""
    end = "<|end|>"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [end, *alphabet, *(f"word{n}" for n in range(size - len(alphabet) - 1))]
    tokenizer = Tokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    kept = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=end)
    kept.save_pretrained(folder)
    return folder
