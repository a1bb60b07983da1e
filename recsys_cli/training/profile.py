"""Where the time of a step goes: some steps under torch's profiler, added up by phase and by operation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import ProfilerActivity, profile

from recsys_cli.training.events import Stepped
from recsys_cli.training.loop import WAITING, Training
from recsys_cli.training.step import BACKWARD, FORWARD, UPDATE

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler writes to stderr when it begins and ends

WARM_UP, STEPS = 10, 20
"""Steps before the profiler begins, in which memory is got and kernels are compiled, and steps under it."""
_TOP = 15
"""How many operations are told of."""
_PREFIX = "recsys: "
_PHASES = (WAITING, FORWARD, BACKWARD, UPDATE)


@dataclass(frozen=True)
class Phase:
    """What a part of a step takes.

    Attributes:
        name: What is done.
        seconds: Time of a step on the host; where a GPU computes, that of telling it what to do.
        device_seconds: Time of a step on the GPU.
    """

    name: str
    seconds: float
    device_seconds: float = 0.0


@dataclass(frozen=True)
class Operation:
    """What all calls of an operation take, without what they call.

    Attributes:
        name: As torch calls it, or what a phase does outside of torch's operations.
        calls: Calls in a step.
        seconds: Time of a step: on the GPU where there is one, else on the CPU.
    """

    name: str
    calls: float
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Where the time of a step goes.

    Attributes:
        steps: How many steps were looked at.
        rows: Rows of a step.
        seconds: Time of a step under the profiler, waiting included.
        unprofiled_seconds: Time of a step without it.
        phases: What a step is made of, in order; what is in none of them comes last.
        operations: What takes the most time, the most first.
    """

    steps: int
    rows: int
    seconds: float
    unprofiled_seconds: float
    phases: tuple[Phase, ...]
    operations: tuple[Operation, ...]


def profiled(training: Training, trace: Path) -> Iterator[int | Profile]:
    """Train on for some steps and look at the last of them; yields how many are done, and the profile at the end.

    Args:
        training: At its start, with epochs enough; it is not validated, and is of no further use.
        trace: Where to write the trace, for ui.perfetto.dev; its name ends in .json or .json.gz.
    """
    training.valid = None
    steps = (event for event in training.run() if isinstance(event, Stepped))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if training.device.type == "cuda" else [])]
    profiler = profile(activities=activities)
    for done in range(1, WARM_UP + 1):
        next(steps)
        yield done
        if done == WARM_UP // 2:
            warm = _now(training)
    unprofiled = (_now(training) - warm) / (WARM_UP - WARM_UP // 2)
    profiler.start()
    start = _now(training)
    for done in range(WARM_UP + 1, WARM_UP + STEPS + 1):
        next(steps)
        yield done
    seconds = (_now(training) - start) / STEPS
    profiler.stop()
    steps.close()
    profiler.export_chrome_trace(str(trace))
    found = profiler.key_averages()
    yield Profile(
        STEPS, training.train.step_rows(0), seconds, unprofiled, _phases(found, seconds), _operations(found, training)
    )


def _now(training: Training) -> float:
    """Return the time at which everything is done that was begun."""
    if training.device.type == "cuda":
        torch.cuda.synchronize(training.device)
    return time.perf_counter()


def _phases(found: Sequence[FunctionEventAvg], seconds: float) -> tuple[Phase, ...]:
    by_name = {event.key: event for event in found}
    phases = [
        Phase(name.removeprefix(_PREFIX), _seconds(event.cpu_time_total), _seconds(event.device_time_total))
        for name in _PHASES
        if (event := by_name.get(name)) is not None
    ]
    rest = seconds - sum(phase.seconds for phase in phases)
    return (*phases, Phase("everything else", max(rest, 0.0)))


def _operations(found: Sequence[FunctionEventAvg], training: Training) -> tuple[Operation, ...]:
    """Return what takes the most time; on a CPU a phase's own time is that of Python and numpy."""
    on_gpu = training.device.type == "cuda"
    named = [
        Operation(_called(event.key), event.count / STEPS, _seconds(_self_time(event, on_gpu=on_gpu)))
        for event in found
        if not (on_gpu and event.key.startswith(_PREFIX))
    ]
    return tuple(sorted(named, key=lambda operation: -operation.seconds)[:_TOP])


def _called(key: str) -> str:
    return f"Python and numpy in {key.removeprefix(_PREFIX)}" if key.startswith(_PREFIX) else key


def _self_time(event: FunctionEventAvg, *, on_gpu: bool) -> float:
    return float(event.self_device_time_total if on_gpu else event.self_cpu_time_total)


def _seconds(microseconds: float) -> float:
    """Return the time of one step from that of all, which the profiler tells in microseconds."""
    return float(microseconds) / 1e6 / STEPS
