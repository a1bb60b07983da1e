"""Names and addresses of clusters, and the packages that they need."""

from __future__ import annotations

import re
from importlib.util import find_spec

from recsys_cli.errors import ConfigError, MissingExtraError

NAMES = ("local", "local_cuda", "ray", "auto")
ADDRESSES = "dask://HOST:8786, tcp://HOST:8786 or ray://HOST:10001"
_ADDRESS = re.compile(r"(tcp|tls|dask|ray)://([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")


def not_a_cluster(text: str, names: tuple[str, ...] = NAMES) -> str | None:
    """Return the reason if a text is no address, nor one of the names."""
    if text in names or _ADDRESS.fullmatch(text):
        return None
    return f"has to be {', '.join(names)}, or an address: {ADDRESSES}, not {text!r}"


def check_cluster(text: str, names: tuple[str, ...] = NAMES) -> None:
    """Check an option --cluster.

    Raises:
        ConfigError: It is no address, nor one of the names.
    """
    if (reason := not_a_cluster(text, names)) is not None:
        raise ConfigError(f"--cluster {reason}")


def is_ray(cluster: str) -> bool:
    """Whether a cluster is one of Ray; otherwise it is one of Dask."""
    return cluster.partition(":")[0] == "ray"


def missing_of_cluster(cluster: str) -> MissingExtraError | None:
    """Return the missing package for a cluster, or None."""
    package, extra = ("ray", "ray") if is_ray(cluster) else ("distributed", "dask")
    if cluster != "auto" and find_spec(package) is None:
        return MissingExtraError.for_extra(extra, what=f"etl.cluster={cluster}")
    if cluster == "local_cuda" and find_spec("dask_cuda") is None:
        return MissingExtraError.for_extra("dask-cuda", what="etl.cluster=local_cuda")
    return None
