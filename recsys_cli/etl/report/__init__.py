"""The data report of prepared data."""

from recsys_cli.etl.report.facts import Facts
from recsys_cli.etl.report.page import write_report
from recsys_cli.etl.report.queries import EtlCounts

__all__ = ["EtlCounts", "Facts", "write_report"]
