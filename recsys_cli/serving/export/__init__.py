"""Exported programs: a model with its dimension tables as one ONNX or torch.export file, and quantized tables."""
