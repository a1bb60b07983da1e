"""The boundary of the Python API: arguments are checked by their annotations, and hints of errors name the Python calls."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge

from recsys_cli.errors import ConfigError, RecsysError

P = ParamSpec("P")
R = TypeVar("R")
Count = Annotated[int, Ge(1)]

_COMMAND = re.compile(r"recsys (download|etl|train|evaluate)\b([^`;,]*)")
_ARGUMENTS = {
    "download": ["dataset", "workspace"], "etl": ["config", "workspace"], "train": ["config", "workspace"], "evaluate": ["run"],
}  # fmt: skip
_FLAGS = ("force", "resume")
_MAKERS = {
    "RunConfig": "recsys.load_config and recsys.config_from_frame return one",
    "EvaluateConfig": "config.evaluate of a RunConfig is one",
    "Workspace": "recsys.Workspace(path) returns one",
    "TrainedRun": "recsys.train(config, workspace) and workspace.run(name) return one",
}
_NAMES: Mapping[Any, str] = {NoneType: "None", Callable: "a function"}
_NUMBERS: Mapping[Any, type] = {int: Integral, float: Real}


def public(call: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function by its annotations, and give its errors the Python calls in their hints."""
    names = list(inspect.signature(call).parameters)

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        with python_errors():
            check(call, {**dict(zip(names, args, strict=False)), **kwargs})
            return call(*args, **kwargs)

    return checked


@contextmanager
def python_errors() -> Iterator[None]:
    """Add the Python calls to the hint of an error, and the hint to its traceback; name the path of the system's errors."""
    try:
        yield
    except RecsysError as error:
        if error.hint and not hasattr(error, "__notes__"):  # once, in nested calls
            error.hint = with_calls(error.hint)
            error.add_note(f"hint: {error.hint}")
        raise
    except OSError as error:
        if not error.strerror:  # of a library, or of a function of the caller
            raise
        raise RecsysError.of_system(error) from error


def with_calls(hint: str) -> str:
    """Return a hint with the Python calls of its commands.

    Example:
        >>> with_calls("recsys etl --force")
        'recsys etl --force (in Python: recsys.etl(config, workspace, force=True))'
    """
    calls = dict.fromkeys(_call(*found.groups()) for found in _COMMAND.finditer(hint))
    return f"{hint} (in Python: {', '.join(calls)})" if calls else hint


def _call(stage: str, rest: str) -> str:
    flags = [f"{flag}=True" for flag in _FLAGS if f"--{flag}" in rest]
    return f"recsys.{stage}({', '.join([*_ARGUMENTS[stage], *flags])})"


def check(owner: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Check values by the annotations of a function's parameters, or of a class's fields.

    Raises:
        ConfigError: The first value that does not fit.
    """
    kinds = _annotations(owner)
    for name, value in values.items():
        kind = kinds.get(name, kinds.get("", Any))
        if (problem := _problem(name, value, kind)) is not None:
            hints = "; ".join(_MAKERS[one] for one in re.findall(r"\w+", _shown(kind)) if one in _MAKERS)
            raise ConfigError(problem, hint=hints or None)


@cache
def _annotations(owner: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations by parameter, of further keywords by ""; without types that are imported for checkers only."""
    module, found = vars(sys.modules[owner.__module__]), {}
    for name, parameter in inspect.signature(owner).parameters.items():
        known = "" if parameter.kind is parameter.VAR_KEYWORD else name
        found[known] = Any
        if isinstance(parameter.annotation, str):
            alone = type("_Alone", (), {"__annotations__": {"it": parameter.annotation}})
            with suppress(NameError, TypeError):
                found[known] = get_type_hints(alone, globalns=module, include_extras=True)["it"]
    return found


def _problem(name: str, value: Any, kind: Any) -> str | None:  # noqa: PLR0911 - one sort of annotation per branch
    """Return why a value does not fit an annotation; None if it fits."""
    origin, inner = get_origin(kind), get_args(kind)
    wrong = f"{name} has to be {_shown(kind)}, not {type(value).__name__}: {value!r:.60}"
    if origin in {Union, UnionType}:
        problems = [_problem(name, value, one) for one in inner]
        more = [problem for problem in problems if problem and not problem.startswith(f"{name} has to be")]
        return None if None in problems else (*more, wrong)[0]
    if origin is Annotated:
        small = f"{name} is {value!r:.60}, but has to be {inner[1].ge} or more"
        return _problem(name, value, inner[0]) or (small if value < inner[1].ge else None)
    if origin is Literal:
        return None if isinstance(value, str) and value in inner else wrong
    if kind in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, _NUMBERS[kind]):
            return wrong
        large = isinstance(value, Integral) and abs(int(value)) >= 1 << 63
        return f"{name} does not fit into 64 bits: {value!r:.60}" if large else None
    if kind in {str, Path} and isinstance(value, kind):
        unfit = re.search("[\0\ud800-\udc7f\udd00-\udfff]", str(value))  # the others stand for bytes of a file name
        return f"{name} has a character that no text may have: {str(value)!r:.60}" if unfit else None
    if origin is not None and issubclass(origin, Iterable) and not issubclass(origin, Mapping):
        return _problem_of_list(name, value, kind, wrong)
    if kind is Any or isinstance(value, origin or kind):
        pairs = value.items() if origin is Mapping else ()
        found = [
            _problem(f"a key of {name}", key, inner[0]) or _problem(f"{name}[{key!r:.60}]", one, inner[1])
            for key, one in pairs
        ]
        return next(filter(None, found), None)
    return wrong


def _problem_of_list(name: str, value: Any, kind: Any, wrong: str) -> str | None:
    if isinstance(value, str | bytes):
        return f"{name} is a single text; pass a list, such as [{value!r:.60}]"
    is_list = hasattr(value, "__iter__") and getattr(value, "shape", None) != ()
    if (
        not is_list
        or isinstance(value, Mapping | set)
        or (get_origin(kind) is not Iterable and not hasattr(value, "__len__"))
    ):
        return wrong
    (element,) = get_args(kind)
    if element is Any or isinstance(value, Iterator):
        return None
    problems = (_problem(f"{name}[{position}]", one, element) for position, one in enumerate(value))
    return next(filter(None, problems), None)


def _shown(kind: Any) -> str:
    """Return an annotation in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return " or ".join(map(_shown, inner))
    if origin is Literal:
        return " or ".join(inner)
    if origin is Annotated:
        return _shown(inner[0])
    if origin in _NAMES or kind in _NAMES:
        return _NAMES[origin or kind]
    elements = f"[{', '.join(map(_shown, inner))}]" if origin and Any not in inner else ""
    return f"{(origin or kind).__name__}{elements}"
