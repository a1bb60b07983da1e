"""Executors of parallel tasks: threads of this process, or the workers of a Dask or Ray cluster."""
