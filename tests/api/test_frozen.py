"""Public names change only on purpose."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import recsys_cli as recsys
from tests.api.frozen import FROZEN, GOLDEN, text

STUB = Path(recsys.__file__).with_suffix(".pyi")


@pytest.mark.parametrize("file", FROZEN)
def test_the_list_is_the_frozen_one(file: str) -> None:
    found, frozen = (lines.splitlines() for lines in (text(FROZEN[file]()), (GOLDEN / file).read_text()))
    assert found == frozen, (
        f"new: {sorted({*found} - {*frozen})}; gone: {sorted({*frozen} - {*found})}; "
        f"if that is meant, write tests/golden/{file} anew: python tests/api/frozen.py"
    )


def test_the_stub_has_all_lazy_names() -> None:
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname for node in imports for alias in node.names} == set(recsys._API)
    for node in imports:
        for alias in node.names:
            if alias.name != "etl":  # the package of that name calls the function
                module = __import__(str(node.module), fromlist=[alias.name])
                assert getattr(recsys, alias.name) is getattr(module, alias.name)
    assert {*recsys._API, "__version__"} == set(dir(recsys))
