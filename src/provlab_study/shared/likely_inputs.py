"""The text by which pages about likely inputs choose their range of loss."""

from provlab import zoo


def held_out_texts(characters: int, own: str = "") -> dict[str, str]:
    """Return the first `characters` of one's own text, or without one of the zoo's held-out prose and code; by kind."""
    texts = {"text": own} if own else {kind: zoo.held_out_text(kind) for kind in ("prose", "code")}
    return {kind: text[:characters] for kind, text in texts.items()}
