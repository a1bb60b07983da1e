"""The command `recsys doctor`."""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.quantities import size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts
from recsys_cli.cpu import cores, has_bf16
from recsys_cli.errors import MissingExtraError, listed
from recsys_cli.packages import installed

if TYPE_CHECKING:
    from rich.console import Console

_PACKAGES = ("torch", "polars", "pyarrow", "numpy", "pydantic", "typer")

_GPU_DRIVERS = ("/proc/driver/nvidia", "/dev/dxg")
"""Files of an installed GPU driver: Linux and WSL."""


def doctor(
    ctx: typer.Context,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check a value of etl.cluster with the workspace instead.")
    ] = None,
) -> None:
    """Show hardware, versions and available engines, or check a cluster."""
    session: Session = ctx.obj
    if cluster is None:
        session.answer(examine(), _draw_doctor)
    else:
        session.answer(_examine_cluster(session, cluster), _draw_cluster)


def _examine_cluster(session: Session, name: str) -> dict[str, Any]:
    """Return the workers of a cluster that answer, run our code and share the workspace; else raise what is wrong."""
    from recsys_cli.executors.address import NAMES, check_cluster
    from recsys_cli.executors.cluster import Cluster
    from recsys_cli.executors.executor import open_executor

    check_cluster(name, tuple(one for one in NAMES if one != "auto"))
    start = time.monotonic()
    with (
        session.working("doctor") as emit,
        session.workspace.scratch() as scratch,
        open_executor(name, scratch, emit=emit) as executor,
    ):
        assert isinstance(executor, Cluster)
        opened = time.monotonic()
        list(executor.map(abs, range(10 * sum(executor.threads.values()))))
        return {
            **executor.facts, "addresses": executor.threads, "releases": executor.checks.releases,
            "workspace": str(session.root.absolute()), "seconds_to_open": round(opened - start, 1),
            "seconds_per_part": round((time.monotonic() - opened) / (10 * sum(executor.threads.values())), 4),
        }  # fmt: skip


def _draw_cluster(to: Console, found: Mapping[str, Any]) -> None:
    workers = (f"{address} ({threads} threads)" for address, threads in found["addresses"].items())
    same = ", ".join(f"{name} {release}" for name, release in found["releases"].items())
    times = f"{found['seconds_to_open']} s to open, {1_000 * found['seconds_per_part']:.1f} ms per empty part"
    facts(
        to,
        [
            ("cluster", f"{found['cluster']}: {found['workers']} workers, {found['threads']} threads, {times}"),
            ("workers", listed(workers)),
            ("same on all", same),
            ("seen by all", found["workspace"]),
        ],
    )


def engines(device: str = "cpu") -> list[dict[str, Any]]:
    """Return the ETL engines with their availability on a device, in the order of `auto`."""
    from recsys_cli.etl.engine import OWN

    rows = []
    for name, engine in OWN.items():
        missing = engine.missing(device)
        rows.append({
            "name": name,
            "summary": engine.summary,
            "available": missing is None,
            "rank": engine.rank,
            "why_not": missing.message if missing else None,
            "install": missing.hint if missing else None,
        })  # fmt: skip
    return sorted(rows, key=lambda engine: (engine["available"], engine["rank"]), reverse=True)


def examine() -> dict[str, Any]:
    """Return hardware, installed packages and available engines."""
    on_cpu, on_gpu = engines("cpu"), engines("gpu")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "cores": cores(),
        "memory": _memory(),
        "packages": {name: installed(name) for name in _PACKAGES},
        "torch": _torch(),
        "sharding": _sharding(),
        "nvtabular": _nvtabular(),
        "engines": on_cpu,
        "auto_engine": _first(on_cpu),
        "gpu": {"engines": on_gpu, "auto_engine": _first(on_gpu), "releases": _releases()},
        "clusters": _clusters(),
    }


def _first(rows: list[dict[str, Any]]) -> str | None:
    """Return the engine of `auto`."""
    return next((engine["name"] for engine in rows if engine["available"]), None)


def _releases() -> dict[str, Any]:
    """Return the required and the installed releases for etl.device=gpu, without imports."""
    from recsys_cli.etl import engine as engines

    release, polars = engines.CURRENT
    needed = engines.pins("gpu")
    return {
        "polars": {
            "needs": {f"{engines.CUDF_POLARS[0]} {release}": f"polars{polars}"},
            "here": dict(engines.polars_releases()),
        },
        "nvtabular": {"needs": needed, "here": {name: engines.installed_pin(name) for name in needed}},
    }


def _clusters() -> dict[str, Any]:
    from recsys_cli.executors.address import missing_of_cluster

    needs = {"local": "distributed", "tcp://HOST:PORT": "distributed", "local_cuda": "dask-cuda", "ray": "ray"}
    return {
        kind: {"package": package, "version": installed(package), "install": error.hint if error else None}
        for kind, package in needs.items()
        for error in [missing_of_cluster(kind)]
    }


def _memory() -> int | None:
    """Return the smaller of the machine's memory and the container's limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit:  # noqa: PTH123 - a system file
            return min(total, int(limit.read()))
    except (OSError, ValueError):
        return total


def _torch() -> dict[str, Any]:
    """Return the devices and precision of training; imports torch, which takes seconds, only with a GPU driver."""
    release = _torch_release()
    if release is None:
        return {"error": "torch is not installed"}
    has_driver = any(Path(path).exists() for path in _GPU_DRIVERS) or shutil.which("nvidia-smi") is not None
    if release["cuda"] and has_driver:
        from recsys_cli.training.hardware import facts

        return facts()
    return {
        "threads": int(os.environ.get("OMP_NUM_THREADS", cores())),
        "gpus": [],
        "cuda": release["cuda"],
        "cpu_bf16": has_bf16(),
        "auto_device": "cpu",
        "auto_precision": "bf16" if has_bf16() else "fp32",
    }


def _torch_release() -> dict[str, Any] | None:
    """Return the variables of torch's `version.py` without importing torch."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return runpy.run_path(str(Path(spec.submodule_search_locations[0]) / "version.py"))


def _sharding() -> dict[str, Any]:
    """Return the availability of placement=sharded, with an optimizer of all devices."""
    from recsys_cli.models.torchrec_releases import require_torchrec, torchrec_versions

    if installed("torch") is None:
        return {"packages": {}, "why_not": "torch is not installed", "install": None}
    facts: dict[str, Any] = {"packages": torchrec_versions(), "why_not": None, "install": None}
    try:
        require_torchrec("adagrad", _torch()["auto_device"])
    except MissingExtraError as error:
        facts |= {"why_not": error.message, "install": error.hint}
    return facts


def _nvtabular() -> dict[str, Any]:
    from recsys_cli.etl import engine as engines

    if engines.installed_pin("nvtabular") is None:
        return {"state": "not installed", "wrong_pins": {}}
    found = engines.incompatible(engines.PINS)
    wrong = {name: f"{release or 'missing'}, needs {engines.PINS[name]}.*" for name, release in found.items()}
    state = "incompatible with the installed packages" if wrong else "with compatible packages"
    return {"state": f"{engines.installed_pin('nvtabular')}, {state}", "wrong_pins": wrong}


def _draw_doctor(to: Console, result: Mapping[str, Any]) -> None:
    nvtabular = result["nvtabular"]
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in result["packages"].items())
    pins = "; ".join(f"{name} is {wrong}" for name, wrong in nvtabular["wrong_pins"].items())
    able = [e["name"] for e in result["engines"] if e["available"]]
    reasons = [f"{e['why_not']} ({e['install']})" for e in result["engines"] if not e["available"]]
    facts(
        to,
        [
            ("python", f"{result['python']} on {result['platform']}, {result['executable']}"),
            ("cores", str(result["cores"])),
            ("memory", size(result["memory"]) if result["memory"] else "unknown"),
            ("packages", packages),
            *_torch_facts(result["torch"]),
            ("sharded", _sharded(result["sharding"])),
            ("nvtabular", nvtabular["state"]),
            ("wrong pins", pins),
            ("etl engines", "; ".join([", ".join(able), *reasons])),
            ("auto engine", f"{result['auto_engine']}, the fastest available engine"),
            ("clusters", "; ".join(_cluster(kind, it) for kind, it in result["clusters"].items())),
            *_gpu_facts(result["gpu"]),
        ],
    )


def _gpu_facts(gpu: Mapping[str, Any]) -> list[tuple[str, str]]:
    reasons = [f"{e['why_not']} ({e['install']})" for e in gpu["engines"] if not e["available"]]
    auto = f"auto: {gpu['auto_engine']}, the fastest available engine"
    needs = [
        f"{engine} with " + ", ".join(f"{name} {release}" for name, release in releases["needs"].items())
        for engine, releases in gpu["releases"].items()
    ]
    return [("etl on GPU", "; ".join([auto if gpu["auto_engine"] else "no engine available", *reasons])),
            ("GPU needs", "; ".join(needs))]  # fmt: skip


def _cluster(kind: str, cluster: Mapping[str, Any]) -> str:
    return f"{kind} ({cluster['install'] or cluster['package'] + ' ' + str(cluster['version'])})"


def _sharded(sharding: Mapping[str, Any]) -> str:
    if sharding["why_not"]:
        return f"{sharding['why_not']} ({sharding['install']})"
    return ", ".join(f"{name} {version}" for name, version in sharding["packages"].items() if version)


def _torch_facts(torch: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "error" in torch:
        return [("torch", torch["error"])]
    bf16 = "native bf16" if torch["cpu_bf16"] else "no native bf16 (AMX or AVX-512)"
    return [
        ("torch", f"{torch['threads']} threads, CPU with {bf16}, CUDA {torch['cuda'] or 'not built in'}"),
        ("GPUs", ", ".join(torch["gpus"]) or "none"),
        ("auto device", f"{torch['auto_device']} for training, in {torch['auto_precision']}"),
    ]
