"""Files of a user to a config that runs, step by step; each step is a function over frozen dataclasses.

1. `origins`: patterns, folders, URLs, archives, lakes and databases to tables; `dialect`: a file's head to its format, separator,
   header and encoding.
2. `sampling`: each table's first rows, by the reader of the ETL.
3. `profiles`: a column's values to its type, range, number of values, time format and separator of lists.
4. `roles`: names and profiles to roles (user, item, rating, event, impression, time, …), each with a reason.
5. `tables`: candidates of impressions as rows; the interactions among the tables, and the user and item tables with their keys.
6. `task`: roles to a task: ratings, labels, implicit, counts, events, sessions, histories, impressions or clicks.
7. `proposal`: the task to dataset, split, ops, model and batch size; `features` has the ops of further columns.
8. `text`: the proposal to commented YAML.
"""

from recsys_cli.detect.understanding import Question, Understanding, understand

__all__ = ["Question", "Understanding", "understand"]
