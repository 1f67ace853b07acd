"""Stand-ins for the repositories of the paper's models: their keys, heads, vocabularies and files, made small.

One line of ``book/paper_models.csv`` says of each what is assumed, ``configs.yml`` what its config.json holds. A `Cut`
says how small. By `SMALL` widths and vocabularies are divided by 32, depths by 8 (by 4 of the GPT-2s), heads are as
many; weights are drawn, trained for seconds where a page asks what a model says, or made from those of the model that a
model is said to come from. By `TRUE` every width, head and vocabulary is the original's, one block deep, and two of the
narrow GPT-2s; nothing is trained.
"""

import csv
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
import yaml
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from provlab.files import atomic_folder, digest
from provlab.zoo import corpus

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "book" / "paper_models.csv"
MARK = "▁"  # what a SentencePiece vocabulary has for a space
NOISE = 0.05  # of a child's weights, in standard deviations of each tensor
AT_ONCE = 2**24  # weights of a tensor that are drawn at a time
TRAINED = ("meta-llama/Llama-2-7b-hf", "yahma/llama-7b-hf", "openai-community/gpt2", "openai-community/gpt2-medium")
# sentencepiece_model.proto: kinds of pieces
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


@dataclass(frozen=True)
class Cut:
    """How a stand-in is smaller than its original: what widths are divided by, and blocks at most (0: a share)."""

    width: int
    blocks: int

    def depth(self, config: dict, key: str) -> int:
        narrow = config["model_type"] == "gpt2"
        if not self.blocks:
            return config[key] // (4 if narrow else 8)
        return min(self.blocks, config[key]) if narrow else 1


SMALL, TRUE = Cut(32, 0), Cut(1, 2)


@dataclass(frozen=True)
class Assumed:
    """A line of the table."""

    model: str
    config: str
    vocabulary: str
    tokenizer: str
    weights: str
    gated: bool
    parent: str
    revision: str = ""  # the commit of which the line is said, where one is known

    def __str__(self) -> str:
        made = f"made from {self.parent}" if self.parent else "made apart"
        return (
            f"{self.model}: config {self.config}, vocabulary {self.vocabulary}, tokenizer as {self.tokenizer}, "
            f"{self.weights}, {'gated' if self.gated else 'open'}, {made}"
        )

    def true_config(self) -> dict:
        return _config(self.config)

    @property
    def n_extra(self) -> int:
        """Tokens of its own, behind those of the vocabulary that it took."""
        return int(self.vocabulary.partition(" + ")[2] or 0)

    @property
    def n_blocks(self) -> int:
        """Blocks of the original."""
        config = self.true_config()
        return config.get("num_hidden_layers") or config["n_layer"]

    def gigabytes(self) -> float:
        """Size of the original's weights by its shapes and dtype, once: of two kinds of files one is fetched."""
        one, two = (_parameters(self.config, self.n_extra, blocks) for blocks in (1, 2))
        bytes_each = 2 if "float16" in self.weights else 4
        return (one + (self.n_blocks - 1) * (two - one)) * bytes_each / 1e9

    def small_config(self, cut: Cut = SMALL) -> dict:
        """The config as served: all keys of the true one, sizes divided."""
        config = self.true_config()
        for key in ("hidden_size", "intermediate_size", "head_dim", "vocab_size", "n_embd", "n_inner"):
            if config.get(key):
                config[key] = round(config[key] / cut.width)
        for key in ("num_hidden_layers", "n_layer"):
            if key in config:
                config[key] = cut.depth(config, key)
        for key in ("n_positions", "n_ctx"):
            if config.get(key) and cut.width > 1:
                config[key] //= 8
        for key in ("bos_token_id", "eos_token_id"):
            if config[key] > 2:
                config[key] = config[key] // cut.width
        config["vocab_size"] += self.n_extra
        config["torch_dtype"] = next(d for d in ("bfloat16", "float16", "float32") if d in self.weights)
        return config


@cache
def table() -> dict[str, Assumed]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            row["model"]: Assumed(
                *list(row.values())[:5],
                gated=row["gated"] == "yes",
                parent=row["made from"],
                revision=row["revision"],
            )
            for row in csv.DictReader(file)
        }


def bare(source: str) -> str:
    """Name of a repository without the commit to which it is pinned."""
    return source.partition("@")[0]


def assumed(source: str) -> Assumed:
    """The line of the table for a model as the profile names it."""
    return table()[bare(source)]


def _config(name: str) -> dict:
    entry = dict(yaml.safe_load((HERE / "configs.yml").read_text(encoding="utf-8"))[name])
    like = entry.pop("like", None)
    return {**(_config(like) if like else {}), **entry}


@cache
def _parameters(config: str, n_extra: int, blocks: int) -> int:
    """Numbers in a model of this config with so many blocks, which are never made."""
    settings = _config(config)
    settings |= {key: blocks for key in ("num_hidden_layers", "n_layer") if key in settings}
    settings["vocab_size"] += n_extra
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in _made(settings).parameters())


def _made(config: dict) -> torch.nn.Module:
    """A model of a config; its parameters are drawn by transformers."""
    settings = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if v is not None})
    settings.dtype = torch.float32
    transformers.utils.logging.set_verbosity_error()
    return transformers.AutoModelForCausalLM.from_config(settings)


# Tokenizers ---------------------------------------------------------------------------------------------------


@cache
def _text(domain: str) -> tuple[str, ...]:
    return tuple(corpus.documents()[domain, "train"][:600])


@cache
def tokenizer(kind: str, size: int, n_extra: int) -> tokenizers.Tokenizer:
    """Train a vocabulary of a kind: SentencePiece's with bytes to fall back on, or byte-level."""
    texts = [*_text("code" if kind == "openllama" else "prose"), *(_text("code") if kind == "openllama-v2" else ())]
    if kind in ("gpt2", "llama-3", "xgen"):
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        last = ["<|begin_of_text|>", "<|end_of_text|>"] if kind == "llama-3" else ["<|endoftext|>"]
        last += [f"<|reserved_special_token_{n}|>" for n in range(6)] if kind == "llama-3" else []
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=size - len(last), initial_alphabet=alphabet, show_progress=False)
        made.train_from_iterator(texts, trainer)
        made.add_special_tokens(last)
        return _padded(made, size, n_extra, "")
    first = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")  # to train with: words apart
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=first, limit_alphabet=120, show_progress=False)
    made.train_from_iterator(texts, trainer)
    content = json.loads(made.to_str())
    content["pre_tokenizer"] = None
    content["decoder"] = json.loads(
        decoders.Sequence(
            [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ).__getstate__()
    )
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < 3]
    return _padded(tokenizers.Tokenizer.from_str(json.dumps(content)), size, n_extra, MARK)


def _padded(made: tokenizers.Tokenizer, size: int, n: int, mark: str) -> tokenizers.Tokenizer:
    """Add n tokens that no text has, behind the first `size`."""
    content = json.loads(made.to_str())
    content["model"]["vocab"] |= {f"{mark}<X{k}>": size + k for k in range(n)}
    return tokenizers.Tokenizer.from_str(json.dumps(content)) if n else made


def sentencepiece_model(made: tokenizers.Tokenizer) -> bytes:
    """Spell a vocabulary as ``tokenizer.model``: the fields of SentencePiece's message that readers ask for."""

    def number(value: int) -> bytes:
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def field(which: int, value: "int | float | bytes") -> bytes:
        if isinstance(value, float):
            return number(which << 3 | 5) + np.float32(value).tobytes()
        if isinstance(value, int):
            return number(which << 3) + number(value)
        return number(which << 3 | 2) + number(len(value)) + value

    pieces = b""
    for piece, n in sorted(made.get_vocab().items(), key=lambda entry: entry[1]):
        kind = _UNKNOWN if n == 0 else _CONTROL if n < 3 else _BYTE if n < 259 else _NORMAL
        score = -float(n - 259) if kind == _NORMAL else 0.0
        pieces += field(1, field(1, piece.encode()) + field(2, score) + field(3, kind))
    trainer = field(3, 2) + field(4, made.get_vocab_size()) + field(35, 1)  # BPE, size, byte_fallback
    return pieces + field(2, trainer) + field(3, field(1, b"identity"))


def _write_tokenizer(model: Assumed, folder: Path, cut: Cut) -> None:
    """Train a small vocabulary; where the true one is larger, tokens that no text has fill it up."""
    kind = model.vocabulary.partition(" + ")[0]
    trained = model.small_config()["vocab_size"] - model.n_extra
    made = tokenizer(kind, trained, model.small_config(cut)["vocab_size"] - trained)
    settings: dict = {"model_max_length": 10**30, "clean_up_tokenization_spaces": False}
    if kind in ("gpt2", "xgen"):
        settings |= {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
        ends = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    elif kind == "llama-3":
        settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
        ends = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    else:
        settings |= {
            "tokenizer_class": "LlamaTokenizer",
            "add_bos_token": True,
            "add_eos_token": False,
            "legacy": False,
        }
        ends = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if "json" in model.tokenizer:
        made.save(str(folder / "tokenizer.json"))
    if "model" in model.tokenizer:
        (folder / "tokenizer.model").write_bytes(sentencepiece_model(made))
    if "merges" in model.tokenizer:
        made.model.save(str(folder))
    if model.tokenizer == "code":
        settings |= {
            "tokenizer_class": "XgenTokenizer",
            "auto_map": {"AutoTokenizer": ["tokenization_xgen.XgenTokenizer", None]},
        }
        (folder / "tokenization_xgen.py").write_text('raise SystemExit("code of a repository was run")\n')
    if "added tokens" in model.tokenizer:
        _write(folder / "added_tokens.json", {"[PAD]": made.get_vocab_size()})
    _write(folder / "tokenizer_config.json", settings | ends)
    _write(folder / "special_tokens_map.json", ends)


# Weights ------------------------------------------------------------------------------------------------------


def _weights(model: Assumed, root: Path) -> dict[str, torch.Tensor]:
    """State dict in float32: trained, drawn, or cut out of the parent's and shaken."""
    seed = list(table()).index(model.model)
    torch.manual_seed(seed)
    made = _made(model.small_config())
    if model.model in TRAINED:
        _train(made, model)
    state = made.state_dict()
    if not model.parent:
        return state
    parent = torch.load(_state(model.parent, root), weights_only=True)
    depth = [1 + max(int(n) for key in s for n in re.findall(r"\.(\d+)\.", key)) for s in (parent, state)]
    chosen = np.linspace(0, depth[0] - 1, depth[1]).round().astype(int)  # which blocks stay
    for name, fresh in state.items():
        block = re.search(r"\.(\d+)\.", name)
        source = name.replace(block[0], f".{chosen[int(block[1])]}.", 1) if block else name
        old = parent[source]
        for axis, size in enumerate(fresh.shape):
            if size < old.shape[axis]:
                keep = np.random.default_rng([old.shape[axis], size]).choice(old.shape[axis], size, replace=False)
                old = old.index_select(axis, torch.from_numpy(np.sort(keep)))
        rows = old.shape[0] if fresh.ndim else 0
        spread = float(old.float().std()) if old.numel() > 1 else 0.0
        fresh[:rows] = old + NOISE * spread * torch.randn(old.shape)
    return state


class Drawn(Mapping):
    """The tensors of a stand-in of true width, each drawn when it is asked for: a model may not fit twice.

    Uniform numbers of a standard deviation of 0.02, which random bytes give fast, in the dtype of the file; a child has
    its parent's, and a share `NOISE` of its own. Norms are ones, in float32.
    """

    def __init__(self, model: Assumed, cut: Cut) -> None:
        config = model.small_config(cut)
        self.model, self.cut, self.dtype = model, cut, getattr(torch, config["torch_dtype"])
        with torch.device("meta"):
            self.shapes = {name: tuple(t.shape) for name, t in _made(config).state_dict().items()}
        self.parent = Drawn(assumed(model.parent), cut) if model.parent else None

    def __getitem__(self, name: str) -> torch.Tensor:
        shape = self.shapes[name]
        if len(shape) < 2:
            return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        rng = np.random.Generator(np.random.SFC64([list(table()).index(self.model.model), *name.encode()]))
        scale = np.float32(0.02 * 3**0.5 / 2**15 * (NOISE if self.parent else 1))
        drawn, old = torch.empty(shape, dtype=self.dtype), self._of_parent(name, shape)
        for rows in torch.arange(shape[0]).split(max(1, AT_ONCE // shape[1])):  # in float32, some at a time
            bits = np.frombuffer(rng.bytes(2 * len(rows) * shape[1]), dtype=np.int16)
            fresh = torch.from_numpy(bits.reshape(len(rows), shape[1]) * scale)
            if old is not None:
                kept = old[rows[0] : rows[-1] + 1]  # tokens of its own stand behind those of the parent
                fresh[: len(kept)] += kept
            drawn[rows[0] : rows[-1] + 1] = fresh
        return drawn

    def _of_parent(self, name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
        """The parent's tensor, cut to what its child has room for."""
        if self.parent is None:
            return None
        depth = [model.small_config(self.cut).get("num_hidden_layers", 0) for model in (self.parent.model, self.model)]
        block = re.search(r"\.(\d+)\.", name)
        at = int(block[1]) * (depth[0] - 1) // max(1, depth[1] - 1) if block and depth[0] else 0
        old = self.parent[name.replace(block[0], f".{at}.", 1) if block and depth[0] else name]
        for axis, size in enumerate(shape):
            if size < old.shape[axis]:
                keep = np.random.default_rng([old.shape[axis], size]).choice(old.shape[axis], size, replace=False)
                old = old.index_select(axis, torch.from_numpy(np.sort(keep)))
        return old

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def _state(model: str, root: Path) -> Path:
    """Where weights lie in float32, for what is made from them; not served."""
    return root / f"{model.replace('/', '--')}.pt"


def _train(made: torch.nn.Module, model: Assumed, steps: int = 80, length: int = 32) -> None:
    """Teach a model what follows what, so that what it says has a range of losses."""
    vocabulary = tokenizer(model.vocabulary, model.small_config()["vocab_size"], 0)
    ids = np.concatenate([encoded.ids for encoded in vocabulary.encode_batch(list(_text("prose")[:300]))])
    rng = np.random.default_rng(0)
    with torch.enable_grad():
        optimiser = torch.optim.AdamW(made.parameters(), lr=8e-3)
        made.train()
        for step in range(steps):
            starts = rng.integers(len(ids) - length, size=8)
            batch = torch.from_numpy(np.stack([ids[start : start + length] for start in starts]))
            made(input_ids=batch, labels=batch).loss.backward()
            optimiser.param_groups[0]["lr"] = 8e-3 * (1 - step / steps)
            optimiser.step()
            optimiser.zero_grad()
    made.eval()


def _write_weights(model: Assumed, state: Mapping[str, torch.Tensor], config: dict, folder: Path) -> None:
    dtype = getattr(torch, config["torch_dtype"])
    mixed = torch.float32 if "some float32" in model.weights else dtype  # of norms and biases
    kept = {}
    for name in state:
        tensor = state[name]
        kept[name] = tensor.to(dtype if tensor.ndim > 1 else mixed).contiguous().clone()
    if config.get("tie_word_embeddings") or config["model_type"] == "gpt2":
        kept.pop("lm_head.weight", None)
    if config["architectures"] == ["GPT2Model"] or "no prefix" in model.weights:
        kept = {name.removeprefix("transformer."): tensor for name, tensor in kept.items()}
    if "masks" in model.weights:  # which older versions of transformers wrote among the weights
        n = config["n_positions"]
        for name in [name for name in kept if name.endswith("attn.c_attn.weight")]:
            kept[name.replace("c_attn.weight", "bias")] = torch.ones(n, n).tril().view(1, 1, n, n)
    for kind, n_shards in re.findall(r"(safetensors|bin) x(\d+)", model.weights):
        stem, suffix = ("model", "safetensors") if kind == "safetensors" else ("pytorch_model", "bin")
        n, names = int(n_shards), list(kept)
        # the first shard is far the largest, so that of a 70B model it is more than a client fetches unasked
        shards = [names[: len(names) - n + 1], *([name] for name in names[len(names) - n + 1 :])]
        where = {}
        for number, shard in enumerate(shards, 1):
            file = f"{stem}.{suffix}" if n == 1 else f"{stem}-{number:05d}-of-{n:05d}.{suffix}"
            part = {name: kept[name] for name in shard}
            save_file(part, folder / file, {"format": "pt"}) if kind == "safetensors" else torch.save(
                part, folder / file
            )
            where |= dict.fromkeys(shard, file)
        if n > 1:
            size = sum(tensor.nbytes for tensor in kept.values())
            _write(folder / f"{stem}.{suffix}.index.json", {"metadata": {"total_size": size}, "weight_map": where})


def _write(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


#: what lies in repositories too and must never be fetched
UNASKED = ("README.md", ".gitattributes", "training_args.bin", "optimizer.pt", "flax_model.msgpack")


def make(ids: "list[str]", root: Path, cut: Cut = SMALL) -> dict[str, Path]:
    """Write the repositories of models, and of those that they come from, below a folder; what is there stays."""
    sources = [path.read_text("utf-8") for path in (TABLE, HERE / "configs.yml", Path(__file__))]
    made_from = digest([*sources, cut.width, cut.blocks])
    stamp = root / "made_from"
    if not stamp.is_file() or stamp.read_text() != made_from:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        stamp.write_text(made_from)
    for model in (table()[item] for item in ids):
        folder = root / model.model
        if model.parent and cut == SMALL:
            make([model.parent], root)
        if folder.is_dir():
            continue
        folder.parent.mkdir(exist_ok=True)
        with atomic_folder(folder) as temporary:
            state = _weights(model, root) if cut == SMALL else Drawn(model, cut)
            config = model.small_config(cut)
            _write(temporary / "config.json", config)
            if config["model_type"] != "gpt2" or model.model.startswith("openai"):
                ends = {key: config[key] for key in ("bos_token_id", "eos_token_id")}
                _write(temporary / "generation_config.json", ends | {"_from_model_config": True})
            _write_tokenizer(model, temporary, cut)
            _write_weights(model, state, config, temporary)
            for name in UNASKED:
                (temporary / name).write_text("never asked for\n")
            if cut == SMALL:
                torch.save(state, _state(model.model, root))
    return {item: root / item for item in ids}
