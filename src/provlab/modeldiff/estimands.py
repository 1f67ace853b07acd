"""What each gate asks of a comparison: one number that the report shows, the size it is held against, its p-value."""

import numpy as np

from provlab.modeldiff.excess import above
from provlab.modeldiff.findings import excess_words
from provlab.modeldiff.found import Found
from provlab.modeldiff.gates import Gate, Measured
from provlab.modeldiff.outputs import enough, number
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.modeldiff.representative import LEAST_EFFECTIVE
from provlab.modeldiff.rounding import WAYS

_FAR = "B is far nearer than any reference: give some that change as little (A fine-tuned again), or none and a size"


def measured(found: Found, gate: Gate) -> Measured:
    """The number of one gate, its size, and its p-value or why it has none."""
    if found.equal:
        return Measured("A and B are equal", gate.size or 0.0, 1.0)
    if gate.name == "answers":
        return _answers(found)
    if gate.name == "outputs":
        apart = [float(np.mean([of.divergence[k] for of in found.outputs])) for k in range(3)]
        size = _eight_bits(found, "AB", apart[0]) if gate.size is None else gate.size
        value = f"what either writes costs the other {number(apart)} nats per token more"
        if (worth := min(of.worth for of in found.outputs)) < LEAST_EFFECTIVE:
            return Measured(value, size, None, f"the outputs are worth {worth:.0f} draws. {_write_more(found)}")
        return Measured(value, size, above(apart, size, N_CHAINS - 1))
    among = found.apart.among
    where = "text" if found.text else "A"
    size = gate.size if gate.size is not None else 0.0 if among else _eight_bits(found, where, found.apart.both[0])
    value, p = excess_words(found), found.apart.p(size)
    if among and among.small and p > found.level and not found.rounding:  # rounding is smaller than any change
        return Measured(value, size, None, _FAR)
    return Measured(value, size, p)


def _answers(found: Found) -> Measured:
    assert found.items is not None  # asked without items it is refused
    wrong, right = found.items.turned
    words = f"{wrong} answers turned wrong and {right} right"
    if wrong > right:
        return Measured(f"{words} (McNemar's exact test)", 0.0, found.items.p)
    return Measured(f"{words}, no more wrong than right", 0.0, 1.0)


def _eight_bits(found: Found, where: str, distance: float) -> float:
    """How much of a distance rounding to 8 bits would make, by what it makes of some of the sequences."""
    shares = [one.share for one in found.roundings if one.way == WAYS[-1] and one.where in where]
    return distance * float(np.mean(shares)) if shares else 0.0


def _write_more(found: Found) -> str:
    return enough(found.parameters, min(output.worth for output in found.outputs))
