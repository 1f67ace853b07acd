"""What the records of a run say of a sentence, and how a page marks the sentence.

A module of its own, since a kernel says what holds and needs nothing of the notebook's format, which is slow to import.
"""

from collections.abc import Sequence

UNDECIDED = "undecided"  # a value within its spread
PARTLY = "partly"  # some of what a sentence rests on was not tried, and the rest holds or is undecided
# before a sentence, by whether the records of the run say so, contradict it, do not hold it or some of it, or leave it
# open
MARKS: dict[bool | str | None, str] = {
    True: "",
    False: "**Not so in this run:** ",
    None: "**Not tried in this run:** ",
    PARTLY: "**In part not tried in this run:** ",
    UNDECIDED: "**Undecided in this run:** ",
}


def folded(title: str, lines: Sequence[str]) -> str:
    """Markdown below a heading that a reader opens, in the book and in JupyterLab; nothing without lines."""
    body = "\n".join(lines)
    return f"\n\n<details><summary>{title}</summary>\n\n{body}\n\n</details>" if lines else ""
