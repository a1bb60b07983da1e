"""Shell completion: candidates for the next word of a line. Only config keys and values import the config types."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from recsys_cli import registry
from recsys_cli.cli import shipped

if TYPE_CHECKING:
    from pydantic import BaseModel

Candidates = Iterable[tuple[str, str]]
"""Words with descriptions; a description may be empty."""
_SECTIONS = ("dataset", "split", "features", "etl", "model", "train", "evaluate", "tune", "bench")
_NAMES = {
    "model.name": (registry.AUTO, *registry.MODELS),
    "dataset.name": registry.DATASETS,
    "etl.engine": ("auto", *registry.ENGINES),
}


@dataclass
class PartialLine:
    """A command line up to the cursor: values of options, arguments, and an option before its value."""

    group: Any
    command: Any = None
    given: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    pending: Any = None

    @classmethod
    def read(cls, group: Any, words: Sequence[str]) -> PartialLine | None:
        """Parse complete words; None for an unknown command."""
        line = cls(group)
        for word in words:
            if line.pending is not None:
                line.given[line.pending.name] = word
                line.pending = None
            elif word.startswith("-"):
                name, equals, value = word.partition("=")
                param = line.options.get(name)
                if param is not None and equals:
                    line.given[param.name] = value
                elif param is not None and not param.is_flag:
                    line.pending = param
            elif line.command is None:
                line.command = group.commands.get(word)
                if line.command is None:
                    return None
            else:
                line.positional.append(word)
        return line

    @property
    def options(self) -> dict[str, Any]:
        """The available options."""
        owners = [self.group, *([self.command] if self.command else [])]
        params = [param for owner in owners for param in owner.params if param.param_type_name == "option"]
        return {name: param for param in params for name in param.opts}

    @property
    def argument(self) -> str:
        """Metavar of the next argument; empty if the command takes no more."""
        params = [param for param in self.command.params if param.param_type_name == "argument"]
        index = len(self.positional)
        if index < len(params):
            return str(params[index].metavar)
        return str(params[-1].metavar) if params and params[-1].nargs == -1 else ""

    @property
    def workspace(self) -> Path:
        """The workspace of the line."""
        return Path(self.given.get("workspace") or os.environ.get("RECSYS_WORKSPACE") or "workspace")


def complete(group: Any, text: str) -> list[tuple[str, str]]:
    """Return the completions of the last word of a line up to the cursor, with descriptions."""
    words = _words(text)
    *before, prefix = words[1:] or [""]
    line = PartialLine.read(group, before)
    if line is None:
        return []
    return [(word, meaning) for word, meaning in _candidates(line, prefix) if word.startswith(prefix)]


def _words(text: str) -> list[str]:
    """Split a line like a shell; the last word is incomplete, possibly empty."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:  # an open quote
        return [*words, str(lexer.token)]
    return words if words and not text[-1:].isspace() else [*words, ""]


def _candidates(line: PartialLine, prefix: str) -> Candidates:
    if line.pending is not None:
        return _named(str(line.pending.metavar), line, prefix)
    if prefix.startswith("-"):
        name, equals, value = prefix.partition("=")
        if equals and (param := line.options.get(name)) is not None:
            return ((f"{name}={word}", meaning) for word, meaning in _named(str(param.metavar), line, value))
        return ((name, param.help or "") for name, param in line.options.items() if name.startswith("--"))
    if line.command is None:
        return ((name, command.get_short_help_str(60)) for name, command in line.group.commands.items())
    return _named(line.argument, line, prefix)


def _named(metavar: str, line: PartialLine, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the candidates for an argument or option, by its metavar."""
    if metavar not in _SOURCES and metavar.islower():
        yield from ((name, "") for name in metavar.split("|"))
        return
    for part in metavar.split("|"):
        yield from _SOURCES[part](line, prefix) if part in _SOURCES else _paths(prefix, ("",))


def _configs(line: PartialLine, prefix: str) -> Candidates:
    del line
    yield from _paths(prefix, (".yaml", ".yml"))
    if prefix.startswith("configs/"[: len(prefix)]) and not Path("configs").is_dir():
        yield from ((f"configs/{path.name}", "") for path in shipped.configs())


def _paths(prefix: str, suffixes: tuple[str, ...]) -> Candidates:
    """Yield the folders, and the files with one of the suffixes, next to a partial path."""
    folder, slash, stem = prefix.rpartition("/")
    parent = Path(folder + slash).expanduser() if slash else Path()
    for path in sorted(parent.iterdir()) if parent.is_dir() else ():
        if path.name.startswith(".") and not stem.startswith("."):
            continue
        if path.is_dir():
            yield f"{folder}{slash}{path.name}/", ""
        elif path.name.endswith(suffixes or "/"):
            yield f"{folder}{slash}{path.name}", ""


def _runs(line: PartialLine, prefix: str) -> Candidates:
    del prefix
    folders = sorted((line.workspace / "runs").glob("*/config.yaml"), reverse=True)
    return ((path.parent.name, "") for path in folders)


def _data(line: PartialLine, prefix: str) -> Candidates:
    del prefix
    return ((path.parent.name, "") for path in sorted((line.workspace / "data").glob("*/manifest.json")))


def _datasets(line: PartialLine, prefix: str) -> Candidates:
    yield from ((name, "") for name in registry.DATASETS)
    if "/" in prefix or line.command.name != "download":
        yield from _configs(line, prefix)


def _names_of_kind(line: PartialLine, prefix: str) -> Candidates:
    from recsys_cli.cli import options

    kind = line.positional[0] if line.positional else ""
    names: dict[str, Callable[[], Iterable[str]]] = {
        "datasets": lambda: registry.DATASETS,
        "models": lambda: registry.MODELS,
        "engines": lambda: registry.ENGINES,
        "ops": options.ops,
        "splits": options.splits,
        "schedules": options.schedules,
        "sections": lambda: _SECTIONS,
        "configs": lambda: map(str, shipped.configs()),
    }
    return ((name, "") for name in names.get(kind, tuple)() if name.startswith(prefix))


def _overrides(line: PartialLine, prefix: str) -> Candidates:
    """Yield config keys, or the values of a key with a finite set of values."""
    key, equals, _ = prefix.partition("=")
    if equals:
        return ((f"{key}={value}", "") for value in _values(line, key))
    section, dot, _ = prefix.partition(".")
    if not dot:
        return ((f"{name}.", "") for name in _SECTIONS)
    return ((f"{section}.{name}=", meaning) for name, meaning in _keys(line, section).items())


def _values(line: PartialLine, key: str) -> Iterable[str]:
    if key in _NAMES:
        return _NAMES[key]
    if key == "split.method":
        from recsys_cli.cli import options

        return options.splits()
    section, _, name = key.partition(".")
    field = _fields(line, section).get(name)
    return _choices(field.annotation) if field is not None else ()


def _choices(annotation: Any) -> Iterator[str]:
    if annotation is bool:
        yield from ("true", "false")
    elif get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for part in get_args(annotation):
            yield from _choices(part)


def _keys(line: PartialLine, section: str) -> Mapping[str, str]:
    from recsys_cli.cli.field_docs import field_docs

    docs = {name: text for kind in _kinds(line, section) for name, text in field_docs(kind).items()}
    return {name: " ".join(docs.get(name, "").split()) for name in _fields(line, section)}


def _fields(line: PartialLine, section: str) -> dict[str, Any]:
    return {name: field for kind in _kinds(line, section) for name, field in kind.model_fields.items()}


def _kinds(line: PartialLine, section: str) -> list[type[BaseModel]]:
    """Return the types of a section: all splits, or the section plus the options of the line's model."""
    from recsys_cli.cli import options
    from recsys_cli.config.load import model_config_type

    if section == "split":
        return list(options.splits().values())
    kinds = options.sections()
    types = [kinds[section]] if section in kinds else []
    if section == "model":
        name = next((text.partition("=")[2] for text in line.positional if text.startswith("model.name=")), None)
        types.append(model_config_type(name or registry.DEFAULT_MODEL))
    return types


_SOURCES: dict[str, Callable[[PartialLine, str], Candidates]] = {
    "CONFIG": lambda line, prefix: (*_configs(line, prefix), *(_overrides(line, prefix) if "/" not in prefix else ())),
    "KEY=VALUE": _overrides,
    "RUN": _runs,
    "DATA": _data,
    "DATASET": _datasets,
    "NAME": _names_of_kind,
    "DIR": lambda _, prefix: _paths(prefix, ()),
    **dict.fromkeys(("N", "ID", "MODULE", "URL", "COLUMN", ""), lambda *_: ()),
}


def answer(group: Any, shell: str, text: str) -> str:
    """Return the completions in the format of a shell's script, one per line."""
    candidates = complete(group, text)
    if shell == "bash":  # bash splits words at = and :
        prefix = _words(text)[-1]
        done = max(prefix.rfind("="), prefix.rfind(":")) + 1
        return "\n".join(re.sub(r"([^\w@%+=:,./~-])", r"\\\1", word[done:]) for word, _ in candidates)
    if shell == "fish":
        return "\n".join(f"{word}\t{meaning}" for word, meaning in candidates)
    return "\n".join(word for word, _ in candidates)
