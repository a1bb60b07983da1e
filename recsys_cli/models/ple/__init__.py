"""Shared experts and experts of each label, in layers."""
