"""Reading of bundles: memory-mapped weights, histories and id indexes. No ETL engine, no dataframes, nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from recsys_cli.config import Placement
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.evaluation.new_users import ColdItems
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models import build
from recsys_cli.models.embedding import TableType, quantize_tables
from recsys_cli.models.embedding.tables import without_values
from recsys_cli.models.model import Model
from recsys_cli.models.weights import load_weights
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.bundle_checks import check_kinds, check_tables, naming, no_larger_than_weights, read_array
from recsys_cli.serving.histories import Histories
from recsys_cli.serving.ids import IdIndex, open_indexes
from recsys_cli.serving.large_tables import read_by_page
from recsys_cli.serving.served import ModelSource, ServedModel
from recsys_cli.workspace import Bundle, read_json
from recsys_cli.workspace.files import check_sizes

if TYPE_CHECKING:
    from recsys_cli.serving.recommender import Recommender

_EXPECTED: Mapping[str, Any] = {
    "histories": bool, "label_mean": float | None, "model": str, "num_users": int, "num_items": int,
}  # fmt: skip
_MAPPED = 1 << 24
"""Larger files are checked by their size only, unless all files are verified: they are memory-mapped, not read."""


def load_bundle(path: Path | str, *, verify: bool = False) -> Recommender:
    """Load a bundle of `recsys export`, ready for requests.

    Without `verify`, sizes of all files and checksums of those up to 16 MiB are compared, else all checksums.

    Raises:
        MissingArtifactError: The folder is no bundle, or a file is missing.
        DataError: A file is damaged.
    """
    from recsys_cli.serving.recommender import Recommender

    bundle = Bundle(Path(path))
    served = read_bundle(bundle, verify=verify)
    with naming(bundle.folder, bundle):
        recommender = Recommender(served)
        recommender.warm_up()
    return recommender


def read_bundle(bundle: Bundle, *, verify: bool = False) -> ServedModel:
    """Read a bundle; see `load_bundle`."""
    manifest = checked_manifest(bundle, verify=verify)
    with naming(bundle.model, bundle):
        expected = {"name": str, "options": dict, "placement": str, "batch_size": int, "tables": str}
        described = read_json(bundle.model, hint=bundle.remake, expected=expected)
        own = {name: described[name] for name in expected}
        repeats = manifest.get("repeats") is True  # earlier bundles lack it
        source = ModelSource(**own, repeats=repeats, cold_slots=int(manifest.get("cold_slots", 0)))
        for name, known in (("placement", get_args(Placement)), ("tables", get_args(TableType))):
            if described[name] not in known:
                raise ValueError(f"{name} is {described[name]}, not one of {', '.join(known)}")
        if source.batch_size < 1:
            raise ValueError(f"batch_size is {source.batch_size}, not at least 1")
    data = bundle.data
    with naming(data.folder / "schema.json", bundle):
        schema, cold = data.schema, ColdItems.of(data)
    with naming(data.folder / "plan.json", bundle):
        FittedPlan.read(data.folder).program  # noqa: B018 - compiled for a check
    with naming(bundle.index, bundle):
        indexes = open_indexes(bundle.index)
    check_tables(bundle, indexes)
    ids = {}
    for role in (Role.USER, Role.ITEM):
        with naming(bundle.ids(role), bundle):
            ids[role] = IdIndex.read(bundle.ids(role), schema.only(role), indexes)
    with naming(bundle.model, bundle), no_larger_than_weights(bundle):
        model = _without_weights(source, schema)
    with naming(bundle.weights, bundle):
        _load_mapped(model, bundle.weights, verify=verify)
    with naming(bundle.titles, bundle):
        titles = _titles(bundle.titles, len(ids[Role.ITEM].values))
    with naming(bundle.items, bundle):
        values = read_parquet(bundle.items).combine_chunks() if bundle.items.is_file() else None
        if values is not None and len(values) != len(ids[Role.ITEM].values):
            raise ValueError(f"{len(values)} rows for {len(ids[Role.ITEM].values)} items")
    with naming(bundle.folder, bundle):
        num_users = int(schema.only(Role.USER).cardinality or 0) if manifest["histories"] else 1
        served = ServedModel(
            called=bundle.folder.resolve().name,
            source=source,
            model=model,
            data=data,
            users=ids[Role.USER],
            items=ids[Role.ITEM],
            counts=read_array(bundle.counts, "int64", length=cold.first, below=2**62),
            histories=Histories.read(
                bundle.histories, mean=manifest["label_mean"], num_users=num_users, num_items=cold.first + cold.number
            ),
            has_histories=manifest["histories"],
            titles=titles,
            item_values=values,
            about=manifest,
            indexes=indexes,
        )
        read_by_page(model)
        served.tables  # noqa: B018 - read for a check
    return served


def _titles(path: Path, number: int) -> pa.Array | None:
    """Return the titles of all items; None without the file."""
    if not path.is_file():
        return None
    titles = read_parquet(path)["title"].combine_chunks()
    if len(titles) != number or not (pa.types.is_string(titles.type) or pa.types.is_large_string(titles.type)):
        raise ValueError(f"{len(titles)} titles of type {titles.type} for {number} items")
    return titles


def checked_manifest(bundle: Bundle, *, verify: bool) -> Mapping[str, Any]:
    """Return the manifest after a check of the files.

    Raises:
        MissingArtifactError: The folder is no bundle, or a file is missing.
        DataError: A file is damaged.
    """
    check_kinds(bundle)
    if not bundle.exists:
        raise MissingArtifactError(f"{bundle.folder} is no bundle: it has no manifest.json", hint="recsys export RUN")
    kind = read_json(bundle.folder / "manifest.json", hint=bundle.remake).get("kind")
    if kind != "Bundle":
        raise DataError(f"{bundle.folder} is a {kind}, not a bundle", hint="recsys export RUN")
    manifest = bundle.manifest
    if (other := manifest.get("export", "bundle")) != "bundle":
        raise DataError(f"{bundle.folder} is an export in the format {other}, not a bundle", hint="recsys export RUN")
    path = bundle.folder / "manifest.json"
    read_json(path, hint=bundle.remake, expected=_EXPECTED)
    with naming(path, bundle):
        check_sizes(bundle.folder, manifest["files"], hint=bundle.remake)
        names = [name for name, (size, _) in manifest["files"].items() if verify or size <= _MAPPED]
    bundle.verify(*(bundle.folder / name for name in names))
    return manifest


def _without_weights(source: ModelSource, schema: Schema) -> Model:
    """Return a model without initial values of its tables."""
    with without_values():
        model = build(source.name, dict(source.options), schema, placement=source.placement)
    if source.tables != "fp32":
        quantize_tables(model, source.tables, values=False)
    return model.eval()


def _load_mapped(model: Model, path: Path, *, verify: bool) -> None:
    """Memory-map the weights of a model; those of files that are verified have to be finite."""
    types = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    load_weights(model, path, mapped=True)
    for name, tensor in model.state_dict().items():
        if tensor.dtype != types[name]:
            raise ValueError(f"{name} has {tensor.dtype} in place of {types[name]}")
        if (verify or path.stat().st_size <= _MAPPED) and not tensor.isfinite().all():
            raise ValueError(f"{name} has values that are not finite")
