"""Start of the Triton server of the wheel nvidia-pytriton on loopback, with the Python of this process for its models."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import recsys_cli
from recsys_cli.errors import MissingExtraError, RecsysError
from tests.servers import free_ports

_BACKEND = ("libtriton_python.so", "triton_python_backend_utils.py")
_STUB = "triton_python_backend_stub"
_ERROR = re.compile(r"failed to load '[^']*' version .*?(?=\\n\\nAt:|\"$)|^error: .*$", re.MULTILINE)
_LONGEST = 4_000
"""Characters of the server's log in an error."""


@dataclass(frozen=True)
class TritonServer:
    """A started server.

    Attributes:
        process: Its process.
        http: Port of HTTP.
        grpc: Port of gRPC.
        log: File with its messages.
    """

    process: subprocess.Popen[bytes]
    http: int
    grpc: int
    log: Path

    @property
    def url(self) -> str:
        """Address of HTTP."""
        return f"http://127.0.0.1:{self.http}"

    def is_ready(self) -> bool:
        """Whether all models are ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/v2/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def triton_server(
    repository: Path,
    *,
    http: int | None = None,
    grpc: int | None = None,
    seconds: float = 120,
    more: Sequence[str] = (),
) -> Iterator[TritonServer]:
    """Start a server, and stop it at the end.

    Args:
        repository: Folder of the model repository.
        http: Port of HTTP; None for a free one.
        grpc: Port of gRPC; None for a free one.
        seconds: Longest wait for the models.
        more: Further options of tritonserver.

    Raises:
        MissingExtraError: The wheel is missing.
        RecsysError: A port is in use, the server ends, or a model does not load.
    """
    home = installed_server()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recsys-triton-")))
        backends = _backends(home, scratch / "backends")
        ports = free_ports(2)
        http, grpc = _free(http or ports[0]), _free(grpc or ports[1])
        command = [
            str(home / "bin" / "tritonserver"),
            f"--model-repository={repository}", f"--backend-directory={backends}",
            "--http-address=127.0.0.1", f"--http-port={http}",
            "--grpc-address=127.0.0.1", f"--grpc-port={grpc}",
            "--allow-metrics=false", "--exit-timeout-secs=10", *more,
        ]  # fmt: skip
        log = scratch / "log.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment(home), start_new_session=True
            )
        stack.callback(_stop, process)
        server = TritonServer(process, http, grpc, log)
        _wait(server, seconds)
        yield server


def installed_server() -> Path:
    """Return the folder with the server binary and its Python backend.

    Raises:
        MissingExtraError: The wheel is missing.
        RecsysError: The wheel has no stub for this Python.
    """
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError.for_extra("triton", what="the Triton server")
    home = Path(spec.submodule_search_locations[0]) / "tritonserver"
    if not _stub(home).is_file():
        version = ".".join(map(str, sys.version_info[:2]))
        raise RecsysError(
            f"nvidia-pytriton has no Triton server for Python {version} here", hint="use Linux and another Python"
        )
    return home


def environment(home: Path) -> dict[str, str]:
    """Return the environment of the server: its libraries, libpython, and the packages of this process."""
    site = home.parent.parent
    libraries = [str(site / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR") or ""]
    packages = [str(Path(recsys_cli.__file__).parent.parent), *(path for path in sys.path if path)]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *_values("LD_LIBRARY_PATH")]),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(packages)),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), *_values("PATH")]),
        "OMP_NUM_THREADS": "1",
    }


def _free(port: int) -> int:
    """Return a port after a check; another server on it would answer in place of the new one.

    Raises:
        RecsysError: The port is in use.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise RecsysError(
                f"127.0.0.1:{port}: {error.strerror}", hint="choose others with --http-port and --grpc-port"
            ) from error
    return port


def _backends(home: Path, folder: Path) -> Path:
    """Link the Python backend with the stub of this Python."""
    target = folder / "python"
    target.mkdir(parents=True)
    for name in _BACKEND:
        (target / name).symlink_to(home / "backends" / "python" / name)
    (target / _STUB).symlink_to(_stub(home))
    return folder


def _stub(home: Path) -> Path:
    return home / "python_backend_stubs" / ".".join(map(str, sys.version_info[:2])) / _STUB


def _values(name: str) -> list[str]:
    return [value for value in [os.environ.get(name, "")] if value]


def _wait(server: TritonServer, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not server.is_ready():
        ended = server.process.poll()
        if ended is None and time.monotonic() < end:
            time.sleep(0.1)
            continue
        state = f"is not ready after {seconds:.0f} s" if ended is None else f"ended with exit code {ended}"
        lines = server.log.read_text(errors="replace")
        errors = "\n".join(_ERROR.findall(lines)) or lines[-_LONGEST:]
        raise RecsysError(f"tritonserver {state}:\n{errors[:_LONGEST]}", hint="export again, or fix the named model")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and the processes of its models."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
