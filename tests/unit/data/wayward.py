"""A real HTTP server that misbehaves on request, and small MovieLens archives in each family's format."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from recsys_cli.data.fetch import Digest
from recsys_cli.events import Event, Message, Progress

Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def plain(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Answer correctly: HEAD, Range, If-Range, ETag, 416."""
    etag = f'"{hashlib.md5(body).hexdigest()}"'
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", ""))
    end = len(body)
    if wanted and handler.headers.get("If-Range", etag) == etag:
        start = int(wanted.group(1))
        end = min(end, int(wanted.group(2) or end) + 1)
        if start >= len(body):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(body)}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(body)}")
    else:
        start = 0
        handler.send_response(200)
    handler.send_header("ETag", etag)
    handler.send_header("Accept-Ranges", "bytes")
    handler.send_header("Content-Length", str(end - start))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body[start:end])


def drops_after(count: int, *, etag: str = "", start: int = 0) -> Answer:
    """Announce all bytes from `start`, send `count` of them, close the connection."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        handler.send_header("ETag", etag or f'"{hashlib.md5(body).hexdigest()}"')
        handler.send_header("Content-Length", str(len(body) - start))
        handler.end_headers()
        handler.wfile.write(body[start : start + count])
        handler.close_connection = True

    return answer


def ignores_range(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Send the whole file for every request."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def status(code: int, *, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
    """Answer with a fixed status, headers and body."""

    def answer(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        handler.send_response(code)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@dataclass
class Server:
    """Files of the server, scripted answers and received requests."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    script: list[Answer] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)

    def ranges(self) -> list[str | None]:
        """The Range header of each request so far."""
        return [request.get("Range") for request in self.requests]


class Watcher(list[Event]):
    """Collects events; an `emit`."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def texts(self, level: str | None = None) -> str:
        """All messages, as one text."""
        return "\n".join(e.text for e in self if isinstance(e, Message) and level in {None, e.level})

    def progress(self, task: str) -> list[Progress]:
        """The progress of one task."""
        return [e for e in self if isinstance(e, Progress) and e.task == task]


def digest_of(body: bytes) -> Digest:
    """The actual digest of the body."""
    return Digest(hashlib.md5(body).hexdigest(), size=len(body))


def make_zip(members: dict[str, bytes]) -> bytes:
    """A zip archive with the given members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in members.items():
            target.writestr(name, content)
    return buffer.getvalue()


def written(path: Path, content: bytes) -> Path:
    """Write the content to the path and return it."""
    path.write_bytes(content)
    return path
