"""Debiased and beyond-accuracy metrics of rankings, such as PSNDCG, coverage and novelty, with intervals."""

from __future__ import annotations

import numpy as np
import torch

from recsys_cli.batch import Feature, Ragged
from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.bootstrap import mean_estimates, unit_estimates
from recsys_cli.evaluation.clusters import by_owner
from recsys_cli.evaluation.held_out import HeldOut, Ints
from recsys_cli.evaluation.result import Estimate, Estimates
from recsys_cli.features.schema import FIRST, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.metrics import BEYOND, Catalog, Ranked, Recommended
from recsys_cli.metrics.foreign import extended


def catalog_of(candidates: Ints, train: Interactions, tables: DimensionTables, schema: Schema) -> Catalog:
    """Gather popularity and categorical item features of the candidates (I,), from tables on the CPU."""
    item = schema.only(Role.ITEM)
    counts = np.bincount(train.item_idx, minlength=int(candidates.max(initial=0)) + 1)[candidates]
    joined = tables.join({item.name: torch.from_numpy(candidates)})
    columns = [c for c in schema.categorical if c.name in joined and c.name != item.name]
    owners, features, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for column in columns:
        owner, ids = _flat(joined[column.name])
        is_value = ids >= FIRST
        owners.append(owner[is_value])
        features.append(ids[is_value] + before)
        before += int(column.cardinality or 0)
    # Features are binary: duplicates in an item's list count once.
    pairs = np.unique(np.concatenate(owners) * max(before, 1) + np.concatenate(features))
    owner, feature = np.divmod(pairs, max(before, 1))
    return Catalog(counts, len(train), feature, np.searchsorted(owner, np.arange(len(candidates) + 1)))


def measure_lists(ranked: Ranked, held_out: HeldOut, catalog: Catalog, config: EvaluateConfig) -> Estimates:
    """Compute debiased and beyond-accuracy metrics at each cut-off."""
    popular = held_out.by_popularity(ranked.candidates)
    lists = Recommended(
        ranked.hits,
        ranked.num_relevant,
        ranked.candidates,
        popular,
        catalog,
        owners=ranked.owners,
        relevant=held_out.relevant.values,
        relevant_offsets=held_out.relevant.offsets,
    )
    metrics = {
        f"{config.label}{metric.name}@{k}": (metric, k)
        for k in sorted(set(config.k))
        for metric in extended(BEYOND, config.metrics).values()
    }
    computed = {name: metric.compute(lists, k) for name, (metric, k) in metrics.items()}
    estimates = {
        name: Estimate(value=float(values) if np.isfinite(values) else None)
        for name, values in computed.items()
        if values.ndim == 0
    }
    means = {name: values for name, values in computed.items() if values.ndim == 1 and not np.isnan(values).all()}
    # Metrics defined for the same users share their resamples.
    defined = {name: np.isfinite(values) for name, values in means.items()}
    groups: dict[tuple[bytes, bool], list[str]] = {}
    for name, users in defined.items():
        groups.setdefault((users.tobytes(), metrics[name][0].in_unit), []).append(name)
    for (_, in_unit), names in groups.items():
        columns = np.stack([means[name][defined[name]] for name in names], axis=1)
        owners = None if ranked.owners is None else ranked.owners[defined[names[0]]]
        estimate = unit_estimates if in_unit else mean_estimates
        means_of = estimate(by_owner(columns, owners), resamples=config.bootstrap, seed=config.seed)
        estimates |= dict(zip(names, means_of, strict=True))
    return {name: estimates[name] for name in computed if name in estimates}


def _flat(feature: Feature) -> tuple[Ints, Ints]:
    """Return the ids of a feature and their row numbers; both (N,)."""
    if isinstance(feature, Ragged):
        lengths = feature.offsets.diff().cpu().numpy()
        return np.repeat(np.arange(len(lengths)), lengths), feature.values.cpu().numpy().astype(np.int64)
    return np.arange(len(feature)), feature.cpu().numpy().astype(np.int64)
