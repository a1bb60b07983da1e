"""Closed-form models of the interaction matrix."""
