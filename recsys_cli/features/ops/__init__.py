"""What to compute: each op is a frozen description, one file per op, with its meaning written once, in its docstring.

`AnyOp` is the union that a config is read into: a new op is one file here, one line below, and one file per engine.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from recsys_cli.features.ops.categorify import Categorify
from recsys_cli.features.ops.join_external import JoinExternal
from recsys_cli.features.ops.lambda_op import LambdaOp

AnyOp = Annotated[Categorify | JoinExternal | LambdaOp, Field(discriminator="op")]

__all__ = ["AnyOp", "Categorify", "JoinExternal", "LambdaOp"]
