"""Experts with a gate for each label."""
