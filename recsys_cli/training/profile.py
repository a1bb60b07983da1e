"""Profile of training steps with torch's profiler."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg
from torch.profiler import ProfilerActivity, profile

from recsys_cli.training import hardware
from recsys_cli.training.data import TrainingData
from recsys_cli.training.events import Stepped
from recsys_cli.training.step import BACKWARD, FORWARD, UPDATE
from recsys_cli.training.trainer import WAITING, Trainer

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the start and stop messages of torch's profiler on stderr

WARM_UP, STEPS = 10, 20
"""Warm-up steps, for memory allocation and kernel compilation, and profiled steps."""
_TOP = 15
"""Number of operations in a profile."""
_PREFIX = "recsys: "
_PHASES = (WAITING, FORWARD, BACKWARD, UPDATE)


@dataclass(frozen=True)
class Phase:
    """Seconds per step of one phase: on the host, with a GPU those of kernel launches, and on the GPU."""

    name: str
    seconds: float
    device_seconds: float = 0.0


@dataclass(frozen=True)
class Operation:
    """Own time of an operation per step, on the GPU if there is one, without the operations it calls.

    Attributes:
        name: Name in torch, or a phase's time outside of torch's operations.
    """

    name: str
    calls: float
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Seconds per training step, in total, with and without the profiler, by phase and by operation.

    Attributes:
        phases: Phases of a step in order; the last one is the remainder.
        operations: The slowest operations, in descending order of time.
    """

    steps: int
    rows: int
    seconds: float
    unprofiled_seconds: float
    phases: tuple[Phase, ...]
    operations: tuple[Operation, ...]


def profile_steps(trainer: Trainer, trace: Path, *, on_step: Callable[[int], object]) -> Profile:
    """Train for `WARM_UP` + `STEPS` steps without validation, and profile the last `STEPS`.

    The trainer is new, with enough epochs, and not usable afterwards. The trace for ui.perfetto.dev has the suffix
    .json or .json.gz. `on_step` is called with the number of steps so far.
    """
    trainer.data = TrainingData(trainer.data.train)
    steps = (on_step(event.step) for event in trainer.events() if isinstance(event, Stepped))
    deque(islice(steps, WARM_UP // 2), maxlen=0)
    unprofiled = _seconds_per_step(trainer, steps, WARM_UP - WARM_UP // 2)
    on_gpu = trainer.device.type == "cuda"
    profiler = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])])
    profiler.start()
    seconds = _seconds_per_step(trainer, steps, STEPS)
    profiler.stop()
    steps.close()
    profiler.export_chrome_trace(str(trace))
    return Profile(
        steps=STEPS,
        rows=trainer.data.train.step_rows(0),
        seconds=seconds,
        unprofiled_seconds=unprofiled,
        phases=_phases(profiler.events(), seconds),
        operations=_operations(profiler.key_averages(), on_gpu=on_gpu),
    )


def _seconds_per_step(trainer: Trainer, steps: Iterator[object], number: int) -> float:
    start = hardware.now(trainer.device)
    deque(islice(steps, number), maxlen=0)
    return (hardware.now(trainer.device) - start) / number


def _phases(events: Sequence[FunctionEvent], seconds: float) -> tuple[Phase, ...]:
    on_host = [event for event in events if event.device_type == DeviceType.CPU]
    host, device = dict.fromkeys(_PHASES, 0.0), dict.fromkeys(_PHASES, 0.0)
    thread = None
    for event in on_host:
        if event.name in host:
            thread = event.thread
            host[event.name] += event.cpu_time_total
            device[event.name] += event.device_time_total
    # With a GPU, autograd runs the backward pass in its own thread, outside of all ranges.
    device[BACKWARD] += sum(e.device_time_total for e in on_host if e.cpu_parent is None and e.thread != thread)
    phases = [Phase(name.removeprefix(_PREFIX), _per_step(host[name]), _per_step(device[name])) for name in _PHASES]
    rest = seconds - sum(phase.seconds for phase in phases)
    return (*phases, Phase("everything else", max(rest, 0.0)))


def _operations(averages: Sequence[FunctionEventAvg], *, on_gpu: bool) -> tuple[Operation, ...]:
    """Return the slowest operations; on a CPU, the own time of a phase is that of Python and numpy."""
    operations = []
    for event in averages:
        key = str(event.key)
        is_phase = key.startswith(_PREFIX)
        if event.device_type != DeviceType.CPU or (on_gpu and is_phase):
            continue
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        name = f"Python and numpy in {key.removeprefix(_PREFIX)}" if is_phase else key
        operations.append(Operation(name, event.count / STEPS, _per_step(own)))
    return tuple(sorted(operations, key=lambda operation: -operation.seconds)[:_TOP])


def _per_step(microseconds: float) -> float:
    return float(microseconds) / 1e6 / STEPS
