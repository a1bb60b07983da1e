"""What the programs of the peers share: the same rows in, lists or probabilities out, and the same seconds counted.

It runs in the peers' venv and knows pandas alone. Rows are in memory when the clock starts, libraries are imported, and it is
stopped before anything is written: `prepare` is what a peer makes of the rows, `fit` all that it learns (with what it does to
choose its epoch by valid), `rank` all from the fitted model to the lists of every user, or the probabilities of the test rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from curve import Curve

K = 10


@dataclass
class Job:
    """One model to fit and to ask.

    Attributes:
        model: Its name as in bench_peers.py.
        options: Settings of the peer's own.
        train: The rows that it is fitted to, in the order of users and time.
        valid: What users met after that, and what an epoch may be chosen by.
        test: What it is asked for. All three have userId, movieId, rating, timestamp.
        items: movieId and genres of each item.
        seed: Of all that is drawn.
        threads: How many it may use.
        out: Where the lists go, and the seconds beside them.
        training: How often a sequence model is trained: `epochs`, `patience` and `limit` of its curve.
        seconds: By part.
        curve: Of a sequence model.
    """

    model: str
    options: dict[str, Any]
    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    items: pd.DataFrame
    seed: int
    threads: int
    out: Path
    training: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    curve: Curve | None = None

    @classmethod
    def from_arguments(cls) -> Job:
        """Read the job that bench_peers.py wrote."""
        parser = argparse.ArgumentParser()
        parser.add_argument("job", type=Path)
        given = json.loads(parser.parse_args().job.read_text(encoding="utf-8"))
        rows = {name: pd.read_parquet(given[name]) for name in ("train", "valid", "test")}
        items = pd.read_csv(given["items"])[["movieId", "genres"]]
        how = {name: given[name] for name in ("model", "options", "seed", "threads", "training") if name in given}
        return cls(**how, **rows, items=items, out=Path(given["out"]))

    @property
    def history(self) -> pd.DataFrame:
        """What users met before the test, of items that a list may hold."""
        rows = pd.concat([self.train, self.valid], ignore_index=True)
        return rows[rows["movieId"].isin(self.train["movieId"].unique())]

    @property
    def users(self) -> np.ndarray:
        """Who is asked for, ascending."""
        return np.sort(self.test["userId"].unique())

    @property
    def wanted(self) -> dict[int, int]:
        """The valid item of each user."""
        return dict(zip(self.valid["userId"].tolist(), self.valid["movieId"].tolist(), strict=True))

    def start_curve(self, *, stops_by_itself: bool = False) -> Curve:
        """Begin to count the processor seconds of a sequence model's epochs."""
        patience = None if stops_by_itself else self.training["patience"]
        self.curve = Curve(self.wanted, patience, self.training.get("limit"))
        return self.curve

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the seconds of a part."""
        started = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started

    def write_lists(self, lists: Mapping[int, Any]) -> None:
        """Keep the first ten items of each user, best first; 0 where there is none."""
        found = np.zeros((len(self.users), K), np.int64)
        for row, user in enumerate(self.users):
            best = np.asarray(lists.get(user, ()), np.int64)[:K]
            found[row, : len(best)] = best
        self._write(users=self.users, items=found)

    def write_probabilities(self, probabilities: np.ndarray) -> None:
        """Keep the probability of each test row, beside whose row it is and its label."""
        labels = self.test["rating"].to_numpy() > 3
        self._write(users=self.test["userId"].to_numpy(), labels=labels, probabilities=np.asarray(probabilities))

    def _write(self, **arrays: np.ndarray) -> None:
        np.savez(self.out, **arrays)
        curve = {"curve": self.curve.facts} if self.curve else {}
        self.out.with_suffix(".json").write_text(json.dumps({**self.seconds, **curve}), encoding="utf-8")
