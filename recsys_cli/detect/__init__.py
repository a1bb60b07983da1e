"""Files of a user to a config that runs, step by step; each step is a function over frozen dataclasses.

1. `sampling`: patterns, folders, URLs, archives, lakes and databases to tables, each with its first rows, by the reader of the ETL.
2. `dialect`: a file's head to its format, separator, header and encoding.
3. `profiles`: a column's values to its type, range, number of values, time format and separator of lists.
4. `roles`: names and profiles to roles (user, item, rating, event, impression, time, …), each with a reason.
5. `tables`: candidates of impressions as rows; the interactions among the tables, and the user and item tables with their keys.
6. `task`: roles to a task: ratings, labels, implicit, counts, events, sessions, histories, impressions or clicks; split and model.
7. `proposal`: the task to dataset, ops and training, as commented YAML; `features` has the ops of further columns.
"""

from recsys_cli.detect.understanding import Question, Understanding, understand

__all__ = ["Question", "Understanding", "understand"]
