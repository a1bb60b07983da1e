"""The data report: facts about prepared data as report.json, and the page that shows them as report.html."""

from __future__ import annotations

from pathlib import Path

from recsys_cli.etl.report.facts import Facts
from recsys_cli.etl.report.findings import conclude
from recsys_cli.etl.report.gather import Counted, gather_facts
from recsys_cli.etl.report.page import show
from recsys_cli.features.plan import FittedPlan

__all__ = ["Counted", "Facts", "write_report"]


def write_report(folder: Path, fitted: FittedPlan, counted: Counted) -> Facts:
    """Look at prepared data once more and write down what a reader of it asks.

    Args:
        folder: The prepared data, whole but for the report.
        fitted: The fitted plan.
        counted: What was counted while preparing it.
    """
    facts = gather_facts(folder, fitted, counted)
    facts = facts.model_copy(update={"findings": conclude(facts)})
    (folder / "report.json").write_text(facts.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(show(facts), encoding="utf-8")
    return facts
