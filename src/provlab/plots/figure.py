"""What every drawing function returns: the picture, what to see in it, and the words that stand for it."""

import base64
import html
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.figure import Figure as Canvas

from provlab.errors import InputError
from provlab.files import atomic_file
from provlab.plots import legible
from provlab.plots.explore import PIXELS_PER_INCH, Spot, overlay
from provlab.plots.style import DPI

SHOWN = 2  # sentences of a caption that stand open: what to see
_END = re.compile(r"(?<=[.!?]) (?=\S)")


def spoken(text: str) -> str:
    """Return words for a screen reader: of a formula between dollars what one would say, without its commands."""
    return re.sub(r"\$([^$]*)\$", lambda formula: re.sub(r"\s+", " ", _said(formula[1])).strip(), text)


def _said(formula: str) -> str:
    plain = re.sub(r"\\log_\{?10\}?", "log10 ", formula).replace(r"\,", " ")
    return re.sub(r"[\\{}]", "", plain)


@dataclass(frozen=True)
class Figure:
    """A drawn figure with its caption and alt text; shows itself in a notebook and in the book.

    Parameters
    ----------
    figure
        The matplotlib figure. It is taken out of pyplot's hands, so that a cell shows it once.
    caption
        First what to see, in two sentences, then how it was made, which folds in HTML. Plain text.
    alt
        What a reader who cannot see the picture needs to know; formulas become words.
    spots
        Places that say in words what they show.
    narrow
        HTML that stands in the picture's place on the screen of a phone.

    Raises
    ------
    InputError
        If the caption or the alt text is empty.
    """

    figure: Canvas = field(repr=False)
    caption: str
    alt: str
    spots: tuple[Spot, ...] = field(default=(), repr=False)
    narrow: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("alt", "caption"):
            if not getattr(self, name).strip():
                raise InputError(f"{name} is empty: say in words what the figure shows")
        object.__setattr__(self, "alt", spoken(self.alt))
        plt.close(self.figure)

    def png(self) -> bytes:
        """Return the picture as PNG at 200 dpi, byte for byte the same from the same data; the file holds its words."""
        stream = io.BytesIO()
        words = {"Software": None, "Title": self.caption, "Description": self.alt}
        self.figure.savefig(stream, format="png", dpi=DPI, metadata=words)
        return stream.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the PNG to `path`, whole or not at all, and return the path."""
        path = Path(path)
        if path.suffix != ".png":
            raise InputError(f"{path.name}: figures are saved as .png")
        content = self.png()
        with atomic_file(path) as temporary:
            temporary.write_bytes(content)
        return path

    def to_html(self) -> str:
        """Return a ``<figure>`` that needs no other file."""
        return self._html(self.png())

    def _html(self, png: bytes) -> str:
        width = round(self.figure.get_figwidth() * PIXELS_PER_INCH)
        data = base64.b64encode(png).decode()
        picture = (
            f'<img alt="{html.escape(self.alt)}" style="width:{width}px;max-width:100%;height:auto" '
            f'src="data:image/png;base64,{data}"/>'
        )
        if self.spots:
            picture = (
                '<span style="position:relative;display:inline-block;line-height:0">'
                f"{picture}{overlay(self.figure, self.spots)}</span>"
            )
        # what cannot be read is said to whoever checks the page, and to no reader
        faults = legible.faults(self.figure)
        marked = f' data-illegible="{html.escape("; ".join(faults))}"' if faults else ""
        narrow = f'<div class="provlab-narrow">{self.narrow}</div>' if self.narrow else ""
        return (
            # the hidden box lets the book's style enlarge the picture on a tap, without a script
            f'<figure class="provlab-figure"{marked}><label><input type="checkbox" hidden/>{picture}</label>{narrow}'
            f"<figcaption>{self._words()}</figcaption></figure>"
        )

    def _words(self) -> str:
        sentences = _END.split(self.caption.strip())
        shown, rest = (html.escape(" ".join(part)) for part in (sentences[:SHOWN], sentences[SHOWN:]))
        return f"{shown}<details><summary>How it was made</summary>{rest}</details>" if rest else shown

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str | bytes], dict[str, dict[str, str]]]:
        png = self.png()
        bundle: dict[str, str | bytes] = {
            "text/plain": f"{self.caption}\n[{self.alt}]",
            "text/html": self._html(png),
            "image/png": base64.b64encode(png).decode(),
        }
        return bundle, {"image/png": {"alt": self.alt}}
