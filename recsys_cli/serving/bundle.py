"""Reading of bundles: memory-mapped weights, histories and id indexes. No ETL engine, no dataframes, nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models import build
from recsys_cli.models.embedding import quantize_tables
from recsys_cli.models.embedding.tables import without_values
from recsys_cli.models.model import Model
from recsys_cli.models.weights import load_weights
from recsys_cli.serving.arrays import read_array
from recsys_cli.serving.encoder.indexes import open_indexes
from recsys_cli.serving.histories import Histories
from recsys_cli.serving.ids import IdIndex
from recsys_cli.serving.large_tables import read_by_page
from recsys_cli.serving.served import ModelSource, ServedModel
from recsys_cli.workspace import Bundle, read_json
from recsys_cli.workspace.checksums import check_sizes

if TYPE_CHECKING:
    from recsys_cli.serving.recommender import Recommender

_MAPPED = 1 << 24
"""Larger files are checked by their size only, unless all files are verified: they are memory-mapped, not read."""


def load_bundle(path: Path | str, *, verify: bool = False) -> Recommender:
    """Load a bundle of `recsys export`, ready for requests.

    Args:
        path: The folder.
        verify: Read all files, and compare their checksums. Without it, sizes of all files and checksums of those up to
            16 MiB are compared.

    Raises:
        MissingArtifactError: The folder is no bundle, or a file is missing.
        DataError: A file is damaged.
    """
    from recsys_cli.serving.recommender import Recommender

    recommender = Recommender(read_bundle(Bundle(Path(path)), verify=verify))
    recommender.warm_up()
    return recommender


def read_bundle(bundle: Bundle, *, verify: bool = False) -> ServedModel:
    """Read a bundle; see `load_bundle`."""
    manifest = checked_manifest(bundle, verify=verify)
    described = read_json(bundle.model, hint=bundle.remake, expected={"name": str, "options": dict})
    source = ModelSource(
        described["name"], described["options"], described["placement"], described["batch_size"], described["tables"]
    )
    data, schema = bundle.data, bundle.data.schema
    try:
        indexes = open_indexes(bundle.index)
        users, items = (IdIndex.read(bundle.ids(role), schema.only(role), indexes) for role in (Role.USER, Role.ITEM))
        model = mapped_model(source, schema, bundle.weights)
        return ServedModel(
            called=bundle.folder.resolve().name,
            source=source,
            model=model,
            data=data,
            users=users,
            items=items,
            counts=read_array(bundle.counts, "int64", length=schema.only(Role.ITEM).cardinality),
            histories=Histories.read(bundle.histories, mean=manifest["label_mean"]),
            has_histories=manifest["histories"],
            titles=read_parquet(bundle.titles)["title"].combine_chunks() if bundle.titles.is_file() else None,
            about=manifest,
            indexes=indexes,
            cache=read_by_page(model),
        )
    except (LookupError, TypeError, ValueError, OSError, MemoryError, pa.ArrowException) as error:
        raise DataError(f"{bundle.folder}: not a bundle of this version: {error}", hint=bundle.remake) from error


def checked_manifest(bundle: Bundle, *, verify: bool) -> Mapping[str, Any]:
    """Return the manifest after a check of the files.

    Raises:
        MissingArtifactError: The folder is no bundle, or a file is missing.
        DataError: A file is damaged.
    """
    if not bundle.exists:
        raise MissingArtifactError(f"{bundle.folder} is no bundle: it has no manifest.json", hint="recsys export RUN")
    kind = read_json(bundle.folder / "manifest.json", hint=bundle.remake).get("kind")
    if kind != "Bundle":
        raise DataError(f"{bundle.folder} is a {kind}, not a bundle", hint="recsys export RUN")
    manifest = bundle.manifest
    if (other := manifest.get("export", "bundle")) != "bundle":
        raise DataError(f"{bundle.folder} is an export in the format {other}, not a bundle", hint="recsys export RUN")
    check_sizes(bundle.folder, manifest["files"], hint=bundle.remake)
    names = [name for name, (size, _) in manifest["files"].items() if verify or size <= _MAPPED]
    bundle.verify(*(bundle.folder / name for name in names))
    return manifest


def mapped_model(source: ModelSource, schema: Schema, weights: Path) -> Model:
    """Return a model in evaluation mode with memory-mapped weights, without initial values of its tables."""
    with without_values():
        model = build(source.name, dict(source.options), schema, placement=source.placement)
    if source.tables != "fp32":
        quantize_tables(model, source.tables, values=False)
    load_weights(model, weights, mapped=True)
    return model.eval()
