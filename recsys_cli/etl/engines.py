"""Our ETL engines and clusters: what they are and whether they run here, without an import of what they run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.nvtabular_engine import pins
from recsys_cli.etl.polars_engine import releases


@dataclass(frozen=True)
class EngineInfo:
    """What is known of an engine.

    Attributes:
        summary: What it is, in one line.
        rank: Its rank for `auto`, which takes the highest of those that can run.
        missing: Returns the package that it lacks on a device ("cpu" or "gpu"), or None.
    """

    summary: str
    rank: int
    missing: Callable[[str], MissingExtraError | None]


OWN: dict[str, EngineInfo] = {
    "polars": EngineInfo("Polars, on the CPU or, through cudf-polars, on a GPU.", 10, releases.problem),
    "nvtabular": EngineInfo("NVTabular, as users of Merlin know it: pandas on a CPU, cuDF on a GPU.", 0, pins.problem),
}


def best(device: str) -> str:
    """Return the engine that `auto` takes on a device: the first by rank where none can run."""
    ranked = sorted(OWN, key=lambda name: OWN[name].rank, reverse=True)
    return next((name for name in ranked if OWN[name].missing(device) is None), ranked[0])


def missing_of_cluster(cluster: str) -> MissingExtraError | None:
    """Return the package that a kind of cluster lacks, or None."""
    if find_spec("distributed") is None:
        return MissingExtraError.for_extra("dask", what=f"etl.cluster={cluster}")
    if cluster == "local_cuda" and find_spec("dask_cuda") is None:
        return MissingExtraError.for_extra("dask-cuda", what="etl.cluster=local_cuda")
    return None
