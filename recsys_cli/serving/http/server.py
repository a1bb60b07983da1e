"""Worker processes: one in this process, or several that share a socket and memory-mapped tables."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from types import FrameType

import torch
import uvicorn

from recsys_cli.errors import ConfigError, DiskFullError, LockedError
from recsys_cli.serving.feedback.log import FeedbackLog, current_files, exclusive, is_committed, worker_file
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.serving.feedback.table import rewrite
from recsys_cli.serving.http.app import MAX_HEAD, create_app
from recsys_cli.serving.http.metrics import FOLDER
from recsys_cli.serving.http.service import Service
from recsys_cli.serving.http.settings import Settings

_LOG = logging.getLogger("recsys.serve")
_SWITCH = 0.0001
"""Seconds of a Python thread before others run: the model thread waits so long after each of some 70 calls into torch."""
_KEEP_ALIVE = 75
"""Seconds of an idle connection: longer than those of common proxies, so that a proxy never sends into a closed one."""
_METRICS = "recsys-metrics-"
Started = Callable[[str], None]


def serve(settings: Settings, started: Started) -> None:
    """Run the server until SIGTERM or SIGINT; `started` receives the URL once it takes connections.

    Raises:
        ConfigError: The address is in use.
        LockedError: Another server writes the feedback log.
    """
    with _without_hangup(), exclusive(settings.feedback), _bound(settings) as bound:
        try:
            rewrite(settings.feedback)
        except (OSError, DiskFullError) as error:  # a full disk: answers and deletions go on without it
            _LOG.warning("the feedback log was not compacted: %s", error)
        for worker in range(settings.workers):
            worker_file(settings.feedback, worker).touch()
        for path in current_files(settings.feedback):
            if not is_committed(path):  # after a kill: also of a worker that does not start again
                FeedbackLog(path, fsync="never", state=FeedbackState()).close()
        host, port = bound.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if settings.workers == 1:
            _run(settings, 0, bound, lambda: started(url))
        else:
            _Workers(settings, bound).run(lambda: started(url))


@contextmanager
def _without_hangup() -> Iterator[None]:
    """Ignore SIGHUP until the app reloads by it; a caller in the same process has its handler back at the end."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _bound(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        message = f"{settings.host}:{settings.port}: {error.strerror or error}"
        raise ConfigError(message, hint="choose another address with --host and --port") from error
    bound.set_inheritable(True)
    return bound


class _Server(uvicorn.Server):
    """Uvicorn with a call after the start."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report it."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def _run(settings: Settings, worker: int, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Serve in this process."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    sys.setswitchinterval(_SWITCH)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    service = Service(settings, worker)
    if service.desk.num_damaged:
        _LOG.warning("%d damaged lines of the feedback log were skipped", service.desk.num_damaged)
    config = uvicorn.Config(
        create_app(service),
        http="h11",  # the other implementation takes the body of a request with `Upgrade` for the next request
        h11_max_incomplete_event_size=MAX_HEAD,
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=2048,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=round(settings.limits.seconds) + 1,
    )
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn drains, and then raises the signal again
    _Server(config, ready).run(sockets=[bound])


class _Workers:
    """Processes that are started again after a crash, and stop with this one."""

    def __init__(self, settings: Settings, bound: socket.socket) -> None:
        self._settings, self._bound = settings, bound
        self._context = multiprocessing.get_context("spawn")
        self._ready = self._context.Semaphore(0)
        self._processes: dict[int, BaseProcess] = {}
        self._stopping = False

    def run(self, started: Callable[[], None]) -> None:
        """Run until SIGTERM or SIGINT."""
        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, self._stop)
        signal.signal(signal.SIGHUP, self._forward)
        _remove_old_metrics()
        with tempfile.TemporaryDirectory(prefix=_METRICS) as folder, exclusive(Path(folder)):
            os.environ[FOLDER] = folder
            self._settings = replace(self._settings, loaded=Path(folder))
            for worker in range(self._settings.workers):
                self._start(worker)
            waiting = self._settings.workers
            while self._processes:
                if waiting and self._ready.acquire(timeout=0.1):
                    waiting -= 1
                    if not waiting:
                        started()
                elif not waiting:
                    time.sleep(0.1)
                self._restart()

    def _start(self, worker: int) -> None:
        process = self._context.Process(
            target=_work, args=(self._settings, worker, self._bound, self._ready, os.getpid()), name=f"worker-{worker}"
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # inherited: it waits until the worker can reload
        process.start()
        self._processes[worker] = process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        if self._stopping:
            process.terminate()

    def _restart(self) -> None:
        for worker, process in list(self._processes.items()):
            if process.exitcode is None:
                continue
            del self._processes[worker]
            if not self._stopping:
                _LOG.error("worker %d ended with %s; it is started again", worker, process.exitcode)
                time.sleep(0.5)
                self._start(worker)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping = True
        for process in self._processes.values():
            process.terminate()

    def _forward(self, number: int, frame: FrameType | None) -> None:
        del frame
        for process in self._processes.values():
            if process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)


def _remove_old_metrics() -> None:
    """Remove the folders of killed servers: nobody holds their locks."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_METRICS}*"):
        with suppress(LockedError, OSError), exclusive(folder):
            shutil.rmtree(folder)


def _work(settings: Settings, worker: int, bound: socket.socket, ready: Semaphore, parent: int) -> None:
    """Serve in a worker process; it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent forwards it as SIGTERM

    def started() -> None:
        ready.release()
        _watch(parent)

    _run(settings, worker, bound, started)


def _watch(parent: int) -> None:
    """End the process after the death of its parent."""

    async def watching() -> None:
        while os.getppid() == parent:
            await asyncio.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    _WATCHES.add(asyncio.get_running_loop().create_task(watching()))


_WATCHES: set[object] = set()
"""Running tasks; the event loop keeps none."""
