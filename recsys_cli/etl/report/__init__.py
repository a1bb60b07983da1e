"""The data report: facts as report.json, and their page as report.html."""

from __future__ import annotations

from pathlib import Path

from recsys_cli.etl.report.facts import Facts
from recsys_cli.etl.report.findings import conclude
from recsys_cli.etl.report.gather import EtlCounts, gather_facts
from recsys_cli.etl.report.page import show
from recsys_cli.ops.fitted_plan import FittedPlan

__all__ = ["EtlCounts", "Facts", "write_report"]


def write_report(folder: Path, fitted: FittedPlan, counted: EtlCounts) -> Facts:
    """Write the report of prepared data, with one pass over its rows."""
    facts = gather_facts(folder, fitted, counted)
    facts = facts.model_copy(update={"findings": conclude(facts)})
    (folder / "report.json").write_text(facts.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(show(facts), encoding="utf-8")
    return facts
