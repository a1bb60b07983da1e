"""Readers of raw tables (CSV and Parquet, local or remote) as Arrow batches in bounded memory."""
