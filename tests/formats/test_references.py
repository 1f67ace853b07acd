"""Codes that well-kept libraries wrote come back as the numbers that these libraries read, or are refused.

``benchmarks/coded_references.py`` made the file with them, and says with which versions.
"""

import random
from collections import Counter

import numpy as np
import pytest
from coded import mutated, read, references

from provlab.formats.codes import CODES

N_MUTATED = 1000
#: where a declaration may stand; the place that it had, and that of a model inside another
PLACES = {
    "as it was": lambda config: (config, {}),
    "in a config inside": lambda config: ({"text_config": config}, {}),
    "two configs down": lambda config: ({"thinker_config": {"text_config": config}}, {}),
    "in a file beside": lambda config: (
        {k: v for k, v in config.items() if k == "expert_dtype"},
        {"quantize_config.json": next(iter(config.values()))},
    ),
    "under the older name": lambda config: (
        {k.replace("quantization_config", "compression_config"): v for k, v in config.items()},
        {},
    ),
    "twice, alike": lambda config: (config, {"quant_config.json": next(iter(config.values()))}),
}


def test_each_way_has_a_reference():
    ways = {"bitsandbytes int8": "bitsandbytes int8", "8 bits with scales": "FP8", "MXFP4": "MXFP4"}
    for way in CODES:
        assert any(ways.get(way, way) in label for label in references()), way


@pytest.mark.parametrize("place", PLACES)
def test_numbers_are_those_that_the_library_reads(place):
    for label, reference in references().items():
        config, beside = PLACES[place](reference.config)
        if "MLX" in label and "beside" in place:  # whose word is the name of the entry
            beside["quantize_config.json"] |= {"quant_method": "mlx"}
        numbers = read(reference, config, beside)
        error = np.abs(numbers - reference.numbers).max() / np.abs(reference.numbers).max()
        assert error < 2e-7, label  # one rounding of a product
        some = range(1, min(3, len(numbers)))
        assert np.array_equal(read(reference, config, beside, some), numbers[some.start : some.stop]), label


def test_without_a_declaration_only_what_says_all_itself_is_read():
    for label, reference in references().items():
        said = label.startswith(("bitsandbytes", "quanto"))
        if said:
            assert np.array_equal(read(reference, {}), read(reference, reference.config)), label
        else:
            with pytest.raises(ValueError, match=r"is not stated|says"):
                read(reference, {})


def test_configs_that_contradict_or_lack_something_give_the_true_numbers_or_none():
    """A thousand changes at random to the configs of all references."""
    rng, outcomes = random.Random(0), Counter()
    cases = list(references().items())
    for _ in range(N_MUTATED):
        label, reference = rng.choice(cases)
        what, config, beside = mutated(reference.config, rng)
        try:
            numbers = read(reference, config, beside)
        except (ValueError, TypeError, KeyError, IndexError):  # what `CodedWeights` makes one line of
            outcomes["refused"] += 1
            continue
        right = numbers.shape == reference.numbers.shape and np.allclose(numbers, reference.numbers, 1e-6, 1e-6)
        assert right, (label, what, config, beside)
        outcomes["right"] += 1
    assert min(outcomes["right"], outcomes["refused"]) > N_MUTATED / 5, outcomes
