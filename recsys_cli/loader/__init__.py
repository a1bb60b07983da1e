"""Parquet to Batch: reads prepared data, resident or streaming, and looks up the tables that a batch's ids point into."""

from recsys_cli.loader.loader import Loader
from recsys_cli.loader.reading import value_range
from recsys_cli.loader.tables import Tables

__all__ = ["Loader", "Tables", "value_range"]
