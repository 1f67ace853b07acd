"""Draw the map of prerequisites: which chapter needs which, week by week, each a link to its page.

``python book/course/map.py`` writes ``book/_assets/course/prerequisites.svg``. Colours are the page's own, so that the
map reads in the book's light and dark dress.
"""

import html
from pathlib import Path

SESSIONS = len(list(Path(__file__).parent.glob("session_*.md")))
DRAWN = Path(__file__).parents[1] / "_assets" / "course" / "prerequisites.svg"

BEFORE = ("Matrices", "Probability, p-values", "Python with numpy", "Transformer blocks")
# theme, and the rows of its chapters: column, notebook, what stands in the box
WEEKS = (
    ("the null", [[(0, "exchangeability", "The framework"), (1, "matching_and_pvalues", "Matching")]]),
    (
        "many tests",
        [[(0, "calibration", "Calibration"), (1, "power", "Power"), (2, "llama_tree", "The Llama tree")]],
    ),
    (
        "the adversary",
        [
            [(2, "evasion", "Evasion")],
            [
                (0, "robust_null", "Is φ_MATCH a p-value?"),
                (1, "mlp_retraining", "Retrained"),
                (2, "pruning_forensics", "Pruning forensics"),
                (3, "attack_lab", "Attack lab"),
            ],
            [(1, "distillation", "Without a gate")],
        ],
    ),
    (
        "Model-diff",
        [
            [
                (0, "toy_modulo30", "The toy"),
                (1, "model_diff", "Language models"),
                (2, "two_models", "Your own two"),
            ],
            [(2, "plagiarism", "Noise on a copy")],
        ],
    ),
    (
        "auditing",
        [
            [
                (0, "audit", "Audit"),
                (1, "in_the_wild", "In the wild"),
                (2, "how_it_scales", "How it scales"),
                (3, "family_forest", "Family forest"),
            ],
            [(1, "public_cases", "Public cases")],
        ],
    ),
    ("confirmed", [[(0, "scoreboard", "Scoreboard"), (1, "what_failed", "What failed")]]),
)
FURTHER = (
    ("miqu", "A quantised leak"),
    ("olmo_seeds", "Two seeds of one recipe"),
    ("striped_hyena", "What a hybrid took"),
    ("encoders_and_fused", "Encoders, fused"),
)
# what chapters name under "Needs", as far as it does not follow from the rest; (to, from)
ARROWS = (
    ("matching_and_pvalues", "exchangeability"),
    ("calibration", "matching_and_pvalues"),
    ("power", "matching_and_pvalues"),
    ("llama_tree", "matching_and_pvalues"),
    ("further", "matching_and_pvalues"),
    ("evasion", "llama_tree"),
    ("robust_null", "calibration"),
    ("robust_null", "evasion"),
    ("pruning_forensics", "evasion"),
    ("mlp_retraining", "evasion"),
    ("attack_lab", "evasion"),
    ("distillation", "mlp_retraining"),
    ("model_diff", "toy_modulo30"),
    ("two_models", "model_diff"),
    ("plagiarism", "model_diff"),
)
# far from what they need: said in the box
AFTER = {
    "plagiarism": "and Matching",
    "in_the_wild": "after The Llama tree",
    "how_it_scales": "after Matching",
    "family_forest": "after The Llama tree",
    "public_cases": "after In the wild",
}

WIDE, HIGH, PITCH, LEFT = 190, 42, 214, 132
WIDTH = LEFT + 3 * PITCH + WIDE + 14


def drawn() -> str:
    """The map, as an SVG."""
    y, places, boxes, bands = 0, {}, [], []
    boxes.append(_label(22, "Before"))
    for column, words in enumerate(BEFORE):
        boxes.append(_text(LEFT + column * PITCH + WIDE / 2, 22, words))
        boxes.append(_frame(LEFT + column * PITCH, 3, 28, "before"))
    y = 44
    for number, (theme, rows) in enumerate(WEEKS, start=1):
        top = y
        y += 14
        for row in rows:
            for column, name, words in row:
                places[name] = (LEFT + column * PITCH, y)
                boxes.append(_box(name, words, *places[name]))
            y += HIGH + 28
        if number == 2:
            places["further"] = (LEFT + 3 * PITCH, top + 14)
            y = max(y, top + 14 + 30 + 24 * len(FURTHER) + 22)
            boxes += _further(*places["further"])
        y = max(y, top + 116)
        bands.append(f'<rect class="band" x="2" y="{top}" width="{WIDTH - 4}" height="{y - top - 10}" rx="8"/>')
        boxes += [_label(top + 30, f"Week {number}"), _label(top + 50, theme, "theme")]
        for line, session in enumerate(range(2 * number - 1, min(2 * number, SESSIONS) + 1)):
            link = _label(top + 74 + 20 * line, f"session {session}", "theme link")
            boxes.append(f'<a href="session_{session:02d}.html">{link}</a>')
    arrows = [_arrow(places[source], places[target]) for target, source in ARROWS]
    return "\n".join(
        [
            f'<svg class="provlab-map" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="group" '
            'aria-label="Map of prerequisites; the table of sessions says the same">',
            _STYLE,
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>',
            *bands,
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


_STYLE = """<style>
.provlab-map text { font: 15px system-ui, Arial, sans-serif; fill: currentColor; text-anchor: middle; }
.provlab-map text.label { text-anchor: start; font-weight: 600; }
.provlab-map text.theme { font-weight: 400; font-size: 13px; }
.provlab-map text.small { font-size: 12px; }
.provlab-map .link { text-decoration: underline; }
.provlab-map .band { fill: currentColor; fill-opacity: .06; }
.provlab-map .frame { fill: var(--pst-color-background, #fff); stroke: currentColor; stroke-width: 1.4; }
.provlab-map .before, .provlab-map .further { fill: none; stroke: currentColor; stroke-dasharray: 4 3; }
.provlab-map a:hover .frame, .provlab-map a:focus .frame { stroke-width: 3; }
.provlab-map path.arrow { fill: none; stroke: currentColor; stroke-opacity: .75; stroke-width: 1.4; }
.provlab-map path.arrow { marker-end: url(#tip); }
</style>"""


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{html.escape(words)}</text>'


def _label(y: float, words: str, kind: str = "") -> str:
    return f'<text x="14" y="{y:g}" class="label {kind}">{words}</text>'


def _frame(x: float, y: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{WIDE}" height="{height:g}" rx="6"/>'


def _box(name: str, words: str, x: float, y: float) -> str:
    middle, after = x + WIDE / 2, AFTER.get(name)
    lines = _text(middle, y + (18 if after else 26), words) + (_text(middle, y + 34, after, "small") if after else "")
    return f'<a href="../experiments/{name}.html">{_frame(x, y, HIGH, "frame")}{lines}</a>'


def _further(x: float, y: float) -> list[str]:
    drawn = [_frame(x, y, 30 + 24 * len(FURTHER), "further"), _text(x + WIDE / 2, y + 20, "Further reading", "small")]
    for line, (name, words) in enumerate(FURTHER):
        place = f'x="{x + WIDE / 2:g}" y="{y + 44 + 24 * line:g}" class="link"'
        drawn.append(f'<a href="../experiments/{name}.html"><text {place}>{html.escape(words)}</text></a>')
    return drawn


def _arrow(source: tuple[float, float], target: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = source, target
    if y1 == y2:
        return f'<path class="arrow" d="M{x1 + WIDE:g} {y1 + HIGH / 2:g}H{x2 - 2:g}"/>'
    a, b, c, d = x1 + WIDE / 2, y1 + HIGH, x2 + WIDE / 2, y2 - 2
    return f'<path class="arrow" d="M{a:g} {b:g}C{a:g} {(b + d) / 2:g} {c:g} {(b + d) / 2:g} {c:g} {d:g}"/>'


if __name__ == "__main__":
    DRAWN.parent.mkdir(parents=True, exist_ok=True)
    DRAWN.write_text(drawn(), encoding="utf-8")
