"""Readers of raw tables as Arrow batches in bounded memory."""
