"""The fixtures that more than one test file uses: prepared data whose right answer is known by construction."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings

from recsys_cli import cpu
from recsys_cli.etl import engines
from recsys_cli.ops import Categorify, JoinExternal, LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.workspace import PreparedData, Workspace, write_manifest
from tests.strategies import known_state

# Tests use small tensors, and share the cores with each other: torch's threads would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
cpu.configure_threads()
# Under nohup the tests would inherit an ignored SIGHUP, which training leaves ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# A busy machine is no failure.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

EXPECTED_SKIPS = ("no CUDA device", "fewer than two CUDA devices", "no ml-latest-small.zip in ")
"""Reasons of skipped tests where everything that a distribution has is installed."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of NVTabular or of the Triton server outside their environment."""
    if item.get_closest_marker("numpy1") and (problem := engines.problem_of_nvtabular()) is not None:
        pytest.skip(f"{problem.message}; make test-numpy1 runs it")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """List the skipped tests by reason; with RECSYS_NO_SKIPS an unexpected reason fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or "RECSYS_NO_SKIPS" not in os.environ or hasattr(session.config, "workerinput"):
        return
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reporter.stats.get("skipped", ()))
    for reason, number in sorted(reasons.items()):
        unexpected = not reason.startswith(EXPECTED_SKIPS)
        reporter.write_line(f"\n{number} skipped: {reason}{' (unexpected)' if unexpected else ''}", red=unexpected)
        if unexpected:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


PLAN = FeaturePlan(
    user="userId",
    item="movieId",
    label="label",
    timestamp="timestamp",
    ops=(
        JoinExternal(table="movies", on="movieId", columns=("genres",)),
        Categorify(columns=("userId", "movieId", "genres")),
        LambdaOp(expression="rating > 3", output="label", dtype="int8"),
    ),
)

INPUTS = {
    "interactions": pa.schema([
        ("userId", pa.int32()), ("movieId", pa.int32()), ("rating", pa.float32()), ("timestamp", pa.int64()),
    ]),
    "movies": pa.schema([("movieId", pa.int32()), ("genres", pa.list_(pa.string()))]),
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty workspace."""
    return Workspace(tmp_path / "workspace")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real MovieLens data; tests that need it are skipped where it is not."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("RECSYS_SHARED_DATA", beside))
    if not (folder / "ml-latest-small.zip").is_file():
        pytest.skip(f"no ml-latest-small.zip in {folder}; set RECSYS_SHARED_DATA to a folder that has it")
    return folder


MakePrepared = Callable[..., PreparedData]


@pytest.fixture
def make_prepared(tmp_path: Path) -> MakePrepared:
    """Write prepared data by hand, without any ETL: a checkerboard, where users like the items of their own half.

    Users and items are encoded from 3 on. The label is 1 where user and item are both even or both odd. Genres of an
    item are [3] for odd and [4, 5] for even ids; ids 0, 1 and 2 have none.
    """

    def make(*, users: int = 40, items: int = 30, rows: int = 2_000, shards: int = 2, seed: int = 0) -> PreparedData:
        rng = np.random.default_rng(seed)
        data = PreparedData(tmp_path / f"prepared-{users}-{items}-{rows}-{shards}-{seed}")
        counts = {"train": rows, "valid": rows // 4}
        for split, num_rows in counts.items():
            (data.folder / split).mkdir(parents=True)
            user_idx = rng.integers(3, users + 3, num_rows).astype(np.int32)
            item_idx = rng.integers(3, items + 3, num_rows).astype(np.int32)
            table = pa.table({
                "userId": user_idx,
                "movieId": item_idx,
                "label": ((user_idx + item_idx) % 2 == 0).astype(np.int8),
                "timestamp": np.arange(num_rows, dtype=np.int64),
            })  # fmt: skip
            for shard, start in enumerate(range(0, num_rows, -(-num_rows // shards))):
                part = table.slice(start, -(-num_rows // shards))
                pq.write_table(part, data.folder / split / f"{shard:05d}.parquet")
        genres = [[]] * 3 + [[3] if item % 2 else [4, 5] for item in range(3, items + 3)]
        (data.folder / "tables").mkdir()
        pq.write_table(pa.table({"genres": pa.array(genres, pa.list_(pa.int32()))}), data.table("movieId"))
        vocabularies = {
            "userId": pa.table({"value": np.arange(users, dtype=np.int32), "count": np.ones(users, np.int64)}),
            "movieId": pa.table({"value": np.arange(items, dtype=np.int32), "count": np.ones(items, np.int64)}),
            "genres": pa.table({"value": ["Odd", "Even", "Both"], "count": np.ones(3, np.int64)}),
        }
        fitted = FittedPlan(PLAN, INPUTS, known_state(PLAN, vocabularies))
        fitted.write(data.folder)
        fitted.schema("star").write(data.folder / "schema.json")
        write_manifest(data.folder, "PreparedData", {"key": f"by-hand-{users}-{items}-{rows}-{seed}", "rows": counts})
        return data

    return make
