"""Real processes for tests of training on several ranks: forked from one that has torch loaded already."""

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.distributed import TCPStore

from recsys_cli.events import Event, Progress

FORKS = multiprocessing.get_context("forkserver")
# What the stage itself imports, and what is loaded on the way, where it is installed.
FORKS.set_forkserver_preload(["recsys_cli.stages.train", "torch._dynamo", "pandas", "fbgemm_gpu"])


def on_ranks(
    world_size: int,
    function: Callable[..., Any],
    *args: Any,
    ranks: range | None = None,
    store: TCPStore | None = None,
) -> list[Any]:
    """Call a function of a test module in so many processes, in the environment that torchrun would give them.

    Args:
        world_size: How many there are.
        function: What each calls.
        args: With what.
        ranks: Which of them to start; None is all.
        store: That of an earlier call, as torchrun keeps its own; None is a new one.

    Returns:
        What each returned; the error where it raised one, as a text with its type; the exit code where it just ended.
    """
    store = store or new_store()
    started = []
    for rank in ranks or range(world_size):
        here, there = FORKS.Pipe(duplex=False)
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        process = FORKS.Process(target=_call, args=(there, environment if world_size > 1 else {}, function, args))
        process.start()
        there.close()
        started.append((process, here))
    return [_result(process, here) for process, here in started]


def new_store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def stopped_in(step: int, number: signal.Signals, function: Callable[..., Any], *args: Any) -> int:
    """Call a function that trains in a process of its own, which sends itself a signal in a step; return its exit code."""
    process = FORKS.Process(target=_stopped, args=(step, number, function, args))
    process.start()
    process.join()
    return process.exitcode


def _stopped(step: int, number: signal.Signals, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    seen = 0

    def emit(event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, Progress) and event.task.startswith("train")
        if seen == step:
            os.kill(os.getpid(), number)

    try:
        function(*args, emit=emit)
    except KeyboardInterrupt:
        sys.exit(130)


def _call(there: Connection, environment: dict[str, str], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        result = function(*args)
    except BaseException as error:
        result = f"{type(error).__name__}: {error}"
        if not isinstance(error, KeyboardInterrupt):
            traceback.print_exc()
    there.send_bytes(pickle.dumps(result))  # `send` would share a tensor's memory, which ends with the process


def _result(process: Any, here: Connection) -> Any:
    try:
        result = pickle.loads(here.recv_bytes())
    except EOFError:
        process.join(60)
        return process.exitcode
    process.join(60)
    return result
