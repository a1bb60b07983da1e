"""The user's earlier items as a feature of ranking models."""
