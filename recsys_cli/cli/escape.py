"""Text of others on a terminal: names of files, values of data and configs may hold characters that a terminal obeys."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All controls but tabs and line ends, and the marks that turn the direction of writing."""


def escaped(text: str) -> str:
    r"""Write control characters out: `\x1b` instead of the escape that begins a terminal's command."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
