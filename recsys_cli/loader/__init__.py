"""Loaders: batches from prepared Parquet files, resident or streamed, with lookup joins of dimension tables."""

from recsys_cli.loader.loader import Loader, MemoryLoader, UserLoader
from recsys_cli.loader.tables import DimensionTables
from recsys_cli.loader.targets import check_targets, scales

__all__ = ["DimensionTables", "Loader", "MemoryLoader", "UserLoader", "check_targets", "scales"]
