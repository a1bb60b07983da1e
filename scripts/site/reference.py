"""The reference pages of the site, from the code: commands from Typer's tree, all other entries from `recsys ls --json`."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from typer.main import get_command

from recsys_cli.cli import app
from tests.op_examples import EXAMPLES as OPS

ROOT = Path(__file__).resolve().parents[2]

KINDS: dict[str, tuple[str, str, str]] = {
    "sections": (
        "Config options",
        "{name}.",
        "The sections of a config, with their keys and defaults. `split`, `features.ops` and `train.schedule` have several types: "
        "[splits](splits.md), [ops](ops.md), [schedules](schedules.md). The other keys of `dataset` and `model` are those of "
        "[datasets](datasets.md) and [models](models.md).",
    ),
    "datasets": ("Datasets", "dataset.", "Values of `dataset.name`."),
    "splits": ("Splits", "split.", "Values of `split.method`."),
    "ops": ("Ops", "", "Values of `op` in `features.ops`, in alphabetical order; they run in the order of the config."),
    "models": (
        "Models",
        "model.",
        "Values of `model.name`. Best first for each task, by results on MovieLens latest-small.",
    ),
    "schedules": ("Schedules", "train.schedule.", "Values of `train.schedule.name`."),
    "metrics": ("Metrics", "", "Names in results and of `train.monitor`; `k` is a cut-off of `evaluate.k`."),
    "engines": ("Engines", "", "Values of `etl.engine`."),
}
"""Kind of `recsys ls` → title, prefix of its options in a config, introduction."""
EXAMPLES = {op.__name__: {"op": op.__name__, **of.model_dump(exclude_defaults=True)} for op, of in OPS.items()}


def pages() -> dict[str, str]:
    """Return the Markdown of each page by its path under docs/."""
    written = {"commands": _commands(), "configs": _configs()} | {kind: _entries(kind) for kind in KINDS}
    return {f"reference/{name}.md": "\n\n".join(parts) + "\n" for name, parts in written.items()}


def _commands() -> Iterator[str]:
    group: Any = get_command(app)
    yield "# Commands"
    yield "`--help` behind a command prints its entry. Exit codes are in the [guide](../guide.md#first-run)."
    yield _table(
        ("command", ""), ((_link(name), command.help.splitlines()[0]) for name, command in group.commands.items())
    )
    yield from ("## Options of all commands { #global }", _parameters(group, "recsys"))
    for name, command in group.commands.items():
        context = command.make_context(f"recsys {name}", [], resilient_parsing=True)
        usage = " ".join(command.get_usage(context).split()).removeprefix("Usage: ")
        yield _heading(name)
        yield prose(command.help)
        yield f"```text\n{usage}\n```"
        yield _parameters(command, name)


def _parameters(command: Any, prefix: str) -> str:
    context = command.make_context(prefix, [], resilient_parsing=True)
    records = [(param.name, param.get_help_record(context)) for param in command.params]
    return "\n".join(
        _definition(f"{prefix}.{name}", re.sub(r" <.*>$", "", record[0]), "", record[1])
        for name, record in records
        if record
    )


def _entries(kind: str) -> Iterator[str]:
    title, prefix, introduction = KINDS[kind]
    rows: Sequence[Mapping[str, Any]] = _ls(kind)[kind]
    yield f"# {title}"
    yield introduction
    if "task" in rows[0]:
        for task in dict.fromkeys(row["task"] for row in rows):
            of_task = [(_link(row["name"]), row["when"]) for row in rows if row["task"] == task]
            yield f"To {task}:"
            yield _table(("name", "use"), of_task)
    else:
        yield _table(("name", ""), ((_link(row["name"]), _summary(row)) for row in rows))
    seen = {None, ""}
    for row in rows:
        entry = _ls(kind, row["name"])
        yield _heading(row["name"])
        yield prose(f"{_summary(row)} {row.get('homepage') or ''}".rstrip())
        yield from map(prose, entry.get("meaning", "").splitlines())
        if row.get("notice") not in seen:
            yield prose(row["notice"])
        seen.add(row.get("notice"))
        if kind == "ops":
            yield f"```yaml\n- {_yaml(EXAMPLES[row['name']])}\n```"
        options = (_option(row["name"], prefix.format(name=row["name"]), option) for option in entry.get("options", ()))
        yield "\n".join(options)
        if entry.get("train"):
            yield f"Defaults of the `train` section: `{_yaml(entry['train'])}`."


def _summary(row: Mapping[str, Any]) -> str:
    if "licence" not in row:
        return str(row["summary"])
    size = f"{row['rows']:,} rows. " if row["rows"] else ""
    return f"{size}License: {row['licence']}."


def _option(entry: str, prefix: str, option: Mapping[str, Any]) -> str:
    default = "required" if option["required"] else f"default `{_yaml(option['default'])}`"
    return _definition(
        f"{entry}.{option['name']}", prefix + option["name"], f"{prose(option['type'])}, {default}", option["meaning"]
    )


def _configs() -> Iterator[str]:
    yield "# Configs"
    yield "Commands take these files from any folder, as `configs/NAME.yaml`."
    files = sorted((ROOT / "configs").glob("*.yaml"))
    yield _table(("config", ""), ((_link(path.name), path.read_text().splitlines()[0].lstrip("# ")) for path in files))
    for path in files:
        yield _heading(path.name)
        yield f"```yaml\n{path.read_text()}```"


def _ls(*words: str) -> dict[str, Any]:
    """Return the answer of `recsys ls`."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = get_command(app).main(["ls", *words, "--json"], standalone_mode=False)
    assert not code, f"recsys ls {' '.join(words)} ended with {code}"
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def prose(text: str) -> str:
    """Escape Markdown and HTML outside of inline code."""
    parts = re.split(r"(`[^`]*`|https://\S+[^\s.,)]|(?<!\S)--[a-z][a-z-]*)", text)
    parts[::2] = [re.sub(r"([*_\[\]|\\#])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    parts[1::2] = [f"<{part}>" if part.startswith("http") else f"`{part.strip('`')}`" for part in parts[1::2]]
    return "".join(parts)


def _definition(anchor: str, name: str, kind: str, meaning: str) -> str:
    body = "\n    ".join(prose(meaning).splitlines())
    return f"`{name}`{{ #{anchor} }} {kind}\n:   {body}\n"


def _heading(name: str) -> str:
    return f"## {prose(name)} {{ #{_anchor(name)} }}"


def _link(name: str) -> str:
    return f"[{prose(name)}](#{_anchor(name)})"


def _anchor(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *([name, prose(text)] for name, text in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _yaml(value: Any) -> str:
    """Write a value as in a config, on one line."""
    match value:
        case Mapping():
            return f"{{{', '.join(f'{key}: {_yaml(inner)}' for key, inner in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_yaml, value))}]"
        case str():
            return value if re.fullmatch(r"[A-Za-z_/][\w./-]*", value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
