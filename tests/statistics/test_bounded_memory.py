"""Activations on a long text: memory that does not grow with it, and the same positions for every model."""

import tracemalloc

import numpy as np
import pytest
import torch

from provlab.errors import InputError, NotComparableError
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations, random_tokens, sample_positions
from provlab.statistics import get
from provlab.statistics.model import Model
from provlab.statistics.options import Options

LENGTH = 32
KEPT = 256


def peak_of(call):
    """Bytes allocated by Python and numpy at the worst moment; maps of files are none."""
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_text(models):
    """Sixteen times the tokens, kept in files, and the same sample of either: the peak stays where it was."""
    checkpoint = Checkpoint.open(models["base"])
    short, long = (random_tokens(300, n, LENGTH, seed=1) for n in (64, 1024))
    everything = long.size * 48 * 3 * 2 * 4  # bytes of gate and up, three blocks of 48 units
    mlp_activations(checkpoint, short[:1], kinds=("gate",))  # imports and caches are not counted
    kinds = {"kinds": ("gate", "up"), "in_memory": 0}
    _, base = peak_of(lambda: mlp_activations(checkpoint, short, **kinds))
    kept, all_positions = peak_of(lambda: mlp_activations(checkpoint, long, **kinds))
    positions = sample_positions(long.size, KEPT, seed=0)
    _, sampled = peak_of(lambda: mlp_activations(checkpoint, long, kinds=("gate", "up"), positions=positions))
    assert sum(array.nbytes for arrays in kept.values() for array in arrays) == everything
    assert all_positions < base + everything / 8
    assert sampled < base + everything / 8
    in_memory = {"kinds": ("gate", "up"), "in_memory": 10**9}
    _, planted = peak_of(lambda: mlp_activations(checkpoint, long, **in_memory))
    assert planted > everything  # the measure sees what is held


@pytest.mark.parametrize("in_memory", [10**9, 0])
def test_a_sample_is_columns_of_the_whole(models, in_memory):
    checkpoint = Checkpoint.open(models["base"])
    tokens = random_tokens(300, 40, LENGTH, seed=2)
    positions = sample_positions(tokens.size, 100, seed=3)
    whole = mlp_activations(checkpoint, tokens)["hidden"]
    part = mlp_activations(checkpoint, tokens, positions=positions, in_memory=in_memory, batch_size=7)["hidden"]
    for all_columns, some in zip(whole, part, strict=True):
        np.testing.assert_allclose(some, all_columns[:, positions], atol=1e-5)


def test_batches_without_a_kept_position_are_not_run(models):
    checkpoint = Checkpoint.open(models["base"])
    network = checkpoint.load_model(dtype=torch.float32)
    runs = []
    network.base_model.register_forward_pre_hook(lambda *_: runs.append(1))
    mlp_activations(network, random_tokens(300, 8, LENGTH, seed=2), positions=np.array([0, 70]), batch_size=1)
    assert len(runs) == 2


def test_positions_are_drawn_once_for_all(models, text):
    assert sample_positions(100, 100, seed=0) is None
    drawn = sample_positions(1000, 100, seed=0)
    assert np.array_equal(drawn, sample_positions(1000, 100, seed=0))
    assert not np.array_equal(drawn, sample_positions(1000, 100, seed=1))
    assert len(set(drawn.tolist())) == 100
    assert (np.diff(drawn) > 0).all()
    counts = np.bincount(np.concatenate([sample_positions(50, 10, seed=s) for s in range(400)]), minlength=50)
    assert np.abs(counts - 80).max() < 5 * np.sqrt(80 * 0.8)  # hypergeometric: each position in a fifth of the samples
    for bad in ([3, 1], [1, 1], [-1, 0], [5, 40 * LENGTH]):
        with pytest.raises(InputError, match="positions must ascend"):
            mlp_activations(
                Checkpoint.open(models["base"]), random_tokens(300, 40, LENGTH, seed=2), positions=np.array(bad)
            )


@pytest.mark.parametrize("name", ["phi_match", "phi_h", "median_max"])
def test_statistics_keep_the_sample_and_say_so(models, text, name):
    statistic = get(name)
    base = Model.open(models["base"])
    few = Options(text=text, n_sequences=16, sequence_length=LENGTH, activation_tokens=KEPT, vocab_size=300)
    every = Options(text=text, n_sequences=16, sequence_length=LENGTH, vocab_size=300)
    features = statistic.prepare(base, few)
    first = features.block(1)
    assert (first[0] if isinstance(first, tuple) else first).shape[1] == KEPT
    assert statistic.parameters(few)["sampled_tokens"] == KEPT
    # where all is kept the records are those of a time before the option
    assert "sampled_tokens" not in statistic.parameters(every)
    itself = statistic.compare_block(first, first, 1, few)
    assert itself.value == pytest.approx(1.0 if itself.log10_p is not None else 0.0, abs=1e-4)


def test_other_tokens_are_refused(models, text):
    """Two tokenizers give sequences of one shape; what they hold must be the same nevertheless."""
    statistic, options = get("phi_match"), Options(text=text, n_sequences=4, sequence_length=LENGTH)
    gate, up, tokens, *_ = statistic.prepare(Model.open(models["base"]), options).block(0)
    with pytest.raises(NotComparableError, match="cut the text differently"):
        statistic.compare_block((gate, up, tokens), (gate, up, tokens[::-1]), 0, options)
