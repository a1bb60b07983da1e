"""Formats quantities for progress bars and tables."""

from __future__ import annotations

_STEPS = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def size(num_bytes: float) -> str:
    """Format bytes in decimal units: 261978986 as `262 MB`."""
    for factor, prefix in _STEPS:
        if num_bytes >= factor:
            return f"{_three(num_bytes / factor)}{prefix}B"
    return f"{num_bytes:.0f} B"


def amount(number: float) -> str:
    """Format a count: 25000095 as `25.0 M`; numbers below 10,000 unchanged."""
    if number < 10_000:
        return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    for factor, prefix in _STEPS:
        if number >= factor:
            return f"{_three(number / factor)}{prefix}"
    return f"{number:.0f}"


def count(number: int, unit: str) -> str:
    """Format a count with its unit: `25.0 M rows`, `262 MB`."""
    return size(number) if unit == "bytes" else f"{amount(number)} {unit}"


def rate(speed: float, unit: str) -> str:
    """Format a rate per second, or per minute below one per second."""
    if unit == "bytes":
        return f"{size(speed)}/s"
    return f"{amount(speed)} {unit}/s" if speed >= 1 else f"{amount(60 * speed)} {unit}/min"


def duration(seconds: float) -> str:
    """Format seconds: 4000 as `1 h 07 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def figure(value: float | None) -> str:
    """Format a metric; a dash if undefined."""
    return "–" if value is None else f"{value:.4f}"


def share(part: float) -> str:
    """Format a fraction: 0.1234 as `12.3 %`; `<0.1 %` just above 0, `>99.9 %` just below 1."""
    if 0 < part < 0.0005:
        return "<0.1 %"
    if 0.9995 <= part < 1:
        return ">99.9 %"
    return f"{100 * part:.1f} %"


def _three(number: float) -> str:
    """Format with three significant digits."""
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"
