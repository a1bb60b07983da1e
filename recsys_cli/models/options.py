"""The option that all models of who met what have, written once. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from recsys_cli.config.section import Section


class HistoryOptions(Section):
    """What every model that learns from who met what, and not from labels, is asked."""

    positive_only: bool = False
    """Let only positive interactions count, instead of all: those with label 1, or of a label that is a number those above its mean
    in train."""
