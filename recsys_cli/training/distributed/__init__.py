"""Distributed training: launch, process group, gradient exchange and failure handling."""
