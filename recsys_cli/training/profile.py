"""Where the time of a step goes: some steps under torch's profiler, added up by phase and by operation."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg
from torch.profiler import ProfilerActivity, profile

from recsys_cli.training.data import TrainingData
from recsys_cli.training.events import Stepped
from recsys_cli.training.step import BACKWARD, FORWARD, UPDATE
from recsys_cli.training.trainer import WAITING, Trainer

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


def profiled(trainer: Trainer, trace: Path, *, tell: Callable[[int], object]) -> Profile:
    """Train on for some steps and look at the last of them.

    Args:
        trainer: At its start, with epochs enough; it is not validated, and is of no further use.
        trace: Where to write the trace, for ui.perfetto.dev; its name ends in .json or .json.gz.
        tell: Is told how many steps are done.

    Raises:
        TrainingError: The loss is not finite.
    """
    trainer.data = TrainingData(trainer.data.train)
    made = (tell(event.step) for event in trainer.events() if isinstance(event, Stepped))
    deque(islice(made, WARM_UP // 2), maxlen=0)
    unprofiled = _seconds_of(trainer, made, WARM_UP - WARM_UP // 2)
    on_gpu = trainer.device.type == "cuda"
    profiler = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])])
    profiler.start()
    seconds = _seconds_of(trainer, made, STEPS)
    profiler.stop()
    made.close()
    profiler.export_chrome_trace(str(trace))
    return Profile(
        steps=STEPS,
        rows=trainer.data.train.step_rows(0),
        seconds=seconds,
        unprofiled_seconds=unprofiled,
        phases=_phases(profiler.events(), seconds),
        operations=_operations(profiler.key_averages(), on_gpu=on_gpu),
    )


def _seconds_of(trainer: Trainer, made: Iterator[object], number: int) -> float:
    """Make so many steps; return the time of one, until everything is done that was begun."""
    start = _now(trainer)
    deque(islice(made, number), maxlen=0)
    return (_now(trainer) - start) / number


def _now(trainer: Trainer) -> float:
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
    return time.perf_counter()


def _phases(events: Sequence[FunctionEvent], seconds: float) -> tuple[Phase, ...]:
    on_host = [event for event in events if event.device_type == DeviceType.CPU]
    host, device = dict.fromkeys(_PHASES, 0.0), dict.fromkeys(_PHASES, 0.0)
    thread = None
    for event in on_host:
        if event.name in host:
            thread = event.thread
            host[event.name] += event.cpu_time_total
            device[event.name] += event.device_time_total
    # For a GPU, autograd goes backward in a thread of its own, which is inside of no range.
    device[BACKWARD] += sum(e.device_time_total for e in on_host if e.cpu_parent is None and e.thread != thread)
    phases = [Phase(name.removeprefix(_PREFIX), _of_step(host[name]), _of_step(device[name])) for name in _PHASES]
    rest = seconds - sum(phase.seconds for phase in phases)
    return (*phases, Phase("everything else", max(rest, 0.0)))


def _operations(found: Sequence[FunctionEventAvg], *, on_gpu: bool) -> tuple[Operation, ...]:
    """Return what takes the most time; on a CPU a phase's own time is that of Python and numpy."""
    named = []
    for event in found:
        key = str(event.key)
        is_phase = key.startswith(_PREFIX)
        if event.device_type != DeviceType.CPU or (on_gpu and is_phase):
            continue
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        name = f"Python and numpy in {key.removeprefix(_PREFIX)}" if is_phase else key
        named.append(Operation(name, event.count / STEPS, _of_step(own)))
    return tuple(sorted(named, key=lambda operation: -operation.seconds)[:_TOP])


def _of_step(microseconds: float) -> float:
    """Return the seconds of one step from the profiler's microseconds of all."""
    return float(microseconds) / 1e6 / STEPS
