"""The claims as a picture, for pages that cannot run a table."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

# a sign and a word for each status, so that colour only repeats what is said
SIGNS = {"holds": ("✓", "#00664d"), "fails": ("✗", "#a33c00"), "not run": ("–", style.MUTED)}
LINE = 0.15  # inches
COLUMNS = {"status": 0.42, "statement": 1.2, "published": 3.75, "ours": 4.95}
WRAP = {"statement": 44, "published": 20, "ours": 26}


@styled
def scoreboard(claims: Sequence[Mapping[str, Any]], *, caption: str = "") -> Figure:
    """Draw one row a claim: sign and word, the sentence, the published value and ours.

    Parameters
    ----------
    claims
        Mappings with the keys id, status ("holds", "fails" or "not run"), statement, published and ours.

    Raises
    ------
    InputError
        If a status is none of the three.
    """
    require(claims, "claims: there is nothing to draw")
    rows = []
    for claim in claims:
        status = str(claim["status"])
        require(status in SIGNS, f"claim {claim['id']}: status {status!r} is none of {', '.join(SIGNS)}")
        texts = {key: wrap(_text(claim.get(key)), width) or [""] for key, width in WRAP.items()}
        rows.append((str(claim["id"]), status, texts, max(len(lines) for lines in texts.values())))
    height = sum(LINE * lines + 0.12 for *_, lines in rows) + 0.35
    figure = style.canvas(height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.01, 0.0, 0.98, 1.0))
    axes.set_axis_off()
    axes.set(xlim=(0, style.WIDTH), ylim=(height, 0))
    for key, x in COLUMNS.items():
        axes.text(
            x, 0.12, "" if key == "status" else key, fontweight="bold", va="center", fontsize=style.SMALL
        )
    y = 0.25
    for name, status, texts, lines in rows:
        axes.axhline(y, color=style.GRID, linewidth=0.7)
        sign, color = SIGNS[status]
        top = y + 0.13
        axes.text(0.02, top, name, fontweight="bold", va="center", fontsize=8)
        axes.text(
            COLUMNS["status"],
            top,
            f"{sign} {status}",
            color=color,
            fontweight="bold",
            va="center",
            fontsize=8,
        )
        for key, parts in texts.items():
            for i, part in enumerate(parts):
                axes.text(COLUMNS[key], top + LINE * i, part, va="center", fontsize=style.SMALL)
        y += LINE * lines + 0.12
    counts = {word: sum(status == word for _, status, *_ in rows) for word in SIGNS}
    text = ", ".join(
        f"{count} {'hold' if word == 'holds' else word.replace('fails', 'fail')}"
        for word, count in counts.items()
    )
    told = "; ".join(f"{name} {status}" for name, status, *_ in rows)
    return Figure(
        figure, f"{caption} Of {len(rows)} claims: {text}.".strip(), f"Scoreboard of claims: {told}."
    )


def _text(value: object) -> str:
    return "–" if value is None or value == "" else str(value)
