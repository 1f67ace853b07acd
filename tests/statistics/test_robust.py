"""Statistics that withstand disguise: what each still finds in a disguised copy, and what a sign does to phi_MATCH."""

import pytest

from provlab import api, studying
from provlab.attacks import exact
from provlab.attacks.state import AttackedModel
from provlab.errors import ParameterError
from provlab.plots import style
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import REGISTRY, USUAL, flaws, get, register
from provlab.statistics.base import BY_THEOREM, CALIBRATED
from provlab.statistics.phi_u import PhiU
from provlab.statistics.results import BlockResult, Outcome

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}


def outcome(a, b, statistic, text):
    return api.compare(a, b, statistics=[statistic], text=text, **SIZES).records[0].outcome


def test_a_negative_scale_evades_phi_match_and_not_its_unsigned_form(models, text):
    negative = f"disguised:T6-:{models['base']}"
    assert outcome(models["base"], f"disguised:T1+T2+T3:{models['base']}", "phi_match", text).log10_p < -20
    assert outcome(models["base"], negative, "phi_match", text).log10_p > -3
    unsigned = outcome(models["base"], negative, "phi_match_unsigned", text)
    assert unsigned.log10_p < -20
    assert outcome(models["base"], models["stranger"], "phi_match_unsigned", text).log10_p > -3


def test_units_whose_mirrored_parts_would_seem_to_write_nothing_are_found(models, text, tmp_path):
    """As `mirror` with w = -u: what the parts at g and -g write points against the output of the unit itself."""

    def mirrored(units):
        parts = exact._three({**units, "up": -units["up"], "down": -units["down"]})
        return exact.with_more({**units, "up": 0 * units["up"]}, parts)

    state = AttackedModel.read(Checkpoint.open(models["base"])).with_units(mirrored, gated=True)
    for statistic in ("phi_match_unsigned", "phi_anchor"):
        assert outcome(models["base"], str(state.write(tmp_path / statistic)), statistic, text).log10_p < -20


def test_extensions_and_baselines_run_only_when_named():
    assert USUAL == ("phi_u", "phi_h", "phi_l2", "phi_jsd", "phi_match", "phi_match_unsigned", "phi_unseen")


def test_a_statistic_of_ones_own(models):
    """A reader's statistic, registered, stands in a study as any other, under its symbol in pictures."""

    @register
    class Gap(PhiU):
        name, symbol = "test_gap", r"$\Delta$"

        def compare_block(self, a, b, block, options):
            return BlockResult(block, float(abs(a.rows - b.rows).max()))

        def aggregate(self, blocks):
            return Outcome(max(block.value for block in blocks), None, tuple(blocks))

    report = studying.study([models["base"], models["tuned"]], statistics=["test_gap"], progress=False)
    assert report.records[0].outcome.value > 0
    assert style.symbol("test_gap of two") == r"$\Delta$ of two"
    del REGISTRY["test_gap"]


def test_statistics_of_packages_are_found_by_entry_point_and_others_named():
    assert get("huref_a").symbol == "$M_a$"
    with pytest.raises(
        ParameterError, match=r"no statistic is called 'phi_x'; there are phi_u, .*; did you mean phi_u"
    ):
        get("phi_x")


def test_a_theorem_is_named_where_there_is_one():
    """Theorems 1 and 2 of the paper, and phi_UNSEEN's own; the others say themselves that they have none."""
    proved = {name for name in REGISTRY if get(name).warrant == BY_THEOREM}
    assert proved == {"phi_u", "phi_h", "phi_l2", "phi_l2_blocks", "phi_e", "phi_unseen"}
    for name in REGISTRY.keys() - proved:
        calibrated = get(name).warrant == CALIBRATED
        assert get(name).assumptions.startswith("an empirical finding, not a theorem") == calibrated, name


def test_the_table_of_flaws_knows_every_test_and_two_that_no_free_disguise_hides_from():
    tests = {name for name in REGISTRY if get(name).assumptions}
    assert tests == flaws.NEEDS.keys()
    standing = {name for name in tests if all(name in flaw.withstand for flaw in flaws.FREE)}
    assert standing == {"phi_match_unsigned", "phi_match_all", "phi_anchor"}
