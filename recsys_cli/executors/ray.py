"""The scheduler of Ray: the cluster of an address, that of this machine, or a new local one."""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from recsys_cli.cpu import cores
from recsys_cli.errors import RecsysError
from recsys_cli.executors import cluster
from recsys_cli.executors.checks import Checks
from recsys_cli.executors.cluster import Lost, Outcome, Scheduler, SharedTask

_TEMP, _PREFIX = Path("/tmp"), "recsys-ray-"  # noqa: S108 - paths of sockets are short, and TMPDIR may be long
_INSPECTION_TIMEOUT = 60.0
"""Seconds to wait for a first process of a node."""
_START_TIMEOUTS = {"RAY_agent_register_timeout_ms": "120000", "RAY_worker_register_timeout_seconds": "300"}
"""Limits for processes of a local cluster to start; by default a node of a busy machine ends after 30 s."""
_HINT = (
    "where it asks for a token: RAY_AUTH_MODE=token, and in RAY_AUTH_TOKEN what `ray get-auth-token` prints on its head"
)


class _RayScheduler(Scheduler):
    """A driver of a Ray cluster. Its nodes are the workers; each of their processes runs one part at a time."""

    kind, packages, attempts = "Ray", ("ray",), 4

    def __init__(self, name: str, *, is_local: bool) -> None:
        import ray

        start = "start `ray start --address HEAD:6379` on a machine with this recsys-cli and the workspace"
        super().__init__(name, is_local=is_local, start=start)
        self.ray, self._is_lost = ray, False
        # No retries: `Cluster.map` repeats a part, and tells the loss.
        self._run = ray.remote(num_cpus=1, max_retries=0)(SharedTask.run)
        self._head = name if name.startswith("ray://") else ray.get_runtime_context().gcs_address

    def workers(self) -> dict[str, int]:
        return {_address(node): int(node["Resources"]["CPU"]) for node in self._nodes()}

    def _nodes(self) -> list[dict[str, Any]]:
        """Return the nodes with processors.

        Ray would end this process after a minute without its head node, with no exception.
        """
        try:
            _reach(self._head)
            nodes: list[dict[str, Any]] = self.ray.nodes()
        except Exception as error:  # Ray has errors of its own, of gRPC and of the system
            raise self.lost() from error
        return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU")]

    def inspect(self, checks: Checks) -> Mapping[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asked = {}
        for node in self._nodes():
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            inspection = self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(Checks.problems)
            asked[_address(node)] = inspection.remote(checks)
        return {address: self._answer(future) for address, future in asked.items()}

    def _answer(self, future: Any) -> Any:
        from ray.exceptions import GetTimeoutError

        try:
            return self.ray.get(future, timeout=_INSPECTION_TIMEOUT)
        except GetTimeoutError:
            return TimeoutError(f"no answer within {_INSPECTION_TIMEOUT:.0f} s")
        except Exception as error:  # of Ray, or of the task
            return RuntimeError(_reason(error))

    def broadcast(self, task: SharedTask[Any, Any]) -> Callable[[Any], Any]:
        return partial(self._run.remote, self.ray.put(task))

    def result(self, future: Any, timeout: float) -> Outcome:
        from ray import exceptions

        try:
            outcome: Outcome = self.ray.get(future, timeout=timeout)
        except (exceptions.WorkerCrashedError, exceptions.NodeDiedError) as error:
            raise Lost("a worker process is lost") from error
        except (exceptions.OutOfMemoryError, exceptions.ObjectLostError) as error:
            raise Lost(f"a worker process ({_reason(error)}) is lost") from error
        except exceptions.GetTimeoutError:
            raise
        except exceptions.RayTaskError as error:  # the worker cannot read the task
            raise RecsysError(f"a worker failed: {_reason(error)}", hint="recsys doctor --cluster") from error
        except Exception as error:
            raise self.lost() from error
        return outcome

    def cancel(self, futures: Sequence[Any]) -> None:
        # By force, because native code does not hear an interrupt. Without its head, Ray would wait. A local one ends with
        # this process, and 2.60 can crash where a part ends as it is cancelled.
        for future in () if self._is_lost or self.is_local else futures:
            self.ray.cancel(future, force=True)

    def lost(self) -> RecsysError:
        self._is_lost = True
        return super().lost()

    def close(self) -> None:
        """Leave the cluster; without its head Ray would wait for a minute, and crash at the end of this process."""
        if self._is_lost:
            atexit.register(_end)
        else:
            self.ray.shutdown()


def _address(node: Mapping[str, Any]) -> str:
    return f"{node['NodeManagerAddress']}-{node['NodeID'][:8]}"


def _end() -> None:
    """End this process at once, with the exit code of a `RecsysError`."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(RecsysError.exit_code)


def _reason(error: BaseException) -> str:
    """Return the end of a traceback of a task, and the first sentence of an error of Ray."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if lines[0].startswith("\x1b") or "ray::" in lines[0] else lines[0].partition(". ")[0]


def _reach(address: str) -> None:
    """Connect to an address once; OSError if nothing listens there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=cluster.CONNECT_TIMEOUT).close()


@contextmanager
def open_scheduler(name: str, workers: int | None, scratch: Path) -> Iterator[Scheduler]:
    """Join the cluster of an address, of RAY_ADDRESS or of this machine; `ray` starts a local one if there is none."""
    del scratch  # not for sockets
    address = name if name != "ray" else os.environ.get("RAY_ADDRESS") or ("auto" if _is_running() else "local")
    with ExitStack() as stack:
        stack.enter_context(cluster.quiet_logs("ray"))
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "address": address}
        environment = {"RAY_USAGE_STATS_ENABLED": "0"}
        if address == "local":
            folder = stack.enter_context(_folder())
            options |= {"num_cpus": workers or cores(), "include_dashboard": False, "_temp_dir": folder}
            environment |= {"RAY_AUTH_TOKEN": _token(), "POLARS_MAX_THREADS": cluster.polars_threads(workers)}
            environment |= _START_TIMEOUTS
        else:
            # A process runs one part at a time, and Polars would use all cores in each.
            options["runtime_env"] = {"env_vars": {"POLARS_MAX_THREADS": "1"}}
        _connect(options, environment)
        scheduler = _RayScheduler(name, is_local=address == "local")
        stack.callback(scheduler.close)
        yield scheduler


def _connect(options: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Start or join a cluster with variables of the environment, and keep those of this process and its SIGTERM handler."""
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    os.environ.update({name: value for name, value in environment.items() if name not in before})
    address = options["address"]
    try:
        import ray

        if ":" in address:
            _reach(address)
        with cluster.ignore_interrupts(), warnings.catch_warnings(action="ignore"), _quiet_library():
            ray.init(**options)
    except Exception as error:  # Ray has errors of its own, of gRPC and of the system
        if address == "local":
            problem, hint = "a local Ray does not start", "the machine may be too busy, or lack memory or space in /tmp"
        else:
            problem, hint = f"no Ray cluster answers at {address}", f"start one: `ray start --head`; {_HINT}"
        raise RecsysError(f"{problem}: {_reason(error)}", hint=hint) from error
    finally:
        os.environ.clear()
        os.environ.update(before)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
    # Losses of workers are events here; Ray would print them to stdout.
    ray._private.worker._worker_logs_enabled = False


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Discard what the native library of Ray writes to stderr, such as each refusal of a wrong token."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _is_running() -> bool:
    """Whether `ray start` runs a cluster on this machine; `auto` alone would take a local one of another process."""
    with suppress(OSError, ValueError):
        root = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
        _reach((root / "ray" / "ray_current_cluster").read_text().strip())
        return True
    return False


@cache
def _token() -> str:
    """Return the token of local clusters, once per process, as Ray reads it: its own would stay in the home folder."""
    return secrets.token_hex(32)


@contextmanager
def _folder() -> Iterator[str]:
    """Yield a folder for sockets and logs, and remove those of processes that were killed."""
    for left in _TEMP.glob(f"{_PREFIX}*"):
        with suppress(OSError), (left / "owner").open("a") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(dir=_TEMP, prefix=_PREFIX, ignore_cleanup_errors=True) as folder,
        (Path(folder) / "owner").open("a") as owner,
    ):
        fcntl.flock(owner, fcntl.LOCK_EX)
        yield folder
