"""How the study prints numbers; tables, captions and cells all call these."""

import math


def format_log10_p(log10_p: float, digits: int = 1) -> str:
    """Log10 p with one decimal and thousands separated: ``-7,520.2``; nothing for a missing value."""
    if math.isnan(log10_p):
        return "–"
    rounded = round(log10_p, digits) + 0.0  # no "-0.0"
    return f"{rounded:,.{digits}f}"


def format_count(count: float) -> str:
    """Format a whole number with thousands separated: ``3,785,821``."""
    return f"{round(count):,}"


def format_ratio(ratio: float) -> str:
    """Format a ratio with its sign: ``2.5x``, ``41x``."""
    return f"{ratio:.1f}x" if abs(ratio) < 10 else f"{ratio:,.0f}x"


def format_seconds(seconds: float) -> str:
    """Format a duration with its unit: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``1 h 20 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_interval(value: float, low: float, high: float, digits: int = 3) -> str:
    """Write an estimate with its interval: ``0.050 (0.041 to 0.061)``."""
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
