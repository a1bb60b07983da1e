"""Metrics for Prometheus; those of all workers from one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Variable of prometheus_client: the folder of the values of all workers."""
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of a server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = self._histogram("request_seconds", "Time of requests", ["route"], _SECONDS)
        self.requests = self._counter("requests", "Requests by route and status", ["route", "status"])
        self.answers = self._counter("answers", "Answers by bundle and origin of the scores", ["bundle", "source"])
        self.rejected = self._counter("rejected", "Requests rejected by a full queue", ["bundle"])
        self.batch_size = self._histogram("batch_size", "Queries per call of the model", ["bundle"], _SIZES)
        self.queue_seconds = self._histogram("queue_seconds", "Wait for the model", ["bundle"], _SECONDS)
        self.feedback = self._counter("feedback_events", "Acknowledged events of feedback", ["kind"])
        self.upserts = self._counter("upserts", "Upserts of items by bundle and result", ["bundle", "result"])
        self.commit_seconds = self._histogram("feedback_commit_seconds", "Time to an acknowledgment", [], _SECONDS)
        self.reloads = self._counter("bundle_reloads", "Reloads of bundles by result", ["bundle", "result"])
        self.under_way = Gauge(
            "recsys_requests_under_way", "Requests under way", registry=self.registry, multiprocess_mode="livesum"
        )

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"recsys_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
        return Histogram(f"recsys_{name}", text, labels, buckets=buckets, registry=self.registry)

    def text(self) -> bytes:
        """Return the metrics in the text format, of all workers."""
        if FOLDER not in os.environ:
            return generate_latest(self.registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)
        return generate_latest(shared)
