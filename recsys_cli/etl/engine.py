"""Engines: the protocol, the built-in ones and their availability by package metadata, the choice, and executors of tasks.

Filters, splits and shards (`staging`) precede the engine, and the ops merge its partial aggregates: the same code
for all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from recsys_cli.errors import ConfigError, MissingExtraError
from recsys_cli.events import Emit, ignore
from recsys_cli.executors import executor
from recsys_cli.executors.executor import Executor
from recsys_cli.packages import installed
from recsys_cli.plugins import guard_class, guarded, require_subclass
from recsys_cli.registry import ENGINES, is_own, load, lookup

if TYPE_CHECKING:
    import pyarrow as pa

    from recsys_cli.config import EtlConfig
    from recsys_cli.ops import JoinExternal
    from recsys_cli.ops.fitted_plan import FittedPlan
    from recsys_cli.ops.op import Op
    from recsys_cli.ops.steps import PlanStep

CUDF_POLARS = ("cudf-polars-cu13", "cudf-polars-cu12")
"""Package names of cudf-polars, one per CUDA release."""
CURRENT = ("26.10", "<1.45,>=1.35")
"""The supported release of cudf-polars, and its required releases of Polars."""
PINS = {
    "nvtabular": "23.8", "merlin-core": "23.8", "merlin-dataloader": "23.8", "pandas": "1.5", "numpy": "1",
    "dask": "2023.7", "distributed": "2023.7",
}  # fmt: skip
"""Package → prefix of its compatible releases; NVTabular fails with others."""
GPU_PINS = PINS | {"pandas": "2", "dask": "2024.1", "distributed": "2024.1", "cudf": "24.4"}
"""The same for a GPU: the first cuDF for Python 3.11, and its dependencies."""
_OWN = "give it an environment of its own: python3.11 -m venv nvt; nvt/bin/pip install 'recsys-cli[nvtabular]'"
_CUDF_NAMES = ("cudf", "cudf-cu12", "cudf-cu11")


@dataclass(frozen=True)
class EngineInfo:
    """Summary and availability of an engine.

    Attributes:
        rank: Preference of `auto`: the highest rank among the available engines wins.
        missing: Returns the missing package for a device ("cpu" or "gpu"), or None.
    """

    summary: str
    rank: int
    missing: Callable[[str], MissingExtraError | None]


def problem_of_polars(device: str) -> MissingExtraError | None:
    """Return the error for a missing or unsupported package on a device, or None."""
    if device != "gpu":
        return None
    found = polars_releases()
    if found["package"] is None:
        return MissingExtraError.for_extra("gpu", what="etl.device=gpu")
    if not found["fits"]:
        return MissingExtraError(
            f"etl.device=gpu: {found['package']} {found['version']} needs polars{found['needs']}, "
            f"but {found['polars']} is installed",
            hint=f"pip install 'polars{found['needs']}'",
        )
    return None


def polars_releases() -> Mapping[str, Any]:
    """Return the installed cudf-polars, and its required and the installed Polars."""
    package = next((name for name in CUDF_POLARS if installed(name)), None)
    needs = _needed(requires(package) or []) if package else ""
    have = version("polars")
    return {
        "package": package, "version": installed(package) if package else None, "needs": needs, "polars": have,
        "fits": package is not None and satisfies(have, needs),
    }  # fmt: skip


def satisfies(release: str, requirement: str) -> bool:
    """Whether a release fits a requirement such as `>=1.35,<1.45`."""
    return SpecifierSet(requirement).contains(Version(release).base_version)


def _needed(requirements: Sequence[str]) -> str:
    return next((str(one.specifier) for one in map(Requirement, requirements) if one.name == "polars"), "")


def problem_of_nvtabular(device: str = "cpu") -> MissingExtraError | None:
    """Return the error for missing or incompatible packages, or None."""
    if device == "gpu":
        return _problem(
            pins(device), "etl.engine=nvtabular with etl.device=gpu", "see scripts/nvtabular-gpu.Dockerfile"
        )
    if installed_pin("nvtabular") is None:
        return MissingExtraError("etl.engine=nvtabular needs the 'nvtabular' extra (not installed)", hint=_OWN)
    return _problem(PINS, "etl.engine=nvtabular", _OWN)


def _problem(pins: Mapping[str, str], what: str, hint: str | None) -> MissingExtraError | None:
    wrong = [
        f"{package} {pins[package]} is needed and " + (f"{found} is installed" if found else "is not installed")
        for package, found in incompatible(pins).items()
    ]
    if not wrong:
        return None
    return MissingExtraError(f"{what} is incompatible with the installed packages: " + "; ".join(wrong), hint=hint)


def incompatible(pins: Mapping[str, str]) -> dict[str, str | None]:
    """Return the installed release, None for a missing one, of each package that does not match its pin."""
    have = {package: installed_pin(package) for package in pins}
    return {package: found for package, found in have.items() if not f"{found}.".startswith(f"{pins[package]}.")}


def pins(device: str) -> dict[str, str]:
    """Return the release prefix of each package that NVTabular needs on a device."""
    return GPU_PINS if device == "gpu" else PINS


def installed_pin(package: str) -> str | None:
    """Return the installed release of a package, or None; cuDF under any of its package names."""
    names = _CUDF_NAMES if package == "cudf" else (package,)
    return next(filter(None, map(installed, names)), None)


OWN: dict[str, EngineInfo] = {
    "polars": EngineInfo("Polars, on the CPU or, through cudf-polars, on a GPU.", 10, problem_of_polars),
    "nvtabular": EngineInfo("NVTabular of NVIDIA Merlin: pandas on a CPU, cuDF on a GPU.", 0, problem_of_nvtabular),
}


def best(device: str) -> str:
    """Return the engine of `auto` on a device: the highest rank of the available engines, or of all if none is."""
    ranked = sorted(OWN, key=lambda name: OWN[name].rank, reverse=True)
    return next((name for name in ranked if OWN[name].missing(device) is None), ranked[0])


PassSteps: TypeAlias = "Sequence[tuple[PlanStep, Literal['fit', 'apply']]]"
"""Steps of one pass over a table, in order, each to fit or to apply."""
Aggregates: TypeAlias = "dict[tuple[int, str], pa.Table]"
"""Partial or merged aggregates, by position of the op in the plan and name of the table."""


class Engine(Protocol):
    """Computes the ops of a plan. All engines give bitwise equal results, floats within 1e-6.

    Engines of other packages derive from this class (docs/security.md).

    Attributes:
        device: "cpu" or "gpu".
        threads: Maximum number of concurrent parts; None for the number of cores.
    """

    device: str
    threads: int | None

    def __init__(self, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> None:
        """Initialize an engine with a scratch folder; `emit` receives warnings, such as a fallback to the CPU."""

    @classmethod
    def missing(cls, device: str = "cpu") -> MissingExtraError | None:
        """Return the missing package of the engine on a device, or None; without an import."""

    def refuses(self, op: Op) -> str | None:
        """Return the reason against computing an op of phase "columns"; None for supported ops (the default)."""
        del op
        return None

    def learn(self, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Aggregates:
        """Compute the partial aggregates of rows of train, possibly none, with ROW_WEIGHT for rows of a table by id."""

    def apply(self, steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> pa.Table:
        """Apply steps to rows, possibly none, with TRAIN_ROW for rows of train; number and order of rows stay."""

    def join(self, op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return the joined columns: row i belongs to id i of the vocabulary `keys`; rows of the special ids are null.

        Raises:
            DataError: The table has a duplicate key.
        """
        return op.rows_by_id(table, keys)


def state_of(step: PlanStep, fitted: FittedPlan) -> dict[str, pa.Table]:
    """Return the fitted state of a step, by name."""
    return {name: fitted.state[step.index, name] for name in step.op.states}


def check_ops(engine: Engine, ops: Sequence[Op]) -> None:
    """Refuse ops without an implementation in the engine, all in one error."""
    problems = [
        f"features.ops.{index}: {reason}"
        for index, op in enumerate(ops)
        if op.phase == "columns" and (op.acts or op.fitted) and (reason := engine.refuses(op)) is not None
    ]
    if problems:
        raise ConfigError("\n".join(problems), hint="choose another etl.engine, or remove the op")


def choose(name: str, scratch: Path, *, device: str = "cpu", emit: Emit = ignore) -> tuple[str, Engine]:
    """Return the name and the engine; `auto` selects the fastest available one.

    Raises:
        ConfigError: The name is unknown.
        MissingExtraError: A package of the engine, or of its device, is not installed.
    """
    if name == "auto":
        name = best(device)
    path = lookup(ENGINES, name, what="engine")
    engine: type[Engine] = load(path)
    if not is_own(path):
        require_subclass(engine, Engine, path)
        guard_class(engine, f"the engine {path} failed")
    if (missing := engine.missing(device)) is not None:
        raise missing
    with guarded(f"the engine {path} failed", of=SystemExit):
        return name, engine(scratch, device=device, emit=emit)


def open_executor(
    config: EtlConfig, engine: Engine, scratch: Path, emit: Emit, *, seconds: float = 0
) -> AbstractContextManager[Executor]:
    """Open the executor of a config; see `executors.executor.open_executor`."""
    return executor.open_executor(
        config.cluster, scratch, workers=config.workers if config.cluster else engine.threads,
        seconds=seconds, requires=partial(engine.missing, engine.device), emit=emit,
    )  # fmt: skip
