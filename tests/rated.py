"""The features of a table of ratings, where a test is about something else."""

from typing import Any

FEATURES: dict[str, Any] = {
    "user": "userId",
    "item": "movieId",
    "label": "label",
    "ops": [
        {"op": "Categorify", "columns": ["userId", "movieId"]},
        {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
    ],
}
