"""The built-in engines and clusters, and their availability, without an import of their libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.nvtabular_engine import pins
from recsys_cli.etl.polars_engine import releases


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


OWN: dict[str, EngineInfo] = {
    "polars": EngineInfo("Polars, on the CPU or, through cudf-polars, on a GPU.", 10, releases.problem),
    "nvtabular": EngineInfo("NVTabular of NVIDIA Merlin: pandas on a CPU, cuDF on a GPU.", 0, pins.problem),
}


def best(device: str) -> str:
    """Return the engine of `auto` on a device: the highest rank of the available engines, or of all if none is."""
    ranked = sorted(OWN, key=lambda name: OWN[name].rank, reverse=True)
    return next((name for name in ranked if OWN[name].missing(device) is None), ranked[0])


def missing_of_cluster(cluster: str) -> MissingExtraError | None:
    """Return the missing package for a kind of cluster, or None."""
    if find_spec("distributed") is None:
        return MissingExtraError.for_extra("dask", what=f"etl.cluster={cluster}")
    if cluster == "local_cuda" and find_spec("dask_cuda") is None:
        return MissingExtraError.for_extra("dask-cuda", what="etl.cluster=local_cuda")
    return None
