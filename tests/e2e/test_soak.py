"""A fixed sample of the soak: `make soak` does the same for an hour."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_sample_of_the_soak_holds() -> None:
    parts = [word for part in ("kills", "concurrent", "full disk", "damage") for word in ("--only", part)]
    line = [sys.executable, "-m", "scripts.soak", "--sample", "--seed", "1", *parts]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
