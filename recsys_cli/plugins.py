"""Plugins: components of other packages, imported only if trusted. See docs/security.md."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from recsys_cli.errors import ConfigError, RecsysError

VARIABLE = "RECSYS_TRUST"
"""Environment variable with the trusted modules, separated by commas or spaces; child processes inherit it."""
_OWN = "recsys_cli"
_NAME = r"[A-Za-z_]\w*"
_IMPORT_PATH = re.compile(rf"{_NAME}(\.{_NAME})*(:{_NAME})?", re.ASCII)
_LONGEST = 255


def resolve(name: str, *, what: str) -> str | None:
    """Return the import path of a plugin without importing it.

    Args:
        name: Name of an entry point, or an import path such as "my_package.data:source".
        what: Kind of the component: dataset, model, engine, op, metric or tracker.

    Returns:
        The import path; None if the name is neither.

    Raises:
        ConfigError: The import path is not trusted.
    """
    is_path = is_import_path(name)
    if is_path and _top(name) in {*sys.stdlib_module_names, _OWN}:
        owner = "recsys" if _top(name) == _OWN else "Python's standard library"
        raise ConfigError(f"{name!r} is part of {owner}, no {what} plugin")
    from importlib import metadata  # slow to import, and most configs use no plugin

    for entry in metadata.entry_points(group=f"recsys.{what}s"):
        if name in {entry.name, entry.value}:
            return _declared(entry.value, what=what)
    if not is_path:
        return None
    if not _is_trusted(name):
        module = _top(name)
        raise ConfigError(
            f"{name!r} is code of a plugin and not trusted",
            hint=f"if you trust the module {module}: recsys --trust {module} …, or {VARIABLE}={module} in the environment",
        )
    return name


def is_import_path(name: str) -> bool:
    """Whether a name has the form package.module or package.module:Name."""
    return len(name) <= _LONGEST and ("." in name or ":" in name) and _IMPORT_PATH.fullmatch(name) is not None


def trust(*modules: str) -> Callable[[], None]:
    """Trust modules and their submodules in this process and its child processes.

    Returns:
        A function that restores the previous trust.

    Raises:
        ConfigError: A name is not a valid module name.
    """
    for module in modules:
        if not re.fullmatch(rf"{_NAME}(\.{_NAME})*", module, re.ASCII):
            raise ConfigError(
                f"{module!r} is not a module name", hint="use a name such as my_package or my_package.models"
            )
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*_trusted(), *modules]))
    return lambda: _restore(before)


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = before


def load(path: str) -> Any:
    """Import "module:attribute", as returned by `resolve`.

    Raises:
        ConfigError: The module or attribute does not exist, or the import fails.
    """
    module, _, attribute = path.partition(":")
    with guarded(f"cannot load {path!r}"):
        return getattr(import_module(module), attribute)


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Convert exceptions of a plugin to a ConfigError with the prefix `what`; a RecsysError passes unchanged."""
    try:
        yield
    except RecsysError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what}: {type(error).__name__}: {error}") from error


def require_subclass(component: Any, base: type, path: str) -> None:
    """Check the base class of a plugin before any of its code is called.

    Args:
        component: The object returned by `load`.
        base: Required base class.
        path: Import path of the plugin.

    Raises:
        ConfigError: The object is no subclass of `base`.
    """
    # Not issubclass: a metaclass can override it, and protocols check attributes only.
    if not isinstance(component, type) or base not in type.mro(component):
        raise ConfigError(
            f"{path!r} is not a subclass of {base.__module__}.{base.__qualname__}", hint="see docs/security.md"
        )


def _declared(value: str, *, what: str) -> str:
    """Return the import path of an entry point without its extras."""
    path = value.partition("[")[0].strip()
    if not _IMPORT_PATH.fullmatch(path) or _top(path) in {*sys.stdlib_module_names, _OWN}:
        raise ConfigError(f"the entry point {value!r} of the group recsys.{what}s is not a component")
    return path


def _is_trusted(path: str) -> bool:
    module = path.partition(":")[0]
    return any(f"{module}.".startswith(f"{trusted}.") for trusted in _trusted())


def _trusted() -> list[str]:
    return os.environ.get(VARIABLE, "").replace(",", " ").split()


def _top(path: str) -> str:
    return re.split("[.:]", path, maxsplit=1)[0]
