"""Openings: what stands before inputs, one for each of some prompts, read from a chat log, items of a test, or lines.

A model without a start token begins at a token that nothing predicts, drawn from all: at 32,000 tokens what a change
depends on hardly ever comes. Openings put it there. All count alike: an input is an opening and what follows it.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.kept import ArrayCache
from provlab.modeldiff import pipeline, reading
from provlab.modeldiff.items import parsed
from provlab.modeldiff.nll import SequenceNll
from provlab.modeldiff.pipeline import Generation, SequenceModel
from provlab.modeldiff.reading import Reading
from provlab.modeldiff.representative import Draws
from provlab.modeldiff.tokens import Prompt, opening
from provlab.report.card import cut

_MOST, _CHAINS = 100, 2  # openings of a comparison, and chains behind each, of a sequence or more
_SHOWN = 40  # characters of the beginning of an opening


def most_of(n: int) -> int:
    """How many openings are taken where each model writes `n` sequences; of a longer list so many are drawn."""
    return min(_MOST, n // _CHAINS)


def prompt_of(row: Mapping[str, Any], number: int) -> Prompt:
    """Read one line of JSON: the turns of a chat before its last answer, or the question of an item, or ``prompt``.

    Raises
    ------
    InputError
        It has none of these; the message has the number of the line.
    """
    turns = row.get("messages")
    if turns is None:
        if isinstance(prompt := row.get("prompt"), str) and "answer" not in row:
            return prompt
        return parsed(row, number).context
    if not (
        isinstance(turns, list)
        and all(
            isinstance(t, dict) and isinstance(t.get("role"), str) and isinstance(t.get("content"), str) for t in turns
        )
    ):
        raise InputError(f"line {number}: messages are a list of turns, each with a role and a content of text")
    asked = max((k for k, turn in enumerate(turns) if turn["role"] == "user"), default=-1)
    if asked < 0:
        raise InputError(f"line {number}: no user speaks in its messages, so there is nothing to answer")
    return tuple((turn["role"], turn["content"]) for turn in turns[: asked + 1])


def checked_prompts(prompts: Sequence[Any]) -> list[Prompt]:
    """Return prompts as texts or pairs of role and content, which may come as lists, as JSON keeps them.

    Raises
    ------
    InputError
        They are one text, or one of them is neither.
    """
    if isinstance(prompts, str):
        raise InputError("prompts are a list of openings; give one text as [text]")
    return [prompt if isinstance(prompt, str) else _turns(prompt) for prompt in prompts]


def _turns(prompt: Any) -> Prompt:
    turns = prompt if isinstance(prompt, list | tuple) else [prompt]
    if not turns or any(not isinstance(t, list | tuple) or list(map(type, t)) != [str, str] for t in turns):
        raise InputError(f"a prompt is a text, or pairs of role and content, not {cut(repr(prompt), _SHOWN)}")
    return tuple((role, content) for role, content in turns)


def drawn(prompts: Sequence[Prompt], most: int, seed: int) -> list[Prompt]:
    """Each prompt once, in order; of more than `most` so many, drawn by the seed."""
    distinct = list(dict.fromkeys(prompts))
    if len(distinct) <= most:
        return distinct
    chosen = np.sort(np.random.default_rng(seed).choice(len(distinct), most, replace=False))
    return [distinct[k] for k in chosen]


def words_of(prompt: Prompt) -> str:
    """The text of a prompt, turns one below the other."""
    return prompt if isinstance(prompt, str) else "\n".join(content for _, content in prompt)


@dataclass(frozen=True)
class Openings:
    """The same models behind each opening.

    Attributes
    ----------
    behind
        For each opening its models: A, B and references.
    texts
        For each opening its text; empty for the start token alone.
    """

    behind: tuple[tuple[SequenceModel, ...], ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, models: Sequence[SequenceModel], prompts: Sequence[Prompt], settings: Generation) -> "Openings":
        """Put models behind prompts, or leave them behind their start tokens where there are none.

        Raises
        ------
        InputError
            A prompt leaves no room for inputs in the context of a model.
        """
        if not prompts:
            return cls((tuple(models),), ("",))
        chosen = drawn(prompts, most_of(settings.n), settings.seed)
        behind = tuple(
            tuple(_behind(model, opening(model.checkpoint, prompt)) for model in models) for prompt in chosen
        )
        _check_room(behind, chosen, settings.length)
        return cls(behind, tuple(map(words_of, chosen)))

    def __len__(self) -> int:
        return len(self.behind)

    def written(self, which: int, settings: Generation, kept: ArrayCache) -> tuple[Draws, NDArray[np.int64]]:
        """What one of the models writes, a like number behind each opening, and ``(n,)`` the opening of each draw.

        About as many as asked for: each chain of an opening has a whole number of them. All of an opening is in one
        chain, so that intervals, which resample chains, allow for the choice of openings; where there are fewer
        openings than chains it is in several, and intervals are those of these openings.
        """
        k = len(self)
        # those of one of many openings count as one
        chains = max(_CHAINS, -(-settings.n_chains // k))
        own = replace(settings, n=chains * max(1, round(settings.n / k / chains)), n_chains=chains)
        parts = [pipeline.generated(models[which], own, kept) for models in self.behind]
        step = k if k < settings.n_chains else 0
        chain = np.concatenate([(j + step * part.chain) % settings.n_chains for j, part in enumerate(parts)])
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in ("tokens", "nll", "log_weight")
        }
        at = np.repeat(np.arange(k), [len(part) for part in parts])
        return Draws(joined["tokens"], joined["nll"], joined["log_weight"], chain, settings.n_chains), at

    def read(
        self, tokens: NDArray[np.integer[Any]], at: NDArray[np.int64], kept: ArrayCache, *, models: int | None = None
    ) -> Reading:
        """What all models, or the first of them, say of ``(n, length)`` tokens, each behind its opening ``(n,)``."""
        order, parts = [], []
        for j, behind in enumerate(self.behind):
            if len(rows := np.flatnonzero(at == j)):
                order.append(rows)
                parts.append(reading.read(behind[:models], tokens[rows], kept))
        if len(parts) == 1:
            return parts[0]
        back = np.argsort(np.concatenate(order))
        loss, divergence = (
            np.concatenate([getattr(part, n) for part in parts], axis=-2) for n in ("loss", "divergence")
        )
        return Reading(np.asarray(tokens, dtype=np.int64), loss[..., back, :], divergence[..., back, :])

    @property
    def nlls(self) -> list[tuple[SequenceNll, SequenceNll]]:
        """A and B behind each opening."""
        return [(models[0].nll, models[1].nll) for models in self.behind]


def _behind(model: SequenceModel, start: Sequence[int]) -> SequenceModel:
    """A model behind an opening of its own ids; its network is the same."""
    return replace(model, nll=behind(model.nll, start))


def _check_room(behind: Sequence[Sequence[SequenceModel]], prompts: Sequence[Prompt], length: int) -> None:
    """Raise InputError, which counts them, where prompts leave no room for inputs."""
    long = [
        (prompt, model.nll)
        for prompt, models in zip(prompts, behind, strict=True)
        for model in models
        if model.nll.context is not None and model.nll.context < length
    ]
    if not long:
        return
    (prompt, nll), n = long[0], len({words_of(prompt) for prompt, _ in long})
    assert nll.context is not None
    room, has = nll.context + len(nll.start), f"{len(nll.start):,} tokens of {nll.name}"
    raise InputError(
        f"{n} of {len(prompts)} openings leave no room for inputs of {length} tokens: that which begins "
        f"{words_of(prompt)[:_SHOWN]!r} has {has}, which reads {room:,} in all; give openings of at most "
        f"{max(room - length, 0):,} tokens"
    )


def behind(nll: SequenceNll, start: Sequence[int]) -> SequenceNll:
    """The same reader with other ids before every sequence."""
    other = copy.copy(nll)
    other.start = nll.start.new_tensor(list(start))
    other.context = None if nll.context is None else nll.context + len(nll.start) - len(start)
    other._opened = None
    return other
