"""Writing of bundles: one relocatable folder with a model and all that its answers need, its signature and model card."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

from recsys_cli import __version__
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.weights import PREFIX
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.bundle import read_bundle
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.ids import build_indexes, write_indexes
from recsys_cli.serving.recommender import Recommender, RowScorer
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import Bundle, PreparedData, write_json, write_manifest, write_text


def write_bundle(
    served: ServedModel, folder: Path, *, key: str, source: Mapping[str, Any], histories: bool = True
) -> Bundle:
    """Write the files of a bundle into an empty folder, and then its manifest; `source` is for it and the model card.

    Raises:
        ConfigError: The model needs the histories.
    """
    if not histories and reads_histories(served):
        raise ConfigError(
            f"{served.source.name} reads the user histories for its scores", hint="export without --no-histories"
        )
    bundle = Bundle(folder)
    copy_data(served.data, bundle.data)
    write_json(
        bundle.model,
        {
            "name": served.source.name,
            "options": dict(served.source.options),
            "placement": served.source.placement,
            "batch_size": served.source.batch_size,
            "tables": served.source.tables,
            "scoring": served.model.scoring,
            "folds_in": served.model.folds_in,
            "by_content": served.model.by_content,
        },
    )
    tensors = {PREFIX + name: tensor.contiguous() for name, tensor in served.model.state_dict().items()}
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, bundle.weights)
    (served.histories if histories else served.histories.without_rows()).write(bundle.histories)
    np.save(bundle.counts, served.counts)
    if served.titles is not None:
        pq.write_table(pa.table({"title": served.titles}), bundle.titles)
    if served.item_values is not None:
        pq.write_table(served.item_values, bundle.items)
    fitted = FittedPlan.read(served.data.folder)
    write_indexes(build_indexes(fitted, served.indexes), bundle.index)
    served.users.write_values(bundle.ids(Role.USER))
    served.items.write_values(bundle.ids(Role.ITEM))
    write_json(bundle.signature, signature(fitted, served.schema))
    manifest = {
        "key": key,
        **source,
        "model": served.source.name,
        "histories": histories,
        "label_mean": served.histories.mean,
        "repeats": served.source.repeats,
        "cold_slots": served.source.cold_slots,
        "num_users": served.users.num_train,
        "num_items": served.items.num_train,
        "num_parameters": num_weights(served.model),
        "versions": versions(),
    }
    write_text(bundle.card, model_card(manifest, served))
    write_manifest(folder, "Bundle", manifest)
    return bundle


def load_rows(folder: Path) -> RowScorer:
    """Load a written bundle to score raw rows, with all checksums verified."""
    return Recommender(read_bundle(Bundle(folder), verify=True)).rows


def reads_histories(served: ServedModel) -> bool:
    """Whether a model without fold-in reads the user histories for its scores, such as a graph model."""
    if served.model.folds_in:
        return False
    reads = []

    def interactions() -> Any:
        reads.append(True)
        return served.histories.interactions()

    served.model.set_context(TrainingContext(interactions, served.tables.join))
    if served.model.scoring == "dot_product":
        with torch.inference_mode():
            served.model.item_vectors(torch.arange(served.item.own_ids.start, served.item.own_ids.start + 1))
    return bool(reads)


def num_weights(model: Model) -> int | None:
    """Return the number of parameters, or of a closed-form model the non-zero fitted weights; None without weights of numbers."""
    fitted = sum(int(one.count_nonzero()) for one in model.buffers() if one.is_floating_point() and one.dim())
    return model.num_parameters or fitted or None


def copy_data(data: PreparedData, target: PreparedData, *, tables: bool = True) -> None:
    """Copy prepared data without its rows into a new folder."""
    target.folder.mkdir()
    for name in ("schema.json", "plan.json"):
        shutil.copyfile(data.folder / name, target.folder / name)
    for name in ("vocab", "state", *(["tables"] if tables else [])):
        if (data.folder / name).is_dir():
            shutil.copytree(data.folder / name, target.folder / name)
    write_manifest(target.folder, "PreparedData", {"key": data.key, "rows": {}})


def versions() -> dict[str, str]:
    """Return the versions of the packages behind an artifact."""
    return {
        "recsys": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }


def signature(fitted: FittedPlan, schema: Schema) -> dict[str, Any]:
    """Return inputs and outputs as JSON values.

    Returns:
        `inputs`: name, Arrow type and, for user and item, role of each raw column that the features need. `encoded`: name, type,
        cardinality and shape of each model input. `outputs`: the score.
    """
    encoder = RowEncoder(fitted, schema)
    roles = {n: {"role": role.value} for n, role in fitted.plan.roles.items() if role in {Role.USER, Role.ITEM}}
    label = schema.labels[0] if schema.labels else None
    meaning = "value of the label" if label is not None and label.is_regression else "logit of the label"
    return {
        "inputs": [{"name": name, "type": str(kind), **roles.get(name, {})} for name, kind in encoder.inputs.items()],
        "encoded": [
            {"name": c.name, "type": c.dtype, "cardinality": c.cardinality, "list": c.ragged, "table": c.table}
            for c in schema.features
        ],
        "outputs": [
            {"name": "score", "type": "float32", "meaning": f"{meaning}, or an order of items only: see model_card.md"}
        ],
    }


def model_card(manifest: Mapping[str, Any], served: ServedModel) -> str:
    """Return the model card by the manifest of the bundle."""
    run, metrics = manifest["run"], manifest.get("metrics") or {}
    figures = [f"| {name} | {value:.4g} |" for name, value in metrics.items() if isinstance(value, int | float)]
    chosen = {name: f"{value:g} (chosen on train)" for name, value in manifest.get("chosen", {}).items()}
    options = [f"| {name} | {value} |" for name, value in (dict(served.source.options) | chosen).items()]
    kind = "parameters" if served.model.num_parameters else "non-zero weights"
    size = f"; {manifest['num_parameters']:,} {kind}" if manifest["num_parameters"] else ""
    split = f" on {manifest['split']}" if manifest.get("split") else ""
    parts = [
        f"# {served.source.name}: {manifest.get('dataset', 'own data')}",
        f"Exported from the run `{run['name']}`; {manifest['num_users']:,} users and {manifest['num_items']:,} items of train"
        f"{size}.",
        "## Metrics" + split,
        "\n".join(["| metric | value |", "|---|---|", *figures]) if figures else "Not evaluated: `recsys evaluate`.",
        "## Options",
        "\n".join(["| option | value |", "|---|---|", *(options or ["| (defaults) | |"])]),
        "## Use",
        "\n".join(f"- {sentence}" for sentence in _uses(served, has_histories=manifest["histories"])),
    ]
    return "\n\n".join(parts) + "\n"


def _uses(served: ServedModel, *, has_histories: bool) -> list[str]:
    model = served.model
    return [
        "Scores predict the label." if model.probabilistic else "Scores order items; they are no probabilities.",
        "A history of a new user is folded in on request."
        if served.takes_histories
        else "A user absent from train gets the most popular items"
        + (", or scores by features if a request has them." if model.by_content else "."),
        "Items absent from train are ranked by their features."
        if model.ranks_cold_items
        else "Only items of train are ranked.",
        "The bundle has the user histories: treat it as personal data."
        if has_histories
        else "The bundle has no user histories: seen items are those of the request.",
    ]
