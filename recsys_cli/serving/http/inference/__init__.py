"""The Open Inference Protocol, version 2: JSON and binary tensors."""
