"""Names of the columns and tables that the package adds to the user's own: each begins with a character that no raw name has."""

from __future__ import annotations

PREFIX = "\x01"
"""First character of each reserved name."""

# In prepared files.
USER_HASH = f"{PREFIX}user"
"""A column (uint64) that held-out rows have beside the schema's: a hash of the user who has no id of its own, null for others.
Rows of train have it where the vocabulary leaves out users of train."""
ROW_NUMBER = f"{PREFIX}number"
"""A column (int32 or int64) that prepared interactions with a timestamp have beside the schema's: the row's number in the raw
input, over all files in their order; null for sampled negatives. It breaks ties in time. Staged rows have it where an op has left
rows out; without it they are counted."""
SHARED_ID = f"{PREFIX}id"
"""A column (int32) that a table of joined features has where train does not know some of its keys: the encoded id of each row."""


def row_column(key: str) -> str:
    """Return the name of a column (int32) beside the schema's: the row of each key in the table of joined features.

    Splits with keys that are in the table and not in the vocabulary have it; everywhere else the row is the encoded id.
    """
    return f"{PREFIX}row of {key}"


# In the rows that an engine gets.
TRAIN_ROW = f"{PREFIX}row"
"""A column (uint64) that rows of train may have: a number of each row, for ops that assign rows to folds."""
ROW_WEIGHT = f"{PREFIX}weight"
"""A column (int64) that a table by id may have: the number of interactions of train that each row stands for."""
EXACT = f"{PREFIX}exact "
"""Prefix of the column with a label's values before the cast to their type."""

# In what an op has learnt: suffixes of the names of tables.
REST = f"{PREFIX}rest"
"""A column's second table: the number of its values in train that are `null`, and that are `unseen` (infrequent)."""
COUNTS = f"{PREFIX}counts"
"""A column's third table, where it shares a vocabulary: the `count` of its own values, row by row."""

# While an op computes; gone when it is done.
POSITION = f"{PREFIX}position"
"""A column (int64) with the position of a row among all of its flow, or of a batch."""
KEEP = f"{PREFIX}keep"
"""A column (bool): the condition of a Filter."""
GROUP, SIZE = f"{PREFIX}group", f"{PREFIX}size"
"""Columns (int64): the number of a row's group, and the number of rows of a group."""
CODE, VALUE = f"{PREFIX}code", f"{PREFIX}value"
"""Columns of a vocabulary in a join: the encoded id, and the raw value."""
