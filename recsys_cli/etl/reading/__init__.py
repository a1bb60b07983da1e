"""Raw tables, however they are stored, as Arrow batches in bounded memory: text and parquet, on this machine or at a URL."""
