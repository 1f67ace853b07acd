"""Claims as a file of YAML has them, and as the front matter of a model card does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from provlab.claimed.kinds import KINDS, Claim, read
from provlab.errors import InputError, ParameterError, one_line

FORM = "MODEL: a list of claims"
CARD = "README.md"
#: relation that a card does not name, by how many models it is based on
_ONE, _SEVERAL = "finetune", "merge"
#: what a loader of YAML raises: dates and numbers that are none leave it as errors of Python, and so does nesting
UNREADABLE = (yaml.YAMLError, ValueError, AttributeError, RecursionError)


def of_text(text: str) -> list[Claim]:
    """Read claims: a mapping of models, each with its claims, a line each.

    Raises
    ------
    ParameterError
        It is no such mapping, names a model twice, or a line is no claim.
    """
    try:
        node, content = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except UNREADABLE as error:
        raise ParameterError(f"the claims are no YAML ({one_line(error)}); write {FORM}") from error
    if not isinstance(content, dict) or not content or node is None:
        what = "empty" if not content else f"a {type(content).__name__}, and no mapping"
        raise ParameterError(f"the claims are {what}; write {FORM}")
    names = [key.value for key, _ in node.value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ParameterError(f"{twice} stands twice; write all claims about a model under one name")
    return of_lines(content)


def of_lines(claims: Mapping[Any, Any]) -> list[Claim]:
    """Read claims by model, each a line or a list of lines; errors as of `of_text`."""
    found = []
    for model, lines in claims.items():
        lines = [lines] if isinstance(lines, str) else lines
        if not isinstance(model, str) or not isinstance(lines, list) or not lines:
            raise ParameterError(f"{one_line(repr(model))} has no list of claims; write {FORM}")
        if odd := [line for line in lines if not isinstance(line, str)]:
            raise ParameterError(f"{one_line(repr(odd[0]))}, said of {model}, is no line of text; put it in quotes")
        found += [replace(read(line), model=model) for line in lines]
    return found


def of_card(folder: str | Path) -> list[Claim]:
    """Read what the front matter of a model's README says that it is based on.

    Its words are those of the hub: ``base_model``, a model or several, and ``base_model_relation``. Where the relation
    is left out, it is a finetune of one and a merge of several, as the hub has it.

    Raises
    ------
    InputError
        There is no card, or it says of no base; or of a relation that is judged nowhere.
    """
    from huggingface_hub.repocard import metadata_load

    path = Path(folder).expanduser() / CARD
    try:
        card = metadata_load(path) or {}
    except (OSError, UnicodeDecodeError) as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else one_line(error)
        raise InputError(f"{path} {reason}; give the folder of a model with its card") from error
    except UNREADABLE as error:
        raise InputError(f"the front matter of {path} is no mapping of YAML ({one_line(error)})") from error
    bases = card.get("base_model") or []
    bases = [bases] if isinstance(bases, str) else bases
    named = isinstance(bases, Sequence) and all(isinstance(base, str) and base.strip() for base in bases)
    if not bases or not named:
        raise InputError(f"{path} claims nothing: its front matter names no base_model")
    relation = card.get("base_model_relation") or (_SEVERAL if len(bases) > 1 else _ONE)
    kinds = {known: kind for kind in KINDS.values() for known in kind.relations}
    if not isinstance(relation, str) or relation not in kinds:
        raise InputError(f"{path} has the relation {relation!r}; judged are: {', '.join(kinds)}")
    line = kinds[relation].form.format(base=bases[0], bases=" and ".join(bases))
    if len(bases) > 1 and "{bases}" not in kinds[relation].form:
        raise InputError(f"{path} is {relation} of {len(bases)} models; one has a single base, or it is a merge")
    return [replace(read(line), model=str(folder))]
