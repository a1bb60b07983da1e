"""Configs from a file, from a mapping, or from a DataFrame of interactions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from recsys_cli.api.boundary import public
from recsys_cli.config import RunConfig, from_values, load
from recsys_cli.config.starting import starting_sections
from recsys_cli.errors import ConfigError
from recsys_cli.registry import AUTO, DEFAULT_MODEL, MODELS, RANK
from recsys_cli.workspace import Workspace


@public
def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Return the validated config of a YAML file, or of the same sections as a mapping.

    Args:
        source: Path of a file, or a mapping.
        overrides: As on the command line, such as `train.epochs=3`.

    Raises:
        ConfigError: All problems at once.
    """
    return from_values(source, overrides) if isinstance(source, Mapping) else load(Path(source), overrides)


@public
def dataset_from_frames(workspace: Workspace, interactions: Any, **tables: Any) -> dict[str, Any]:
    """Save DataFrames in the workspace, named by content, and return a `dataset` section with their paths.

    Args:
        workspace: Workspace; each frame becomes a parquet file in its folder `frames/`.
        interactions: One row per interaction: a polars or pandas DataFrame or an Arrow table.
        tables: Tables to join, by their name in `JoinExternal`.

    Raises:
        ConfigError: An argument is not a DataFrame or Arrow table.
    """
    paths = {
        name: str(_save(workspace, name, frame)) for name, frame in {"interactions": interactions, **tables}.items()
    }
    return {"name": "files", "interactions": paths.pop("interactions"), "tables": paths}


@public
def config_from_frame(  # noqa: PLR0913 - all but two are keywords, most with a default
    interactions: Any,
    workspace: Workspace,
    *,
    user: str,
    item: str,
    rating: str | None = None,
    label: str | None = None,
    timestamp: str | None = None,
    task: Literal["rank", "label"] | None = None,
    model: str | Mapping[str, Any] | None = None,
    **sections: Mapping[str, Any],
) -> RunConfig:
    """Return a config for a DataFrame of interactions; unlike `recsys init`, it does not choose the split by the values.

    Args:
        interactions: One row per interaction: a polars or pandas DataFrame or an Arrow table.
        workspace: Workspace for a copy of the frame.
        user: Column with the user id.
        item: Column with the item id.
        rating: Rating column; a rating above 3 is positive.
        label: Binary label column, instead of `rating`. Without both, every interaction is positive. A ranking leaves out the
            rows with label 0.
        timestamp: Time column: makes the split temporal instead of random.
        task: Rank the items for a user, or predict the label or rating of given rows; None: by the model, rank without one.
        model: Name of a model (`recsys ls models`), or the `model` section; None: auto to rank, mlp to predict.
        sections: Further sections, such as `train={"epochs": 5}`; they replace the default ones.

    Raises:
        ConfigError: A section is invalid, or there is no label to predict.
    """
    if task == "label" and rating is None and label is None:
        raise ConfigError("task='label' predicts a label or a rating", hint="name its column: label= or rating=")
    model = model or (AUTO if task != "label" else DEFAULT_MODEL)
    model_section = {"name": model} if isinstance(model, str) else dict(model)
    ranks = model_section.get("name") == AUTO or RANK in MODELS.get(str(model_section.get("name")), ())
    task = task or ("rank" if ranks else "label")
    starting = starting_sections(
        user=user, item=item, rating=rating, label=label, timestamp=timestamp, ranks=task == "rank"
    )
    dataset = dataset_from_frames(workspace, interactions)
    return from_values({"dataset": dataset, **starting, "model": model_section, **sections})


def _save(workspace: Workspace, name: str, frame: Any) -> Path:
    """Write a frame to a parquet file named by its content."""
    from recsys_cli.etl.reading.rows import write_frame

    folder = workspace.root.resolve() / "frames"
    folder.mkdir(parents=True, exist_ok=True)
    with workspace.scratch() as scratch:
        written = scratch / "frame.parquet"
        write_frame(frame, written)
        with written.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        path = folder / f"{quote(name, safe=' ')}-{digest[:16]}.parquet"
        if not path.exists():  # keep the modification time: it avoids a new checksum
            written.replace(path)
    return path
