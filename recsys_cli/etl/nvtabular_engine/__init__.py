"""The NVTabular engine, on cuDF with a GPU and on pandas without."""
