"""Secrets in text: passwords, addresses with them and signed URLs, for options and messages."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"(password|passwd|pwd|secret_access_key|session_token)\s*=>?\s*['\"]?\w|://[^/\s'\"]+:[^/\s'\"]+@"
    r"|[?&](sig|signature|(x-amz|x-goog)-(signature|credential|security-token)|(\w+[_-])?token|api[_-]?key|awsaccesskeyid)=[^&\s]",
    re.IGNORECASE,
)
_QUERY = re.compile(r"(?<=[^\s'\"?])\?[^\s'\"]*")


def without_secret(text: str) -> str:
    """Return a text for messages and files, without the queries of its URLs if it holds a secret."""
    return _QUERY.sub("?…", text) if holds_secret(text) else text


def holds_secret(text: str) -> bool:
    """Whether a text has a password or key, by name or in an address."""
    return _SECRET.search(text) is not None
