"""The fixtures that more than one test file uses: prepared data whose right answer is known by construction."""

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from recsys_cli import cpu
from recsys_cli.etl import engine as engines
from recsys_cli.workspace import Workspace
from tests.checkerboard import write_prepared

# Tests use small tensors, and share the cores with each other: torch's threads would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
cpu.configure_threads()
os.environ.setdefault("RAY_ADDRESS", "local")  # a Ray of this machine is not for tests
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


@pytest.fixture
def workspace(tmp_path):
    """An empty workspace."""
    return Workspace(tmp_path / "workspace")


@pytest.fixture(scope="session")
def shared_data():
    """The folder with real MovieLens data; tests that need it are skipped where it is not."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("RECSYS_SHARED_DATA", beside))
    if not (folder / "ml-latest-small.zip").is_file():
        pytest.skip(f"no ml-latest-small.zip in {folder}; set RECSYS_SHARED_DATA to a folder that has it")
    return folder


@pytest.fixture
def make_prepared(tmp_path):
    """`write_prepared` in the folder of the test."""
    return partial(write_prepared, tmp_path)
