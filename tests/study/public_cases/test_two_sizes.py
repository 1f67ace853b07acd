"""The claim on two sizes of IgLM holds on a good record and fails for each reason; labels of chains."""

import pytest

from provlab_study.public_cases.predicates import shared_inputs
from provlab_study.public_cases.two_sizes import GERMLINES, germline

RULE = {"length": 25, "share": 0.5, "least": 100}


FEW = ((0.02, 0.01, 0.03), (0.03, 0.01, 0.05))
ALL = ((1.0, 0.99, 1.0), (1.0, 0.99, 1.0))


def pair(common=((0.95, 0.93, 0.97), (0.9, 0.8, 0.95)), effective=(600.0, 800.0), length=25, z=(0.1, 0.3), **controls):
    controls = {"shuffled": FEW, "unlike": FEW} | controls
    summary = {"effective": list(effective), "below_a": [0.7, 0.6, 0.8], "below_b": [0.6, 0.5, 0.7]}
    return {"prompt": "[HEAVY]", "length": length, "z": list(z), "summary": summary, "excess": [0.0, 0.0]} | {
        name: [list(side) for side in sides] for name, sides in ({"common": common} | controls).items()
    }


PLANTS = {
    "good": ([pair()], "holds"),
    "the larger model's inputs are its own": ([pair(((0.95, 0.9, 0.97), (0.02, 0.01, 0.03)))], "fails"),
    "one of two prompts": ([pair(), pair(((0.4, 0.3, 0.45), (0.9, 0.8, 0.95)))], "fails"),
    "an interval that reaches the bar": ([pair(((0.6, 0.4, 0.8), (0.9, 0.8, 0.95)))], "within_its_spread"),
    "Z is all losses": ([pair(ALL, z=(0.0, 99.0))], "fails"),
    "Z holds shuffled residues": ([pair(shuffled=ALL)], "fails"),
    "an unlike pair shares as much": ([pair(unlike=ALL)], "fails"),
    "an unlike pair may share as much": ([pair(unlike=((0.4, 0.3, 0.6), FEW[1]))], "within_its_spread"),
    "no unlike pair": ([pair(unlike=())], "not run"),
    "few draws": ([pair(effective=(21.0, 34.0))], "not run"),
    "another length alone": ([pair(length=100)], "not run"),
    "no package": ([], "not run"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_plants(plant):
    pairs, status = PLANTS[plant]
    assert shared_inputs(pairs, **RULE).status == status


def test_chains_are_named_by_their_germline():
    assert germline(GERMLINES["IGHV4"]) == "IGHV4"
    assert germline(GERMLINES["IGKV1"][6:] + "RASQSIS") == "IGKV1, from residue 7"
    assert germline("W" * 25) == "other"
