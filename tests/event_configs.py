"""The config of a file of users, items and times."""


def config_text(interactions: object, *, label: str = "1", time: str = "time", more: str = "") -> str:
    """Dataset and features: the label is an expression of the raw columns, and `more` has the other sections."""
    return f"""\
dataset: {{name: files, interactions: {interactions}}}
features:
  user: user
  item: item
  label: label
  timestamp: {time}
  ops:
    - {{op: Categorify, columns: [user, item]}}
    - {{op: LambdaOp, expression: "{label}", output: label, dtype: int8}}
{more}"""
