"""Configs from a file, from a mapping, or from a DataFrame of interactions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cli.config import RunConfig, from_values, load
from recsys_cli.config.starting import starting_sections

if TYPE_CHECKING:
    from recsys_cli.workspace import Workspace


def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Return the validated config of a YAML file, or of the same sections as a mapping.

    Args:
        source: Path of a file, or a mapping.
        overrides: As on the command line, such as `train.epochs=3`.

    Raises:
        ConfigError: All problems at once.
    """
    return from_values(source, overrides) if isinstance(source, Mapping) else load(Path(source), overrides)


def dataset_from_frames(workspace: Workspace, interactions: Any, **tables: Any) -> dict[str, Any]:
    """Keep DataFrames in the workspace, by content, and return the `dataset` section of a config that reads them.

    Args:
        workspace: Its folder `frames/` gets a parquet file for each frame.
        interactions: One row per interaction: a polars or pandas DataFrame or an Arrow table.
        tables: Tables to join, by the name that `JoinExternal` uses.

    Raises:
        ConfigError: A frame is no table.
    """
    paths = {
        name: str(_keep(workspace, name, frame)) for name, frame in {"interactions": interactions, **tables}.items()
    }
    return {"name": "files", "interactions": paths.pop("interactions"), "tables": paths}


def config_from_frame(  # noqa: PLR0913 - all but two are keywords, most with a default
    interactions: Any,
    workspace: Workspace,
    *,
    user: str,
    item: str,
    rating: str | None = None,
    label: str | None = None,
    timestamp: str | None = None,
    model: str | Mapping[str, Any] = "ease",
    **sections: Mapping[str, Any],
) -> RunConfig:
    """Return a config for a DataFrame of interactions, with the features and the split that `recsys init` starts with.

    Args:
        interactions: One row per interaction: a polars or pandas DataFrame or an Arrow table.
        workspace: Keeps a copy of it.
        user: Column with the user id.
        item: Column with the item id.
        rating: Column with ratings; more than 3 is positive.
        label: Column with labels of 0 and 1, instead. Without either, every interaction is positive.
        timestamp: Column with the time: the latest rows are then held out, otherwise random ones.
        model: Name of a model (`recsys ls models`), or the `model` section.
        sections: Further sections, such as `train={"epochs": 5}`; a section that is given replaces the default one.

    Raises:
        ConfigError: A section is wrong.
    """
    starting = starting_sections(user=user, item=item, rating=rating, label=label, timestamp=timestamp)
    named = {"name": model} if isinstance(model, str) else dict(model)
    dataset = dataset_from_frames(workspace, interactions)
    return from_values({"dataset": dataset, **starting, "model": named, **sections})


def _keep(workspace: Workspace, name: str, frame: Any) -> Path:
    """Write a frame to a parquet file that is named by its content."""
    import pyarrow.parquet as pq

    from recsys_cli.etl.frames import to_arrow

    table = to_arrow(frame)
    folder = workspace.root.resolve() / "frames"
    folder.mkdir(parents=True, exist_ok=True)
    with workspace.scratch() as scratch:
        written = scratch / "frame.parquet"
        pq.write_table(table, written, store_schema=False)  # plain types: no dictionaries, no large strings
        with written.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        path = folder / f"{name}-{digest[:16]}.parquet"
        if not path.exists():  # an unchanged modification time saves a checksum
            written.replace(path)
    return path
