"""Secrets in text: passwords and addresses with them, for options and messages."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"(password|passwd|pwd|secret_access_key|session_token)\s*=>?\s*['\"]?\w|://[^/\s'\"]+:[^/\s'\"]+@", re.IGNORECASE
)


def holds_secret(text: str) -> bool:
    """Whether a text has a password or key, by name or in an address."""
    return _SECRET.search(text) is not None
