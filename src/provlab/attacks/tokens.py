"""The files of a tokenizer whose tokens are numbered otherwise, or have become more."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NoSuchSymmetryError

_SLOW = ("tokenizer.model", "spiece.model", "vocab.txt", "merges.txt")  # numbered by their lines, or binary


def renumbered(
    files: Mapping[str, str], others: Sequence[str], ids: NDArray[np.int64], n_tokens: int, *, name: str
) -> dict[str, str | None]:
    """Return the small files of a model after its tokens have got other numbers.

    Parameters
    ----------
    files
        Text of the JSON files.
    others
        Names of the files beside them.
    ids
        For each old number the new one.
    n_tokens
        Tokens that the model has now; those beyond the old ones get names of their own.
    name
        The name of the model, for the error.

    Returns
    -------
    dict
        Name -> new text, or None for a file that has to go, since the fast tokenizer's says the same.

    Raises
    ------
    NoSuchSymmetryError
        The tokenizer is only there in a form that fixes the numbers.
    """
    moved = (ids != np.arange(len(ids))).any()
    slow = [other for other in others if other in _SLOW and other != "merges.txt"]
    if moved and slow and "tokenizer.json" not in files:
        raise NoSuchSymmetryError(
            f"the tokens of {name} cannot be renumbered: {slow[0]} fixes them; add tokenizer.json"
        )
    new: dict[str, str | None] = dict.fromkeys(slow) if moved else {}
    for file, text in files.items():
        content = json.loads(text)
        if file in ("config.json", "generation_config.json"):
            content = {
                key: _moved(value, ids) if key.endswith("_token_id") else value for key, value in content.items()
            }
        elif file in ("vocab.json", "added_tokens.json"):
            content = {token: int(ids[old]) for token, old in content.items()}
        elif file == "tokenizer_config.json" and "added_tokens_decoder" in content:
            decoder = content["added_tokens_decoder"]
            content["added_tokens_decoder"] = {str(ids[int(old)]): token for old, token in decoder.items()}
        elif file == "tokenizer.json":
            content = _tokenizer(content, ids, n_tokens)
        new[file] = json.dumps(content, indent=2, ensure_ascii=False)
    return new


def _moved(value: Any, ids: NDArray[np.int64]) -> Any:
    if isinstance(value, list):
        return [_moved(entry, ids) for entry in value]
    return int(ids[value]) if isinstance(value, int) and 0 <= value < len(ids) else value


def _tokenizer(content: dict[str, Any], ids: NDArray[np.int64], n_tokens: int) -> dict[str, Any]:
    model, added = content["model"], content.get("added_tokens", [])
    if isinstance(model["vocab"], dict):
        known = set(model["vocab"].values())
        model["vocab"] = {token: int(ids[old]) for token, old in model["vocab"].items()}
    else:  # Unigram: pairs of token and score, numbered by their order; unused numbers need a token that no text has
        known = set(range(len(model["vocab"])))
        places = {int(ids[old]): pair for old, pair in enumerate(model["vocab"])}
        model["vocab"] = [places.get(new, [f"<unused {new}>", -100.0]) for new in range(max(places) + 1)]
        model["unk_id"] = _moved(model.get("unk_id"), ids)
    known |= {token["id"] for token in added}
    added = [{**token, "id": int(ids[token["id"]])} for token in added]
    if known == set(range(len(ids))):  # otherwise there are numbers without a token as it is
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added += [{"id": new, "content": f"<|extra {new}|>", **flags} for new in range(len(ids), n_tokens)]
    content["added_tokens"] = sorted(added, key=lambda token: token["id"])
    processor = content.get("post_processor") or {}
    for token in (processor.get("special_tokens") or {}).values():
        token["ids"] = _moved(token["ids"], ids)
    for role in ("sep", "cls"):  # of the processors of BERT and RoBERTa: [token, number]
        if isinstance(processor.get(role), list):
            processor[role] = [processor[role][0], _moved(processor[role][1], ids)]
    return content
