"""What a reader of the prepared data asks first: how many held-out people and items train never saw."""

from __future__ import annotations

from typing import Any

import polars as pl

from recsys_cli.etl.staging import Staged
from recsys_cli.features.plan import FittedPlan


def cold_shares(fitted: FittedPlan, staged: Staged) -> dict[str, Any]:
    """Return for each held-out split how many distinct users and items it has, and how many of them train has not."""
    shares: dict[str, Any] = {}
    for split in ("valid", "test"):
        if not staged.shards[split]:
            continue
        frame = pl.scan_ipc(staged.shards[split])
        shares[split] = {
            role: _cold(frame, column, fitted)
            for role, column in (("users", fitted.plan.user), ("items", fitted.plan.item))
            if column in staged.schema.names
        }
    return shares


def _cold(frame: pl.LazyFrame, column: str, fitted: FittedPlan) -> dict[str, int]:
    distinct = frame.select(pl.col(column).drop_nulls().unique()).collect(engine="streaming")
    known = pl.DataFrame({column: pl.from_arrow(fitted.vocabularies[column].column("value"))})
    cold = distinct.join(known, on=column, how="anti")
    return {"distinct": len(distinct), "cold": len(cold)}
