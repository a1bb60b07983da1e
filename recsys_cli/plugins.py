"""Plugins: components of other packages, imported only if trusted. See docs/security.md."""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from recsys_cli.errors import ConfigError, RecsysError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

VARIABLE = "RECSYS_TRUST"
"""Environment variable with the trusted modules, separated by commas or spaces; child processes inherit it."""
FIX_PLUGIN = "fix the plugin; --verbose shows the traceback"
_OWN = "recsys_cli"
_STANDARD = {*sys.stdlib_module_names, "test"}
"""Top-level modules of Python; `sys.stdlib_module_names` leaves its tests out."""
_NAME = r"[A-Za-z_]\w*"
_IMPORT_PATH = re.compile(rf"{_NAME}(\.{_NAME})*(:{_NAME})?", re.ASCII)
_LONGEST = 255
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EPIPE}
_P = ParamSpec("_P")
_R = TypeVar("_R")


def resolve(name: str, *, what: str) -> str | None:
    """Return the import path of a plugin, by entry point or as it is, without importing it; None if the name is neither.

    Raises:
        ConfigError: The import path is not trusted.
    """
    is_path = len(name) <= _LONGEST and ("." in name or ":" in name) and _IMPORT_PATH.fullmatch(name) is not None
    if is_path and _is_reserved(name):
        owner = "recsys" if _top(name) == _OWN else "Python's standard library"
        raise ConfigError(f"{name!r} is part of {owner}, no {what} plugin")
    for entry in declared(what):
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


def declared(what: str) -> EntryPoints:
    """Return the entry points of a kind of component; imports none of them."""
    from importlib import metadata  # slow to import, and most configs use no plugin

    return metadata.entry_points(group=f"recsys.{what}s")


def trust(*modules: str) -> Callable[[], None]:
    """Trust modules and their submodules in this process and its children; return a function that restores the previous trust.

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
def guarded(what: str, *, hint: str | None = None, of: type[BaseException] = Exception) -> Iterator[None]:
    """Convert exceptions of a plugin, and SystemExit, to a ConfigError.

    A RecsysError passes unchanged, and so does lack of memory, a full disk or a closed pipe.
    """
    try:
        yield
    except (of, SystemExit) as error:
        if isinstance(error, RecsysError | MemoryError) or getattr(error, "errno", None) in _OF_THE_MACHINE:
            raise
        raise ConfigError(f"{what}: {type(error).__name__}: {error}", hint=hint) from error


def guard(function: Callable[_P, _R], what: str, *, of: type[BaseException] = Exception) -> Callable[_P, _R]:
    """Return a function of a plugin with its exceptions converted; see `guarded`."""

    @functools.wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _R:
        with guarded(what, hint=FIX_PLUGIN, of=of):
            return function(*args, **options)

    return call


def guard_class(kind: type, what: str, *, of: type[BaseException] = Exception) -> None:
    """Guard the methods and properties of a class of a plugin and of its base classes in the same package, in place.

    Special methods such as `__init__` stay as they are.
    """
    if _is_reserved(kind.__module__):
        return
    for base in type.mro(kind):
        if _top(base.__module__) == _top(kind.__module__):
            for name, value in list(vars(base).items()):
                if not name.startswith("__") and (replaced := _guarded_member(value, what, of)) is not None:
                    setattr(base, name, replaced)


def _guarded_member(value: object, what: str, of: type[BaseException]) -> object | None:
    """Return a guarded method or property; None for other members and those already guarded."""
    if isinstance(value, property):
        getter = _guarded_member(value.fget, what, of)
        return getter and value.getter(getter)  # type: ignore[arg-type]
    if isinstance(value, classmethod | staticmethod):
        function = _guarded_member(value.__func__, what, of)
        return function and type(value)(function)  # type: ignore[arg-type]
    if not isinstance(value, FunctionType) or value.__code__.co_filename == __file__:
        return None
    return guard(value, what, of=of)


def require_subclass(component: Any, base: type, path: str) -> None:
    """Check the base class of a plugin before any of its code is called.

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
    if not _IMPORT_PATH.fullmatch(path) or _is_reserved(path):
        raise ConfigError(f"the entry point {value!r} of the group recsys.{what}s is not a component")
    return path


def _is_reserved(path: str) -> bool:
    """Whether a path belongs to Python or this package, which have no plugins."""
    return _top(path) in {*_STANDARD, _OWN}


def _is_trusted(path: str) -> bool:
    module = path.partition(":")[0]
    return any(f"{module}.".startswith(f"{trusted}.") for trusted in _trusted())


def _trusted() -> list[str]:
    return os.environ.get(VARIABLE, "").replace(",", " ").split()


def _top(path: str) -> str:
    return re.split("[.:]", path, maxsplit=1)[0]
