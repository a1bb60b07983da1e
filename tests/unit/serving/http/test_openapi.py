"""Requests generated from the OpenAPI document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Running

pytest.importorskip("schemathesis")


@pytest.mark.slow
def test_generated_requests_break_nothing(server: Running) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.fuzz_serve", server.url, "--requests", "200"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[4],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
