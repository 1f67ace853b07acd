"""Five tiny models of known origin, and caches and results that are nobody's."""

import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import array_api_compat
import numpy as np
import pytest
import tiny_models
import torch
import transformers
from filelock import FileLock
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from provlab import cli
from provlab.engine.device import _Multiply
from provlab.files import atomic_folder
from provlab.reading import checkpoint
from provlab.zoo import corpus

WIDTH, HIDDEN, BLOCKS, VOCABULARY = 24, 48, 3, 300
NAMES = ("base", "tuned", "sibling", "stranger", "other")
END = "<|end|>"

# weight noise in standard deviations of the base's weights: enough that the up projections no longer match perfectly,
# so that the p-values of related pairs lie between chance and the floor, where double precision still holds them
NOISE_UP, NOISE = 1.5, 0.35


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's caches and results, and none reaches the real hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROVLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PROVLAB_RESULTS", str(tmp_path_factory.mktemp("results")))
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        of_user = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN")
        for name in (*of_user, "PROVLAB_ZOO_EDITION", "PROVLAB_DRAW", "PROVLAB_DEBUG"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The zoo's corpus takes ten seconds to make: all workers and all caches that tests move to share one of a run."""
    run = tmp_path_factory.getbasetemp()
    run = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run
    made, make = run / "one_corpus", corpus._make

    def copied(folder: Path) -> None:
        with FileLock(run / "one_corpus.lock"):
            if not made.is_dir():
                with atomic_folder(made) as temporary:
                    make(temporary)
        shutil.copytree(made, folder, dirs_exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_make", copied)
        yield


@pytest.fixture(autouse=True)
def own_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that a test registers as ``scheme:name`` is known to no other test."""
    monkeypatch.setattr(checkpoint, "_schemes", dict(checkpoint._schemes))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run one command of provlab in this process: ``status, stdout, stderr``."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        disabled = logging.root.manager.disable
        with warnings.catch_warnings():
            try:
                status = cli.main([str(argument) for argument in arguments])
            finally:
                logging.disable(disabled)
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def as_device(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let torch's tensors on the CPU stand for a GPU's; returns the functions that computed with them, by name."""
    computed: set[str] = set()
    real = array_api_compat.array_namespace

    def array_namespace(*values: object) -> object:
        if any(isinstance(value, torch.Tensor) for value in values):
            computed.add(sys._getframe(1).f_code.co_name)
        return real(*values)

    monkeypatch.setattr(array_api_compat, "array_namespace", array_namespace)
    monkeypatch.setattr("provlab.arrays.at_home", lambda device: False)
    monkeypatch.setattr("provlab.engine.jobs.product_on", lambda device: _Multiply("cpu"))
    return computed


@pytest.fixture(scope="session")
def text() -> str:
    """Prose of no meaning, long enough for every test."""
    words = "the model reads a page of text and says which word comes next but never why it is so"
    return " ".join(np.random.default_rng(0).choice(words.split(), size=4000))


def _tokenizer(text: str) -> PreTrainedTokenizerFast:
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator([text], vocab_size=VOCABULARY, special_tokens=[END], show_progress=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=trainer._tokenizer, bos_token=END, eos_token=END, pad_token=END, model_max_length=10**9
    )


def random_model(seed: int, **settings: int) -> LlamaForCausalLM:
    """An untrained Llama: as independent of all others as a trained one."""
    torch.manual_seed(seed)
    config = {
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        "initializer_range": 0.15,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    return LlamaForCausalLM(LlamaConfig(**(config | settings))).eval()


def child_of(parent: LlamaForCausalLM, seed: int) -> LlamaForCausalLM:
    """The parent after a training that moved every matrix by noise."""
    child = random_model(0)
    child.load_state_dict(parent.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in child.named_parameters():
            if parameter.ndim == 2:
                noise = (NOISE_UP if "up_proj" in name else NOISE) * parameter.std()
                parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    return child


@pytest.fixture(scope="session")
def new_model() -> Callable[..., LlamaForCausalLM]:
    """Make a random model: ``new_model(seed, intermediate_size=40)``."""
    return random_model


@pytest.fixture(scope="session")
def save_model(text: str):
    """Write a model with the tokenizer that all models share; returns the folder."""
    tokenizer = _tokenizer(text)

    transformers.utils.logging.disable_progress_bar()

    def save(model: LlamaForCausalLM, folder: Path) -> Path:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, save_model) -> dict[str, str]:
    """Folders of base, its children tuned and sibling, stranger and other; not to be written to."""
    root = tmp_path_factory.mktemp("models")
    base = random_model(1)
    made = {
        "base": base,
        "tuned": child_of(base, 2),
        "sibling": child_of(base, 3),
        "stranger": random_model(4),
        "other": random_model(5),
    }
    return {name: str(save_model(made[name], root / name)) for name in NAMES}


@pytest.fixture
def spoilt(models: dict[str, str], tmp_path: Path) -> Path:
    """Make a copy of the base, to be spoilt at will."""
    return Path(shutil.copytree(models["base"], tmp_path / "spoilt"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folder of the tiny model with a label; not to be written to."""
    made = {}

    def folder(label):
        if label not in made:
            made[label] = tiny_models.save(label, tmp_path_factory.mktemp("tiny") / label)
        return made[label]

    return folder


@pytest.fixture
def llama(tiny, tmp_path):
    """Make a copy of the tiny Llama, to be spoilt at will."""
    return tiny_models.copy(tiny("llama"), tmp_path / "llama")


@pytest.fixture
def sharded(tmp_path):
    """Make a tiny Llama in several shards, to be spoilt at will."""
    folder = tmp_path / "sharded"
    tiny_models.build("llama").save_pretrained(folder, max_shard_size="20KB")
    return folder


def tiny_gpt2(seed=0, **settings):
    torch.manual_seed(seed)
    config = {"vocab_size": 4, "n_positions": 6, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.4}
    config |= {"bos_token_id": None, "eos_token_id": None} | settings
    return GPT2LMHeadModel(GPT2Config(**config)).eval()


@pytest.fixture(scope="session")
def gpt2():
    """Make a tiny untrained GPT-2 over few tokens, as the toy's are: ``gpt2(seed, n_layer=3)``."""
    return tiny_gpt2
