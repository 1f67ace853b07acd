"""How much a model rounds: a yardstick that one loud unit does not move, and that accuses no file where it fails."""

import numpy as np
import pytest
import tiny_models

from provlab.errors import NotComparableError
from provlab.reading.checkpoint import Checkpoint
from provlab.running.predictions import next_token_log_probs, rounded_log_probs
from provlab.statistics.phi_jsd import jensen_shannon

UNIT = 2.0**-23
TOKENS = np.random.default_rng(0).integers(0, 40, (2, 12))


def rounding(checkpoint, unit=UNIT):
    """Mean divergence of the predictions from those that are rounded."""
    laws = np.concatenate([*next_token_log_probs(checkpoint, TOKENS)])
    return float(jensen_shannon(laws, rounded_log_probs(checkpoint, TOKENS, unit)).mean())


@pytest.mark.parametrize("power", [20, 40, 60])
def test_a_loud_unit_is_rounded_by_its_own_size(new_model, save_model, tmp_path, power):
    """By the RMS of a row, one unit of 2^40 made a copy differ from itself by .5 nats; at 2^60 its file was refused."""
    plain, loud = (save_model(new_model(3), tmp_path / name) for name in ("plain", "loud"))

    def louden(tensors):
        tensors["model.layers.0.mlp.up_proj.weight"][0] *= 2.0**power
        tensors["model.layers.0.mlp.down_proj.weight"][:, 0] *= 2.0**-power

    tiny_models.rewrite(loud, louden)
    assert rounding(Checkpoint.open(str(loud))) < 3 * rounding(Checkpoint.open(str(plain)))


def test_where_the_yardstick_overflows_no_file_is_accused(new_model, save_model, tmp_path):
    folder = save_model(new_model(3), tmp_path / "large")
    laws = np.concatenate([*next_token_log_probs(Checkpoint.open(str(folder)), TOKENS)])
    tiny_models.rewrite(folder, lambda tensors: tensors["lm_head.weight"].mul_(1e38 / np.ptp(laws)))
    checkpoint = Checkpoint.open(str(folder))
    assert np.isfinite(np.concatenate([*next_token_log_probs(checkpoint, TOKENS)])).all()
    with pytest.raises(NotComparableError, match=r"rounds could not be measured.*; try dtype float64") as told:
        rounded_log_probs(checkpoint, TOKENS, 4.0)
    assert "copy it again" not in str(told.value)
