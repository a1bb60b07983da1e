"""The data report: facts as report.json, and their page as report.html."""

from __future__ import annotations

import html
import json
from pathlib import Path

from recsys_cli.etl.report.facts import Facts, Finding
from recsys_cli.etl.report.findings import conclude
from recsys_cli.etl.report.gather import EtlCounts, gather_facts
from recsys_cli.etl.report.page import show
from recsys_cli.ops.fitted_plan import FittedPlan

__all__ = ["EtlCounts", "Facts", "write_failure", "write_report"]


def write_report(folder: Path, fitted: FittedPlan, counted: EtlCounts) -> Facts:
    """Write the report of prepared data, with one pass over its rows."""
    facts = gather_facts(folder, fitted, counted)
    facts = facts.model_copy(update={"findings": conclude(facts)})
    (folder / "report.json").write_text(facts.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(show(facts), encoding="utf-8")
    return facts


def write_failure(folder: Path, reason: str) -> None:
    """Write a placeholder report after an error of `write_report`; the prepared data itself is complete."""
    finding = Finding(level="warning", text=f"the data is prepared, but its report failed: {reason}")
    (folder / "report.json").write_text(json.dumps({"findings": [finding.model_dump()]}) + "\n", encoding="utf-8")
    page = f"<!doctype html>\n<meta charset='utf-8'>\n<title>data report</title>\n<p>{html.escape(finding.text)}</p>\n"
    (folder / "report.html").write_text(page, encoding="utf-8")
