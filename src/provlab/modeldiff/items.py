"""Questions with answers, read by two models: which answers changed, and whether more than chance changes.

Items come as lines of JSON: what an lm-eval run with ``--log_samples`` writes, or prompts with answers. A model gives
the answer of several that it finds likeliest, or, where there is one, gives it if each of its tokens is the likeliest
(as lm-eval's `acc` and `is_greedy`). Two models that answered the same items are compared pair by pair: McNemar's exact
test asks whether as many answers turned wrong as turned right.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.modeldiff.bootstrap import LEVEL
from provlab.modeldiff.pipeline import SequenceModel

_RESAMPLES = 4000  # of the bootstrap over items
_LEAST = 15  # items of an interval of means: resamples of fewer scatter too little


@dataclass(frozen=True)
class Item:
    """A question.

    Attributes
    ----------
    name
        What it is called.
    context
        What stands before an answer.
    answers
        One or more.
    right
        Number of the right one.
    """

    name: str
    context: str
    answers: tuple[str, ...]
    right: int = 0


def parsed(row: Mapping[str, Any], number: int) -> Item:
    """Read one line: ``arguments`` and ``target`` of lm-eval, or ``prompt``, ``answer`` and perhaps ``choices``.

    Raises
    ------
    InputError
        It has neither form, or its target is none of its answers; the message has the number of the line.
    """
    if "messages" in row and "prompt" not in row:
        raise InputError(
            f"line {number} is a chat, in which no answer is the right one; give questions with answers, or chats as "
            "openings (provlab diff --prompts)"
        )
    try:
        name = str(row.get("doc_id", row.get("id", number)))
        if "arguments" in row:
            return _of_lm_eval(name, row)
        context, answer, choices = _text(row["prompt"]), row["answer"], row.get("choices")
        if choices is None:
            return Item(name, context, (_spaced(context, _text(answer)),))
        answers = tuple(_spaced(context, _text(choice)) for choice in choices)
        return Item(name, context, answers, _right(answer, [str(choice) for choice in choices]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"line {number} is no item ({type(error).__name__} {error}); give lines of lm-eval's --log_samples, or "
            '{"prompt": ..., "answer": ...} and perhaps "choices": [...]'
        ) from error


def _text(value: Any) -> str:
    """Text, or a number as text; what is missing (null) is no text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is no text")
    return str(value)


def _of_lm_eval(name: str, row: Mapping[str, Any]) -> Item:
    requests = row["arguments"]
    pairs = list(requests.values()) if isinstance(requests, Mapping) else list(requests)
    pairs = [list(pair.values()) if isinstance(pair, Mapping) else list(pair) for pair in pairs]
    context, target = str(pairs[0][0]), row["target"]
    if not isinstance(pairs[0][1], str):  # generate_until: what was asked for is the target
        return Item(name, context, (_spaced(context, str(target)),))
    if any(pair[0] != context for pair in pairs):
        raise ValueError("its requests have several contexts")
    answers = [pair[1] for pair in pairs]
    return Item(name, context, tuple(answers), _right(target, answers) if len(answers) > 1 else 0)


def _right(target: Any, answers: Sequence[str]) -> int:
    plain = [answer.strip() for answer in answers]
    if isinstance(target, str) and target.strip() in plain:
        return plain.index(target.strip())
    number = int(target) if str(target).strip().lstrip("-").isdecimal() else -1
    if not 0 <= number < len(answers):
        raise ValueError(f"target {target!r} is none of {len(answers)} answers")
    return number


def _spaced(context: str, answer: str) -> str:
    if not answer.strip():
        raise ValueError("an answer is empty")
    return answer if answer[:1].isspace() or context[-1:].isspace() or not context else f" {answer}"


_EACH = "give one JSON object a line, as jq -c '.[]' makes them of a list"


def lines(text: str) -> list[dict[str, Any]]:
    """Read lines of JSON.

    Raises
    ------
    InputError
        A line is no JSON object, or there is none.
    """
    rows = []
    # a string of JSON may hold the other characters at which `splitlines` cuts, such as U+2028
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"line {number} is no JSON ({error}); {_EACH}") from error
            if not isinstance(row, dict):
                raise InputError(f"line {number} is no JSON object, but {type(row).__name__}; {_EACH}")
            rows.append(row)
    if not rows:
        raise InputError("there is no item; give lines of JSON")
    return rows


@dataclass(frozen=True)
class Answered:
    """One item under A and B.

    Attributes
    ----------
    name, context, answer
        The item, and its right answer.
    right
        Whether A gives the right answer, and whether B does.
    loss
        Loss of the right answer under A and under B (nats per token).
    divergence
        KL(A || B) and KL(B || A) of the laws of the next token, mean over the right answer (nats per token).
    given
        The answer that A gives, and B's; "" for one that is none of the item's.
    """

    name: str
    context: str
    answer: str
    right: tuple[bool, bool]
    loss: tuple[float, float]
    divergence: tuple[float, float]
    given: tuple[str, str] = ("", "")

    @property
    def costs(self) -> float:
        """What the right answer costs B more than A (nats per token)."""
        return self.loss[1] - self.loss[0]


@dataclass(frozen=True)
class Paired:
    """All items under A and B, the one that costs B most first.

    Attributes
    ----------
    items
        Each question once.
    seed
        Seeds the resamples.
    repeated
        How many lines asked a question that an earlier one had asked, and were left out.
    """

    items: tuple[Answered, ...]
    seed: int = 0
    repeated: int = 0

    @property
    def turned(self) -> tuple[int, int]:
        """How many answers turned wrong from A to B, and how many turned right."""
        wrong = sum(item.right == (True, False) for item in self.items)
        return wrong, sum(item.right == (False, True) for item in self.items)

    @property
    def other(self) -> int:
        """How many answers are not known to be the same under both, right or wrong."""
        return sum(item.given[0] != item.given[1] or not item.given[0] for item in self.items)

    @property
    def p(self) -> float:
        """p-value of as many answers turning wrong as right: McNemar's exact test, two-sided."""
        return pvalues.p_signs(*self.turned)

    @property
    def log10_p(self) -> float:
        """log10 of `p`, also where that underflows to 0."""
        return pvalues.log10_signs(*self.turned)

    @property
    def log10_least(self) -> float:
        """The least that `log10_p` could be with so many items: all of them turn one way."""
        return pvalues.log10_signs(len(self.items), 0)

    def accuracy(self) -> tuple[float, float]:
        """Share of right answers of A, and of B."""
        a, b = np.mean([item.right for item in self.items], axis=0)
        return float(a), float(b)

    def mean(self, values: Sequence[float]) -> list[float]:
        """Mean over items with its 95% interval, by bootstrap over items; an infinite one for fewer than 15."""
        array = np.asarray(values, dtype=float)
        if len(array) < _LEAST:
            return [float(array.mean()), -math.inf, math.inf]
        rng = np.random.default_rng(self.seed)
        means = array[rng.integers(len(array), size=(_RESAMPLES, len(array)))].mean(axis=1)
        low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return [float(array.mean()), float(low), float(high)]

    def costs(self) -> list[float]:
        """What the right answer costs B more than A (nats per token), mean over items with its interval."""
        return self.mean([item.costs for item in self.items])

    def more_right(self) -> list[float]:
        """By how much B's share of right answers is higher, with its 95% interval.

        Resamples of answers that did not change would show no change for certain. So half a count is added to each
        of the four kinds of items before the interval of a normal law is taken (Agresti and Min 2005, "Simple improved
        confidence intervals for comparing matched proportions").
        """
        wrong, right = self.turned
        n = len(self.items) + 2
        middle = (right - wrong) / n
        reach = float(special.ndtri((1 + LEVEL) / 2)) * math.sqrt(((right + wrong + 1) / n - middle**2) / n)
        value = (right - wrong) / len(self.items)
        return [value, max(-1.0, min(value, middle - reach)), min(1.0, max(value, middle + reach))]

    def divergence(self) -> tuple[list[float], list[float]]:
        """KL(A || B) and KL(B || A) over the right answers (nats per token), means over items with intervals."""
        return self.mean([i.divergence[0] for i in self.items]), self.mean([i.divergence[1] for i in self.items])


def questions(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many different questions these rows ask."""
    return len(distinct([parsed(row, number) for number, row in enumerate(rows, 1)])[0])


def answered(a: SequenceModel, b: SequenceModel, rows: Sequence[Mapping[str, Any]], *, seed: int) -> Paired:
    """Let two models answer items.

    Parameters
    ----------
    a, b
        Models of one tokenizer (`provlab.modeldiff.pipeline.open_models`).
    rows
        Items as plain data (`parsed`).
    seed
        The seed of intervals.

    Raises
    ------
    InputError
        A row is no item, or has a token that the models do not share, or is longer than their contexts.
    """
    items, repeated = distinct([parsed(row, number) for number, row in enumerate(rows, 1)])
    answers = []
    for item in a.bar(items, "and the other answer", "item"):
        readings = [_read(a, b, item, answer) for answer in item.answers]
        log_p = np.array([[-losses.sum() for losses in reading[0]] for reading in readings])  # (answers, 2)
        losses, greedy, divergence = readings[item.right]
        only = [item.answers[0] if sure else "" for sure in greedy]
        given = [item.answers[k] for k in log_p.argmax(axis=0)] if len(item.answers) > 1 else only
        # of equal answers any is right, whichever is the right one's place
        right = [answer == item.answers[item.right] for answer in given]
        answers.append(
            Answered(
                item.name,
                item.context,
                item.answers[item.right],
                (right[0], right[1]),
                (float(losses[0].mean()), float(losses[1].mean())),
                (float(divergence[0]), float(divergence[1])),
                (given[0], given[1]),
            )
        )
    return Paired(tuple(sorted(answers, key=lambda item: -item.costs)), seed, repeated)


def distinct(items: Sequence[Item]) -> tuple[list[Item], int]:
    """Each question once, under a name that no other has, and how many were repeats.

    lm-eval writes a question once for each of its filters, and a test of pairs would take the copies as so many
    questions. Files of several tasks, put together, use one number for several questions.
    """
    first: dict[Any, Item] = {}
    for item in items:
        first.setdefault((item.context, item.answers, item.right), item)
    kept = list(first.values())
    named, before = Counter(item.name for item in kept), Counter[str]()
    result = []
    for item in kept:
        before[item.name] += 1
        again = named[item.name] > 1
        result.append(replace(item, name=f"{item.name} ({before[item.name]})") if again else item)
    return result, len(items) - len(kept)


def _read(
    a: SequenceModel, b: SequenceModel, item: Item, answer: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Loss of each token of an answer ``(2, tokens)``, whether all are the likeliest ``(2,)``, divergences ``(2,)``."""
    context = item.context.rstrip()  # a space before an answer belongs to its first token
    whole, before = a.encode(item.context + answer), len(a.encode(context))
    if not len(whole) > before:
        raise InputError(f"item {item.name} has an answer without a token")
    if (whole < 0).any():
        raise InputError(f"item {item.name} has tokens that the two models do not share, or control tokens")
    n = len(whole) - max(before, 1 if not len(a.nll.start) else 0)  # a first token that nothing predicts is not judged
    room = min((m.nll.context for m in (a, b) if m.nll.context is not None), default=len(whole))
    whole = whole[-room:]  # of a long context the end
    if n > len(whole) - 1 + bool(len(a.nll.start)):
        raise InputError(f"item {item.name} has an answer of {n} tokens, more than the models read at once")
    laws = []
    ids = a.nll.checked(whole[None], shortest=1 if len(a.nll.start) else 2)
    for model in (a, b):
        ((_, law),) = model.nll.laws(ids, last=n)
        laws.append(law[0, -n:].double().cpu().numpy())  # (n, vocabulary)
    target = whole[-n:]
    losses = np.stack([-law[np.arange(n), target] for law in laws])  # (2, n)
    for model, loss in zip((a, b), losses, strict=True):
        model.nll.refuse_non_finite(loss)
    greedy = np.array([(law.argmax(axis=1) == target).all() for law in laws])
    ratio = laws[0] - laws[1]
    divergence = [
        max(0.0, float((np.exp(law) * sign * ratio).sum(axis=1).mean()))
        for law, sign in zip(laws, (1, -1), strict=True)
    ]
    return losses, greedy, np.array(divergence)
