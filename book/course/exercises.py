"""Write the overview of all exercises, ``exercises.md``, from the notebooks; a test compares the two."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).parent / "exercises.md"
NOTEBOOKS = PAGE.parents[2] / "notebooks"

_EXERCISE = re.compile(
    r"(?ms)^`{3,}\{exercise\} ([^\n]+)\n:label: \S+\n+"
    r"\*Difficulty (\d) of 3, importance (\d) of 3, (\d+) minutes\.\*"
)
_HEAD = """# All exercises

{n} exercises with hidden solutions, {hours} hours in all, in the order of the book. Difficulty and
importance are out of 3. Begin with those of importance 3 and difficulty 1.

| Chapter | Exercise | Difficulty | Importance | Minutes |
|---|---|---|---|---|
"""


def drawn() -> str:
    """Return the page: a row for each exercise, in the order of the table of contents."""
    toc = (PAGE.parents[1] / "_toc.yml").read_text(encoding="utf-8")
    rows, minutes = [], 0
    for chapter in re.findall(r"file: experiments/(\w+)", toc):
        notebook = json.loads((NOTEBOOKS / f"{chapter}.ipynb").read_text(encoding="utf-8"))
        words = "\n\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
        for title, difficulty, importance, time in _EXERCISE.findall(words):
            rows.append(f"| {{doc}}`../experiments/{chapter}` | {title} | {difficulty} | {importance} | {time} |\n")
            minutes += int(time)
    return _HEAD.format(n=len(rows), hours=round(minutes / 60)) + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(drawn(), encoding="utf-8")
