"""The `lightgcn` model: embeddings propagated over the graph of positive interactions."""
