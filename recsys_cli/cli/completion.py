"""Shell completion: what may come next on a line, and the scripts by which bash, zsh and fish ask for it.

Everything but keys of a config is answered from names and folders alone; keys and their values take the types of the config.
"""

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
"""Words with what they mean, which may be empty."""
_SECTIONS = ("dataset", "split", "features", "etl", "model", "train", "evaluate", "tune", "bench")
_NAMES = {
    "model.name": registry.MODELS,
    "dataset.name": registry.DATASETS,
    "etl.engine": ("auto", *registry.ENGINES),
}


@dataclass
class PartialLine:
    """A line up to the cursor.

    Attributes:
        group: The program.
        command: The command on it, once there is one.
        given: Values of options, by parameter.
        positional: Arguments of the command.
        pending: The option whose value comes next.
    """

    group: Any
    command: Any = None
    given: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    pending: Any = None

    @classmethod
    def read(cls, group: Any, words: Sequence[str]) -> PartialLine | None:
        """Read whole words; None where they are no line of the program."""
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
        """The options that may come, by how they are written."""
        owners = [self.group, *([self.command] if self.command else [])]
        params = [param for owner in owners for param in owner.params if param.param_type_name == "option"]
        return {name: param for param in params for name in param.opts}

    @property
    def argument(self) -> str:
        """What the next argument is called in the help; empty where none may come."""
        params = [param for param in self.command.params if param.param_type_name == "argument"]
        place = len(self.positional)
        if place < len(params):
            return str(params[place].metavar)
        return str(params[-1].metavar) if params and params[-1].nargs == -1 else ""

    @property
    def workspace(self) -> Path:
        """The workspace that the command would work in."""
        return Path(self.given.get("workspace") or os.environ.get("RECSYS_WORKSPACE") or "workspace")


def complete(group: Any, text: str) -> list[tuple[str, str]]:
    """Return the words that may stand where a line ends, with what they mean.

    Args:
        group: The program, as a click group.
        text: The line up to the cursor, with the program's name.
    """
    words = _words(text)
    *before, begun = words[1:] or [""]
    line = PartialLine.read(group, before)
    if line is None:
        return []
    return [(word, meaning) for word, meaning in _candidates(line, begun) if word.startswith(begun)]


def _words(text: str) -> list[str]:
    """Split a line as a shell does; the last word is the one that is being written, maybe empty."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[str] = []
    try:
        found.extend(lexer)
    except ValueError:  # a quote is open
        return [*found, str(lexer.token)]
    return found if found and not text[-1:].isspace() else [*found, ""]


def _candidates(line: PartialLine, begun: str) -> Candidates:
    if line.pending is not None:
        return _named(str(line.pending.metavar), line, begun)
    if begun.startswith("-"):
        name, equals, value = begun.partition("=")
        if equals and (param := line.options.get(name)) is not None:
            return ((f"{name}={word}", meaning) for word, meaning in _named(str(param.metavar), line, value))
        return ((name, param.help or "") for name, param in line.options.items() if name.startswith("--"))
    if line.command is None:
        return ((name, command.get_short_help_str(60)) for name, command in line.group.commands.items())
    return _named(line.argument, line, begun)


def _named(metavar: str, line: PartialLine, begun: str) -> Iterator[tuple[str, str]]:
    """Yield what an argument or an option may be, by what it is called in the help."""
    if metavar not in _SOURCES and metavar.islower():
        yield from ((name, "") for name in metavar.split("|"))
        return
    for part in metavar.split("|"):
        yield from _SOURCES.get(part, _files)(line, begun)


def _configs(line: PartialLine, begun: str) -> Candidates:
    del line
    yield from _paths(begun, (".yaml", ".yml"))
    if begun.startswith("configs/"[: len(begun)]) and not Path("configs").is_dir():
        yield from ((f"configs/{path.name}", "") for path in shipped.configs())


def _files(line: PartialLine, begun: str) -> Candidates:
    del line
    return _paths(begun, ("",))


def _folders(line: PartialLine, begun: str) -> Candidates:
    del line
    return _paths(begun, ())


def _paths(begun: str, suffixes: tuple[str, ...]) -> Candidates:
    """Yield folders, and the files with some suffixes, that begin as a path does."""
    folder, slash, stem = begun.rpartition("/")
    place = Path(folder + slash).expanduser() if slash else Path()
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name.startswith(".") and not stem.startswith("."):
            continue
        if path.is_dir():
            yield f"{folder}{slash}{path.name}/", ""
        elif path.name.endswith(suffixes or "/"):
            yield f"{folder}{slash}{path.name}", ""


def _runs(line: PartialLine, begun: str) -> Candidates:
    del begun
    folders = sorted((line.workspace / "runs").glob("*/config.yaml"), reverse=True)
    return ((path.parent.name, "") for path in folders)


def _data(line: PartialLine, begun: str) -> Candidates:
    del begun
    return ((path.parent.name, "") for path in sorted((line.workspace / "data").glob("*/manifest.json")))


def _datasets(line: PartialLine, begun: str) -> Candidates:
    yield from ((name, "") for name in registry.DATASETS)
    if "/" in begun or line.command.name != "download":
        yield from _configs(line, begun)


def _names_of_kind(line: PartialLine, begun: str) -> Candidates:
    """Yield the names that `ls KIND` lists."""
    from recsys_cli.cli import options

    kind = line.positional[0] if line.positional else ""
    known: dict[str, Callable[[], Iterable[str]]] = {
        "datasets": lambda: registry.DATASETS,
        "models": lambda: registry.MODELS,
        "engines": lambda: registry.ENGINES,
        "ops": options.ops,
        "splits": options.splits,
        "schedules": options.schedules,
        "sections": lambda: _SECTIONS,
        "configs": lambda: map(str, shipped.configs()),
    }
    return ((name, "") for name in known.get(kind, tuple)() if name.startswith(begun))


def _overrides(line: PartialLine, begun: str) -> Candidates:
    """Yield keys of a config, or the values of one where they can be told."""
    key, equals, _ = begun.partition("=")
    if equals:
        return ((f"{key}={value}", "") for value in _values(line, key))
    section, dot, _ = begun.partition(".")
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
    found = _fields(line, section).get(name)
    return _choices(found.annotation) if found is not None else ()


def _choices(annotation: Any) -> Iterator[str]:
    """Yield the values of a type that has only a few."""
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
    """Return the types of a section: all ways to split, and of the model's the options of the model that the line names."""
    from recsys_cli.cli import options
    from recsys_cli.config.load import model_config_type

    if section == "split":
        return list(options.splits().values())
    kinds = options.sections()
    found = [kinds[section]] if section in kinds else []
    if section == "model":
        name = next((text.partition("=")[2] for text in line.positional if text.startswith("model.name=")), None)
        found.append(model_config_type(name or registry.DEFAULT_MODEL))
    return found


_SOURCES: dict[str, Callable[[PartialLine, str], Candidates]] = {
    "CONFIG": lambda line, begun: (*_configs(line, begun), *(_overrides(line, begun) if "/" not in begun else ())),
    "KEY=VALUE": _overrides,
    "RUN": _runs,
    "DATA": _data,
    "DATASET": _datasets,
    "NAME": _names_of_kind,
    "DIR": _folders,
    "N": lambda *_: (),
    "ID": lambda *_: (),
    "MODULE": lambda *_: (),
    "URL": lambda *_: (),
    "COLUMN": lambda *_: (),
    "": lambda *_: (),
}


def answer(group: Any, shell: str, text: str) -> str:
    """Return the words that may come as the script of a shell wants them, a line each."""
    found = complete(group, text)
    if shell == "bash":  # it takes what stands behind = and : for a word of its own
        begun = _words(text)[-1]
        done = max(begun.rfind("="), begun.rfind(":")) + 1
        return "\n".join(re.sub(r"([^\w@%+=:,./~-])", r"\\\1", word[done:]) for word, _ in found)
    if shell == "fish":
        return "\n".join(f"{word}\t{meaning}" for word, meaning in found)
    return "\n".join(word for word, _ in found)
