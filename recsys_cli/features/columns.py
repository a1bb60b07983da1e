"""Reserved names of columns and tables; their first character never occurs in raw names."""

from __future__ import annotations

PREFIX = "\x01"
"""First character of reserved names."""

# In prepared files.
USER_HASH = f"{PREFIX}user"
"""Column (uint64) of held-out rows, outside the schema: the hash of a user without an id, null for other users. Also in train
if the vocabulary excludes train users."""
IMPRESSION_HASH = f"{PREFIX}impression"
"""Column (uint64) of held-out rows, outside the schema: the hash of impression id and user, null without an id."""
ROW_NUMBER = f"{PREFIX}number"
"""Column (int32 or int64) of prepared interactions with a timestamp, outside the schema: the number of the raw row over all files,
or with `split.tie_seed` its hash; null for sampled negatives. It breaks ties. Staged rows have it after an op that drops rows."""
HISTORY_USER = f"{PREFIX}history user"
"""Feature of held-out batches: the user of the row's history, distinct for cold-start users too."""
SHARED_ID = f"{PREFIX}id"
"""Column (int32) of a dimension table with cold keys: the encoded id of each row."""


def row_column(key: str) -> str:
    """Return the name of a column (int32) outside the schema: each key's row in the dimension table.

    Present in splits with cold keys; in others the row is the encoded id.
    """
    return f"{PREFIX}row of {key}"


STORED_AS = b"stored as"
"""Metadata of a raw column of dates, read as timestamps: the stored type, to return ids in it."""

# In the rows passed to an engine.
TRAIN_ROW = f"{PREFIX}row"
"""Optional column (uint64) of train rows: the row number, for the assignment to folds."""
ROW_WEIGHT = f"{PREFIX}weight"
"""Optional column (int64) of a dimension table: the number of train interactions of each row."""
EXACT = f"{PREFIX}exact "
"""Prefix of a column with the values of a label before its cast."""

# In the fitted state of an op: suffixes of table names.
REST = f"{PREFIX}rest"
"""Second table of a column: the number of `null` and of `unseen` (infrequent) values in train."""
COUNTS = f"{PREFIX}counts"
"""Third table of a column with a joint vocabulary: the `count` of the column's own values, row by row."""

# Temporary columns of an op.
POSITION = f"{PREFIX}position"
"""Column (int64): position of a row in the whole flow, or in a batch."""
KEEP = f"{PREFIX}keep"
"""Column (bool): condition of a Filter."""
GROUP, SIZE = f"{PREFIX}group", f"{PREFIX}size"
"""Columns (int64): number of a row's group, and number of rows of a group."""
CODE, VALUE = f"{PREFIX}code", f"{PREFIX}value"
"""Columns of a vocabulary in a join: encoded id and raw value."""
