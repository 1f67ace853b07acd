"""The text by which pages about the zoo's likely inputs choose their range of loss."""

from provlab import zoo


def held_out_texts(characters: int) -> dict[str, str]:
    """Return the first `characters` of the zoo's held-out prose and code, by kind."""
    return {kind: zoo.held_out_text(kind)[:characters] for kind in ("prose", "code")}
