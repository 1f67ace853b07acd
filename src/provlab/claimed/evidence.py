"""What the tests say of the models in a claim: facts, each of which holds or not. `kinds.toml` has what follows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from provlab.claimed.kinds import Claim
from provlab.inference import pvalues
from provlab.report.decide import EQUAL, IDENTICAL, NOT_REJECTED, ORDER, REJECTIONS, ROWS, SAME, UNTESTED
from provlab.report.family import LEVEL
from provlab.report.outcome import PairEvidence
from provlab.statistics.model import Model, numel

Edge = Mapping[str, Any]
#: in the JSON of a tree: what edges say of a model made of others, and the level on which an order is exact
_MERGE, _COMBINATION, _LATER, _EXACT = "merge", "combination", ("later", "descends"), "rows"


def over_the_file(log10_p: Sequence[float]) -> list[tuple[float, float]]:
    """By how much the p of each question, and the least that it could have been, grow over all questions (Holm).

    Parameters
    ----------
    log10_p
        One a question: already corrected over the tests of the question.

    Returns
    -------
    list of (float, float)
        log10 of both factors.
    """
    adjusted = pvalues.holm(np.array(log10_p, dtype=float))
    left = max(1, len(log10_p) - int((adjusted <= math.log10(LEVEL)).sum()))
    return [(float(p - own), math.log10(left)) for own, p in zip(log10_p, adjusted, strict=True)]


def smallest(pair: PairEvidence) -> float:
    """log10 of the smallest p of a pair's tests, corrected over them; 0 if there is none."""
    return min((min(test.log10_p, 0.0) for test in pair.tests), default=0.0)


def corrected(pair: PairEvidence, factors: tuple[float, float]) -> PairEvidence:
    """Take a pair as one question of several: its tests' p, and what they could have been, times these factors."""
    of_p, of_reach = factors
    tests = (replace(test, log10_p=test.log10_p + of_p, reach=test.reach + of_reach) for test in pair.tests)
    return replace(pair, tests=tuple(tests))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of one claim.

    Attributes
    ----------
    claim : Claim
    models : mapping
        Source -> the opened model, of all that the claim names.
    pairs : mapping
        Base -> what the tests say of the model and it, corrected over the file.
    edges : sequence of mapping
        Of the tree of all of them, as its JSON has them.
    answered : tuple or None
        Items under the base and the model (`provlab.modeldiff.items.Paired`), and two log10 p over the file: that of
        these answers, and the least that so many items could give.
    """

    claim: Claim
    models: Mapping[str, Model]
    pairs: Mapping[str, PairEvidence]
    edges: Sequence[Edge] = ()
    answered: tuple[Any, float, float] | None = None

    def holds(self, fact: str) -> bool:
        """Whether a fact, named in `kinds.toml`, holds."""
        return bool(getattr(self, fact))

    @cached_property
    def outcomes(self) -> dict[str, str]:
        """Base -> the outcome of the pair, one of `provlab.report.decide.OUTCOMES`."""
        return {base: pair.decision.outcome for base, pair in self.pairs.items()}

    def _some(self, *outcomes: str) -> bool:
        return not set(outcomes).isdisjoint(self.outcomes.values())

    #: holds where nothing else did
    always = True

    @property
    def identical(self) -> bool:
        """One of the bases has the same files, or the same tensors."""
        return self._some(IDENTICAL, EQUAL)

    @property
    def same(self) -> bool:
        """One of the bases computes the same function."""
        return self._some(SAME)

    @property
    def kin(self) -> bool:
        """Independence of each base is rejected."""
        return set(self.outcomes.values()) <= set(REJECTIONS)

    @property
    def weak(self) -> bool:
        """One of the bases agrees by an order, or by rows of an embedding."""
        return self._some(ORDER, ROWS)

    @property
    def not_rejected(self) -> bool:
        """One of the bases shows nothing, by a test that sees through every disguise without a cost."""
        return self._some(NOT_REJECTED)

    @property
    def unlike(self) -> bool:
        """One of the bases shows nothing, by a test that sees a common origin which nobody hid."""
        return any(
            self.outcomes[base] in (NOT_REJECTED, UNTESTED)
            and not pair.kin
            and any(test.able and test.evidence == "units" for test in pair.tests)
            for base, pair in self.pairs.items()
        )

    @property
    def base_is_later(self) -> bool:
        """Rows that no training reached show that a base was trained for longer than the model."""
        return any(
            edge["a"] == self.claim.model and edge["b"] in self.claim.bases
            for edge in self.edges
            if edge["relation"] in _LATER and edge["directed"] == _EXACT
        )

    def _joined(self, relation: str) -> set[str]:
        return {end for edge in self.edges if edge["relation"] == relation for end in (edge["a"], edge["b"])}

    @property
    def merged(self) -> bool:
        """The model's weights are made of those of all bases."""
        of = {edge["a"] for edge in self.edges if edge["relation"] == _MERGE and edge["joined"] == _EXACT}
        made = {edge["b"] for edge in self.edges if edge["relation"] == _MERGE}
        return made == {self.claim.model} and set(self.claim.bases) <= of

    @property
    def combined(self) -> bool:
        """One of the model and the bases is made of the others."""
        return {self.claim.model, *self.claim.bases} <= self._joined(_COMBINATION)

    @property
    def whole(self) -> bool:
        """Nothing was left out: no block, no tensor smaller, no more zeros."""
        model, base = self.models[self.claim.model], self.models[self.claim.bases[0]]
        names = set(model.checkpoint.tensor_names) & set(base.checkpoint.tensor_names)
        if model.anatomy.n_blocks < base.anatomy.n_blocks or any(numel(model, n) < numel(base, n) for n in names):
            return False
        return all(_zeros(model, name) <= _zeros(base, name) for name in names)

    @property
    def same_digest(self) -> bool:
        """One of the model's digests is the one that is claimed."""
        return self.claim.digest in self.digests.values()

    @property
    def in_part(self) -> bool:
        """Files of the model were not read whole."""
        return bool(self.models[self.claim.model].checkpoint.unverified)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of the model: of its tensors, of config and weight files, and of the weight file where that is one."""
        checkpoint = self.models[self.claim.model].checkpoint
        weights = [file for name, file in checkpoint.files().items() if name.endswith(tuple(_WEIGHTS))]
        found = {"tensors": checkpoint.content, "files": checkpoint.digest}
        found |= {"weights": weights[0]["sha256"]} if len(weights) == 1 else {}
        return {name: value for name, value in found.items() if value}

    @property
    def all_alike(self) -> bool:
        """Both give the same answer to each question, right or wrong."""
        return self.answered is not None and not self.answered[0].other

    @property
    def few_items(self) -> bool:
        """So few questions that no answers to them could have refuted the claim."""
        return self.answered is not None and self.answered[2] > math.log10(LEVEL)

    @property
    def turned(self) -> bool:
        """More answers turned one way than chance turns."""
        return self.answered is not None and self.answered[1] <= math.log10(LEVEL)


_WEIGHTS = (".safetensors", ".bin", ".gguf")


def _zeros(model: Model, name: str) -> int:
    return int((model.checkpoint.array(name) == 0).sum())


def by(pair: PairEvidence) -> tuple[str, float]:
    """Return the test with the smallest p of a pair, and that; "" and 0 if there is none."""
    best = min(pair.tests, key=lambda test: test.log10_p, default=None)
    return (best.name, min(best.log10_p, 0.0)) if best else ("", 0.0)
