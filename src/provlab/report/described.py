"""What a report says of each model: which it was, and what decides which statistics could read it."""

from collections.abc import Collection, Mapping
from typing import Any

from provlab import statistics as registry
from provlab.errors import CheckpointError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.coverage import coverage
from provlab.reading.forms import written
from provlab.report.outcome import reads_text
from provlab.report.records import describe
from provlab.statistics.model import Model
from provlab.statistics.options import Options


def described(
    models: Mapping[str, Model], ran: Collection[str] = (), options: Options | None = None, *, forms: bool = False
) -> tuple[dict[str, Any], ...]:
    """What a report says of each model, and what decides which statistics could read it.

    Parameters
    ----------
    models
        By their sources.
    ran, options
        Names of the statistics that ran, and the options as they ran: these say whether tokenizers were read, and
        whether a model without one was given the ids of another, or random ones.
    forms
        Say too, where a text was read, in which forms the users of each model may give it one; a tokenizer is made for
        that if none was.
    """
    options = options or Options()
    read = any(registry.get(name).reads_tokenizers(options) for name in ran)
    lent = options.shared is not None  # the text's tokens were brought together
    forms = forms and any(map(reads_text, ran))
    return tuple(
        describe(source, model.checkpoint, tokenizer=read)
        | {
            "read_as": model.anatomy.architecture if model.anatomy.named else None,
            "blocks": model.anatomy.n_blocks,
            "width": model.anatomy.width,
            "gated": model.anatomy.gated,
            "coverage": coverage(model.checkpoint, model.anatomy),
            "experts": any(model.anatomy.mlps(block) != ("",) for block in range(model.anatomy.n_blocks)),
        }
        | ({"lent_ids": model.checkpoint.tokenizer_digest is None} if lent else {})
        | (_forms(model.checkpoint) if forms else {})
        for source, model in models.items()
    )


def _forms(checkpoint: Checkpoint) -> dict[str, Any]:
    """Forms in which a model's users may give it a text, and why its chat template names none."""
    try:
        told = written(checkpoint)
    except CheckpointError:  # there is no tokenizer, or its tests say what is wrong with it
        return {}
    return {"forms": told.of_users, "template": told.refused}
