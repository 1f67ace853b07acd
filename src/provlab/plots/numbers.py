"""How the study prints numbers; tables, captions and cells all call these."""

import math


def format_log10_p(log10_p: float) -> str:
    """Log10 p with one decimal and thousands separated: ``-7,520.2``; nothing for a missing value."""
    if math.isnan(log10_p):
        return "–"
    rounded = round(log10_p, 1) + 0.0  # no "-0.0"
    return f"{rounded:,.1f}"


def format_count(count: float) -> str:
    """Format a whole number with thousands separated: ``3,785,821``."""
    return f"{round(count):,}"


def format_ratio(ratio: float) -> str:
    """Format a ratio with its sign: ``2.5x``, ``41x``."""
    return f"{ratio:.1f}x" if abs(ratio) < 10 else f"{ratio:,.0f}x"


def format_interval(value: float, low: float, high: float, digits: int = 3) -> str:
    """Write an estimate with its interval: ``0.050 (0.041 to 0.061)``."""
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
