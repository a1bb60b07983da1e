"""The NVTabular engine: ops as `nvtabular.Workflow`s, on cuDF with a GPU and on pandas without."""
