"""Settings of the server: bundles with shares, limits, feedback and the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recsys_cli.serving.feedback.log import Fsync


@dataclass(frozen=True)
class Limits:
    """Bounds of requests.

    Attributes:
        body_bytes: Bytes of a body.
        batch: Rows of a score, or queries of a batch.
        k: Items of an answer.
        history: Items of a history, of candidates and of exclusions.
        upserts: Upserted items.
        upsert_bytes: Bytes of the title and the features of an upserted item, as JSON.
        seconds: Time of a request, with its wait.
    """

    body_bytes: int = 4 << 20
    batch: int = 4_096
    k: int = 1_000
    history: int = 20_000
    upserts: int = 10_000
    upsert_bytes: int = 16 << 10
    seconds: float = 10.0


@dataclass(frozen=True)
class Batching:
    """Micro-batches of the model thread.

    Attributes:
        size: Number of queries that fill a batch.
        rows: Number of rows to score that fill a batch.
        delay: Maximum wait for more queries, in seconds; nobody waits for requests that are not under way.
        queue: Maximum number of waiting requests per bundle; further ones get 429.
    """

    size: int = 64
    rows: int = 1_024
    delay: float = 0.001
    queue: int = 512


@dataclass(frozen=True)
class Settings:
    """All that a worker needs to start.

    Attributes:
        bundles: Bundle folders by name; symbolic links are followed, other folders read again on SIGHUP.
        shares: Share of the users by bundle; they add up to 1.
        feedback: Folder of the feedback log.
        fsync: Flush of the log before an acknowledgment.
        positive_above: Labels of feedback above it are positives, others negatives; None for labels as they are.
        host: Address.
        port: Port; 0 for a free one.
        workers: Number of processes.
        token: Bearer token; None without one.
        cors: Origins of other sites whose pages may ask.
        limits: Bounds of requests.
        batching: Micro-batches.
        loaded: Folder of links to the bundles loaded last, for restarted workers; None for one worker.
    """

    bundles: Mapping[str, Path]
    shares: Mapping[str, float]
    feedback: Path = Path("feedback")
    fsync: Fsync = "interval"
    positive_above: float | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = field(default=None, repr=False)
    cors: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    batching: Batching = field(default_factory=Batching)
    loaded: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return self.host in {"127.0.0.1", "localhost", "::1"}
