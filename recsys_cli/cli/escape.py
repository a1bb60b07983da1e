"""Escapes untrusted text for a terminal: it may contain control characters."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, and bidirectional marks."""


def escaped(text: str) -> str:
    r"""Replace control characters by their escape sequences, such as `\x1b`."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
