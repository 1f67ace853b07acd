"""An attack on the tokenizer alone: its tokens are respelt, and text in and out stays."""

import json
import shutil
from pathlib import Path

from provlab.reading.checkpoint import Checkpoint

_SWAP = str.maketrans("ao", "oa")  # letters that no rule cuts a text by, as it does at 's, 't and 're
#: exchanges the two letters by three replacements, through a character that no text has
_STEPS = [
    {"type": "Replace", "pattern": {"String": old}, "content": new}
    for old, new in (("a", "\ue000"), ("o", "a"), ("\ue000", "o"))
]


def respelt(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write a model whose tokens have two letters exchanged, as has each text before it is cut and after it is joined.

    The tokenizer is a byte-level BPE in ``tokenizer.json``, as those of the zoo.
    """
    shutil.copytree(checkpoint.folder(), folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    model, added = content["model"], {token["content"]: token["id"] for token in content["added_tokens"]}
    model["vocab"] = {
        token if token in added else token.translate(_SWAP): number for token, number in model["vocab"].items()
    }
    model["merges"] = [[part.translate(_SWAP) for part in pair] for pair in model["merges"]]
    content["normalizer"] = {"type": "Sequence", "normalizers": _STEPS}
    content["decoder"] = {"type": "Sequence", "decoders": [content["decoder"], *_STEPS]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return folder
