"""Connections with one request at a time each, arrivals, and the summary of latencies."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

_GRACE = 10.0
"""Seconds after the last arrival for the remaining answers."""
_TICK = 0.001
"""Shortest sleep between arrivals, in seconds: the resolution of the event loop's timers."""


@dataclass(frozen=True)
class Load:
    """What is sent: see `__main__`."""

    url: str
    bodies: Sequence[bytes]
    rate: float
    seconds: float
    connections: int
    seed: int = 1


@dataclass
class _State:
    """Requests that wait for a connection, free connections, and results."""

    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    free: list[_Connection] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    closed_loop: bool = False
    sent: int = 0
    ended: bool = False
    reopen: Callable[[], object] = lambda: None

    def arrive(self, due: float, body: bytes) -> None:
        """Send a request on a free connection, or queue it; its latency counts from the time when it was due."""
        self.sent += 1
        if self.free:
            self.free.pop().send(due, body)
        else:
            self.waiting.append((due, body))


class _Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request under way."""

    def __init__(self, head: bytes, state: _State, bodies: Sequence[bytes], offset: int) -> None:
        self._head, self._state, self._bodies, self._next = head, state, bodies, offset
        self._transport: asyncio.Transport | None = None
        self._started = 0.0
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by type

    def send(self, arrived: float, body: bytes) -> None:
        """Send a request that arrived at some time."""
        assert self._transport is not None
        self._started = arrived
        self._transport.write(self._head % len(body) + body)

    def send_next(self) -> None:
        """Send the next body of a closed loop."""
        self._state.sent += 1
        self._next += 1
        self.send(time.perf_counter(), self._bodies[self._next % len(self._bodies)])

    def data_received(self, data: bytes) -> None:
        if not self._started:  # a 408 of the server, which closes connections without a request
            return
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or len(body) < _content_length(head):
            return
        self._buffer = b""
        self._state.codes[head[9:12].decode()] += 1
        self._state.latencies.append(time.perf_counter() - self._started)
        self._started = 0.0
        if self._state.waiting:
            self.send(*self._state.waiting.popleft())
        elif self._state.closed_loop and not self._state.ended:
            self.send_next()
        else:
            self._state.free.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - only the loss counts
        if self in self._state.free:
            self._state.free.remove(self)
            self._state.reopen()
        if self._started:
            self._state.codes["connection lost"] += 1


def _content_length(head: bytes) -> int:
    name = head.lower().index(b"content-length:") + len("content-length:")
    return int(head[name:].partition(b"\r\n")[0])


def generate(load: Load) -> dict[str, Any]:
    """Run a load and return counts, the reached rate, and latencies in milliseconds."""
    try:
        import uvloop  # a faster event loop leaves more of the machine to the server

        return uvloop.run(_generate(load))
    except ImportError:
        return asyncio.run(_generate(load))


async def _generate(load: Load) -> dict[str, Any]:
    parts = urlsplit(load.url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    ).encode()
    state = _State(closed_loop=not load.rate)
    loop = asyncio.get_running_loop()

    async def connect(number: int) -> None:
        _, connection = await loop.create_connection(
            lambda: _Connection(head, state, load.bodies, number), parts.hostname, parts.port
        )
        state.free.append(connection)

    for number in range(load.connections):
        await connect(number)
    opened: set[asyncio.Task[None]] = set()
    state.reopen = lambda: None if state.ended else opened.add(loop.create_task(connect(0)))
    started = time.perf_counter()
    if load.rate:
        await _arrivals(load, state)
    else:
        while state.free:
            state.free.pop().send_next()
        await asyncio.sleep(load.seconds)
    state.ended = True
    finished = time.perf_counter()
    while sum(state.codes.values()) < state.sent and time.perf_counter() < finished + _GRACE:
        await asyncio.sleep(0.01)
    return _summary(state, finished - started)


async def _arrivals(load: Load, state: _State) -> None:
    """Let requests arrive at exponential intervals; those due since the last wake-up arrive together."""
    draw = np.random.default_rng(load.seed)
    end = load.seconds + time.perf_counter()
    due = time.perf_counter()
    number = 0
    while due < end:
        now = time.perf_counter()
        if due > now:
            await asyncio.sleep(max(due - now, _TICK))
            continue
        state.arrive(due, load.bodies[number % len(load.bodies)])
        number += 1
        due += draw.exponential(1 / load.rate)


def _summary(state: _State, seconds: float) -> dict[str, Any]:
    answered = len(state.latencies)
    found = np.array(state.latencies) * 1e3 if answered else np.full(1, np.nan)
    good = state.codes["200"]
    return {
        "sent": state.sent,
        "answers": dict(state.codes),
        "failed": state.sent - good,
        "seconds": round(seconds, 3),
        "rate": round(answered / seconds, 1),
        "ms": {
            name: round(float(np.percentile(found, share)), 3)
            for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("p99.9", 99.9), ("max", 100))
        },
    }
