"""What the benchmarks share: run a program as a whole process and say what it took, and describe the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Run:
    """One finished process.

    Attributes:
        seconds: Wall time from start to exit.
        cpu: Processor seconds, of all threads.
        peak_gb: Largest resident size in GB (1e9 bytes), of the process itself.
        output: What it printed.
    """

    seconds: float
    cpu: float
    peak_gb: float
    output: str


def run(command: list[str], *, cwd: Path | None = None) -> Run:
    """Run a program to its end; stop the benchmark where it fails."""
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{output[-2000:]}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Run(seconds, usage.ru_utime + usage.ru_stime, peak / 1e9, output)


def spread(values: list[float], digits: int = 2) -> str:
    """Return minimum / median / maximum."""
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def figures(runs: list[Run]) -> dict[str, str]:
    """Return what several runs of one program took, each as minimum / median / maximum."""
    return {
        "seconds": spread([run.seconds for run in runs]),
        "cpu_seconds": spread([run.cpu for run in runs]),
        "peak_gb": spread([run.peak_gb for run in runs]),
    }


def machine(*packages: str) -> dict[str, Any]:
    """Describe where a figure was measured."""
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory = next((int(line.split()[1]) / 1e6 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "python": platform.python_version(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": {package: version(package) for package in packages},
    }


def keep(name: str, result: dict[str, Any]) -> None:
    """Write a result to scripts/results/NAME.json and show it."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)


def log_config(files: Path, model: str, *, time: str) -> str:
    """Return the config of a growing log of user, item, rating and time: all rows are positive."""
    return f"""
dataset: {{name: files, interactions: {files}}}
features:
  user: user
  item: item
  label: label
  timestamp: {time}
  ops:
    - {{op: Categorify, columns: [user, item]}}
    - {{op: LambdaOp, expression: "rating > 0", output: label, dtype: int8}}
model: {{name: {model}}}
"""


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).is_file() else []
