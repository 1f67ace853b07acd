"""How the study prints numbers; tables, captions and cells all call these."""

import math


def format_log10_p(log10_p: float) -> str:
    """Log10 p with one decimal and thousands separated: ``-7,520.2``; nothing for a missing value."""
    if math.isnan(log10_p):
        return "–"
    return format_number(log10_p, ",.1f")


def format_count(count: float) -> str:
    """Format a whole number with thousands separated: ``3,785,821``."""
    return f"{round(count):,}"


def format_ratio(ratio: float) -> str:
    """Format a ratio with its sign: ``2.5x``, ``41x``."""
    return f"{ratio:.1f}x" if abs(ratio) < 10 else f"{ratio:,.0f}x"


def format_number(value: float, spec: str = ".3f") -> str:
    """Write a number by a format of Python's, as ``.2f``, ``+.1f``, ``.3g`` or ``.1%``; zero has no minus sign."""
    sign = "+" if spec.startswith("+") else ""
    return format(float(value), f"{sign}z{spec.removeprefix('+')}")


def format_range(low: float, high: float, spec: str = ".3f") -> str:
    """Write two ends: ``0.041 to 0.061``."""
    return f"{format_number(low, spec)} to {format_number(high, spec)}"


def format_interval(value: float, low: float, high: float, spec: str = ".3f") -> str:
    """Write an estimate with its interval: ``0.050 (0.041 to 0.061)``."""
    return f"{format_number(value, spec)} ({format_range(low, high, spec)})"


def format_duration(seconds: float) -> str:
    """Format seconds: ``0.42 s``, ``75 s``, ``12 min``, ``3.4 h``, ``5.1 days``."""
    for unit, length, below in (("s", 1.0, 90.0), ("min", 60.0, 5400.0), ("h", 3600.0, 172_800.0)):
        if seconds < below:
            number = seconds / length
            return f"{number:.{0 if number >= 10 else 1 if number >= 1 else 2}f} {unit}"
    return f"{seconds / 86_400:,.1f} days"
