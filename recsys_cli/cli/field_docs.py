"""Docstrings of config fields, read from the source on demand.

Pydantic's `use_attribute_docstrings` reads the source of each class at import, which costs every command 0.15 s.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def field_docs(kind: type[BaseModel]) -> dict[str, str]:
    """Return the field docstrings of a class and its bases, by field."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            docs |= _own_docs(base)
    return docs


def _own_docs(kind: type[BaseModel]) -> dict[str, str]:
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # a class created at run time
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
