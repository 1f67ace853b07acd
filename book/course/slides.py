"""Turn the session pages of the course into slides: one HTML file a session, which needs no network and no other file.

Slides show the title with the paragraph below it, and every ``###`` section, each a slide. Text right below
a ``##``, or in a ``{seealso}``, is for the book's page alone. A dropdown becomes a speaker note (key S). The comment

    % figure: llama_tree all-pairs

places the figure that the cell of this name, its id, shows in the executed chapter (with a 2 behind it, the second).
"""

import base64
import html
import json
import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from mdit_py_plugins.myst_role import myst_role_plugin
from session_pictures import figure_of

COURSE = Path(__file__).parent
ASSETS = COURSE.parent / "_assets"
NOTEBOOKS = COURSE.parents[1] / "notebooks"
BUILD = COURSE.parents[1] / "_build"

_FIGURE = re.compile(r"figure:\s*(\w+)\s+([\w-]+)(?:\s+(\d+))?$")
_DIRECTIVE = re.compile(r"\{([\w-]+)\}\s*(.*)")
_ON_PAPER = re.compile(r"by hand|vote|^lab|discuss", re.IGNORECASE)  # slides of which students get a sheet
_ANSWER = re.compile(r'(?s)<aside class="notes">.*?</aside>')
_BOXES = ("note", "tip", "important", "warning", "admonition")

_DECK = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{reveal_css}</style>
<style>{own_css}</style>
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
<script>
window.MathJax = {{
  tex: {{inlineMath: [["\\\\(", "\\\\)"]], displayMath: [["\\\\[", "\\\\]"]]}},
  svg: {{fontCache: "global"}},
  options: {{enableMenu: false}},
  startup: {{typeset: false}},
}};
</script>
<script>{mathjax}</script>
<script>{reveal}</script>
<script>{notes}</script>
<script>
Reveal.initialize({{
  hash: true, slideNumber: "c/t", transition: "none", width: 1200, height: 700, margin: 0.04, center: false,
  pdfSeparateFragments: false, plugins: [RevealNotes],
}});
// a slide with more than fits, as a lab with its commands, is set in smaller type, as long as the last row can read it
function fit() {{
  const slide = Reveal.getCurrentSlide();
  for (let size = 1; slide.scrollHeight > 700 && size > 0.7; size -= 0.04) slide.style.fontSize = `${{size - 0.04}}em`;
}}
MathJax.startup.promise.then(() => MathJax.typesetPromise()).then(() => {{ Reveal.layout(); fit(); }});
Reveal.on("slidechanged", fit);
</script>
</body>
</html>
"""

_SHEETS = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Handouts</title>
<style>
body {{ font: 11pt/1.5 Georgia, serif; max-width: 42rem; margin: 2rem auto; }}
@media print {{ body {{ font-size: 10pt; line-height: 1.4; max-width: none; margin: 0; }} }}
@page {{ margin: 14mm 16mm; }} article {{ break-after: page; }} h3, table, pre {{ break-inside: avoid; }}
h3 {{ margin: 1.6rem 0 0.4rem; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #888; padding: 0.2rem 0.6rem; }}
pre {{ white-space: pre-wrap; }}
</style></head><body>{sheets}
<script>window.MathJax = {{tex: {{inlineMath: [["\\\\(", "\\\\)"]], displayMath: [["\\\\[", "\\\\]"]]}}}};</script>
<script>{mathjax}</script></body></html>
"""


def _sessions(weeks: Iterable[int], pages: Path) -> list[int]:
    """Numbers of the sessions of some weeks: two a week, one in a last one that has no more."""
    numbers = [session for week in weeks for session in (2 * week - 1, 2 * week)]
    return [number for number in numbers if (pages / f"session_{number:02d}.md").is_file()]


def build(weeks: Iterable[int], pages: Path, out: Path) -> list[Path]:
    """Write the decks of the sessions of each week.

    Parameters
    ----------
    weeks : iterable of int
        From 1 to 5.
    pages : Path
        Folder of the session pages, ``session_01.md`` and so on.
    out : Path
        Where the decks go, ``session_01.html`` and so on.

    Returns
    -------
    list of Path
        The decks. Figures come from executed chapters; where one has not been run, the slide says which command does.
    """
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for number in _sessions(weeks, pages):
        deck = out / f"session_{number:02d}.html"
        deck.write_text(deck_of(pages / f"session_{number:02d}.md"), encoding="utf-8")
        written.append(deck)
    return written


def handouts(weeks: Iterable[int], pages: Path, out: Path) -> Path:
    """Write the sheets of some weeks, to be printed: of each session what students work on, without the answers."""
    sheets = []
    for number in _sessions(weeks, pages):
        slides = Slides(pages / f"session_{number:02d}.md")
        title, *parts = slides.parts()
        work = [part for part in parts if _ON_PAPER.search(_plain(part[1]))]
        sheets.append("".join(slides.html(part) for part in [title[:3], *work]))
    page = out / "handouts.html"
    sheet = "".join(f"<article>{_ANSWER.sub('', sheet)}</article>" for sheet in sheets)
    page.write_text(_SHEETS.format(sheets=sheet, mathjax=_read("mathjax", "tex-svg.js")), encoding="utf-8")
    return page


def deck_of(session: Path) -> str:
    """The deck of one session page, as HTML."""
    slides = Slides(session)
    parts = slides.parts()
    shown = [f'<section class="title">{slides.html(parts[0])}</section>']
    shown += [f"<section>{slides.html(part)}</section>" for part in parts[1:]]
    return _DECK.format(
        title=html.escape(_plain(parts[0][1])),
        reveal_css=_read("reveal", "reveal.css"),
        own_css=(COURSE / "slides.css").read_text(encoding="utf-8"),
        slides="\n".join(shown),
        mathjax=_read("mathjax", "tex-svg.js"),
        reveal=_read("reveal", "reveal.js"),
        notes=_read("reveal", "notes.js"),
    )


def executed(name: str) -> Path | None:
    """The page of a chapter that was run: in ``$PROFILE`` if that is set, else in the default or the smoke profile."""
    profiles = [os.environ["PROFILE"]] if os.environ.get("PROFILE") else ["default", "smoke"]
    pages = [BUILD / profile / "book" / "experiments" / f"{name}.ipynb" for profile in profiles]
    return next((page for page in pages if page.is_file()), None)


def _read(*names: str) -> str:
    return ASSETS.joinpath(*names).read_text(encoding="utf-8")


def _plain(inline: Token) -> str:
    return "".join(child.content for child in inline.children or [])


class Slides:
    """The slides of one page, and how what MyST adds to Markdown is shown on them."""

    def __init__(self, page: Path) -> None:
        self.page = page
        self.parser = MarkdownIt("commonmark").enable("table")
        for plugin in (colon_fence_plugin, deflist_plugin, dollarmath_plugin, amsmath_plugin, myst_role_plugin):
            self.parser.use(plugin)
        self.parser.use(myst_block_plugin)
        shown_by = {kind: getattr(self, kind) for kind in ("math_inline", "math_block", "myst_role", "image")}
        shown_by |= {"amsmath": self.math_block, "myst_line_comment": self.comment}
        shown_by |= dict.fromkeys(("fence", "colon_fence"), self.fence)
        shown_by |= dict.fromkeys(("link_open", "link_close"), self.link)
        for kind, show in shown_by.items():
            # a rule is made a method of the renderer, which is then its first argument
            self.parser.add_render_rule(kind, lambda _, *tokens, show=show: show(*tokens))

    def parts(self) -> list[list[Token]]:
        """Tokens of the title slide, and of each ``###`` section."""
        tokens = self.parser.parse(self.page.read_text(encoding="utf-8"))
        if not tokens or (tokens[0].type, tokens[0].tag) != ("heading_open", "h1"):
            raise ValueError(f"{self.page} does not begin with a title, a line '# ...'")
        parts, shown = [[]], True
        for token in tokens:
            if token.type == "heading_open" and token.tag in ("h2", "h3"):
                shown = token.tag == "h3"
                if shown:
                    parts.append([])
            if shown:
                parts[-1].append(token)
        return parts

    def html(self, tokens: Sequence[Token]) -> str:
        """Some tokens, or a text, rendered."""
        return self.parser.renderer.render(tokens, self.parser.options, {})

    def _text(self, text: str) -> str:
        return self.html(self.parser.parse(text))

    def math_inline(self, tokens: Sequence[Token], at: int, *_: object) -> str:
        return f"\\({html.escape(tokens[at].content)}\\)"

    def math_block(self, tokens: Sequence[Token], at: int, *_: object) -> str:
        return f'<div class="formula">\\[{html.escape(tokens[at].content)}\\]</div>'

    def myst_role(self, tokens: Sequence[Token], at: int, *_: object) -> str:
        role, text = tokens[at].meta["name"], tokens[at].content
        named = re.fullmatch(r"(.*\S)\s*<(.+)>", text)
        if role == "doc":
            return f"<cite>{html.escape(named[1] if named else self._title(text))}</cite>"
        if role.startswith("cite"):
            return html.escape("; ".join(_cited(key.strip()) for key in text.split(",")))
        if role in ("term", "ref", "abbr"):
            return html.escape(named[1] if named else re.sub(r"\s*\(.*", "", text) if role == "abbr" else text)
        raise ValueError(f"{self.page.name}: slides do not know the role {{{role}}}")

    def _title(self, target: str) -> str:
        path = (self.page.parent / target).resolve()
        if path.parent.name == "experiments":
            notebook = NOTEBOOKS / f"{path.name}.ipynb"
            first = "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"])
        else:
            first = path.with_suffix(".md").read_text(encoding="utf-8")
        return re.search(r"^# (.*)$", first, re.MULTILINE)[1]

    def comment(self, tokens: Sequence[Token], at: int, *_: object) -> str:
        figures = [_FIGURE.match(line.strip()) for line in tokens[at].content.splitlines()]
        return "".join(self.figure(*figure.groups()) for figure in figures if figure)

    def figure(self, name: str, cell: str, number: str | None) -> str:
        """The figure that a cell of an executed page shows, or the command that makes it."""
        if page := executed(name):
            cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
            if shown := figure_of(cells, cell, number):
                return _picture("image/png", *shown)
            logging.getLogger(__name__).error("%s: the cell %s of %s draws no picture", self.page.name, cell, page)
            return '<p class="missing">The run of this chapter drew no such picture.</p>'
        title = html.escape(self._title(f"../experiments/{name}"))
        return (
            f'<p class="missing">A figure of <cite>{title}</cite> stands here once that chapter has been run: '
            "<code>make notebooks PROFILE=smoke</code>, then <code>make course</code>.</p>"
        )

    def fence(self, tokens: Sequence[Token], at: int, *_: object) -> str:
        directive = _DIRECTIVE.match(tokens[at].info.strip())
        if directive is None:
            return f"<pre><code>{html.escape(tokens[at].content)}</code></pre>"
        name, title = directive.groups()
        body = re.sub(r"\A(:[\w-]+:.*\n)+", "", tokens[at].content)
        if name == "dropdown":
            return f'<aside class="notes"><p><strong>{html.escape(title)}</strong></p>{self._text(body)}</aside>'
        if name == "seealso":
            return ""
        if name in _BOXES:
            heading = f"<p><strong>{html.escape(title)}</strong></p>" if title else ""
            return f'<div class="box">{heading}{self._text(body)}</div>'
        if name == "math":
            return f'<div class="formula">\\[{html.escape(body)}\\]</div>'
        raise ValueError(f"{self.page.name}: slides do not know the directive {{{name}}}")

    def link(self, tokens: Sequence[Token], at: int, *_: object) -> str:
        """A link to the web stays; pages of the book do not lie beside a deck, so of those the words are shown."""
        kept = [token for token in tokens[: at + 1] if token.type == "link_open"]
        if not str(kept[-1].attrs["href"]).startswith("https://"):
            return ""
        return self.parser.renderer.renderToken(tokens, at, self.parser.options, {})

    def image(self, tokens: Sequence[Token], at: int, *_: object) -> str:
        path = self.page.parent / str(tokens[at].attrs["src"])
        kind = {".svg": "image/svg+xml", ".png": "image/png"}[path.suffix]
        return _picture(kind, base64.b64encode(path.read_bytes()).decode(), tokens[at].content)


def _picture(kind: str, encoded: str, alt: str) -> str:
    # reveal.js gives it the height that the words beside it leave
    return f'<img class="r-stretch" src="data:{kind};base64,{encoded}" alt="{html.escape(alt, quote=True)}">'


def _cited(key: str) -> str:
    """A work of the bibliography as its first author and year."""
    entry = re.search(rf"@\w+\{{{re.escape(key)},(.*?)\n\}}", (COURSE.parent / "references.bib").read_text(), re.DOTALL)
    if entry is None:
        raise ValueError(f"references.bib has no entry {key}")
    author, year = (
        re.search(rf"\b{field}\s*=\s*[{{\"](.+?)[}}\"],?$", entry[1], re.MULTILINE) for field in ("author", "year")
    )
    names = author[1].strip("{}").split(" and ")
    first = names[0].split(",")[0] if "," in names[0] else names[0].split()[-1]
    return f"{first}{' et al.' if len(names) > 1 else ''} {year[1]}"
