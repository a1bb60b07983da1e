"""Masked items predicted from both sides."""
