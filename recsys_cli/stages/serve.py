"""`recsys serve`: bundles behind HTTP; and the form of the table of feedback."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, MissingArtifactError, MissingExtraError
from recsys_cli.features.schema import TICKS
from recsys_cli.features.spec import is_text
from recsys_cli.workspace import Bundle, Workspace

if TYPE_CHECKING:
    from recsys_cli.serving.feedback.table import TableForm
    from recsys_cli.serving.http.settings import Settings

TOKEN = "RECSYS_TOKEN"  # noqa: S105 - the name of a variable
_LEAST_TOKEN = 16
_PACKAGES = ("fastapi", "uvicorn", "orjson", "prometheus_client")


def serve(settings: Settings, started: Callable[[str], None], *, insecure: bool = False) -> None:
    """Serve bundles until SIGTERM or SIGINT; `insecure` allows other machines without a token.

    Raises:
        MissingExtraError: The extra is not installed.
        ConfigError: Other machines would reach the server without a token, or the address is in use.
        MissingArtifactError: A folder is no bundle.
        LockedError: Another server writes the feedback log.
    """
    check_extra()
    if not settings.is_local and settings.token is None and not insecure:
        raise ConfigError(
            f"--host {settings.host} lets other machines in without a token",
            hint=f"set a token in {TOKEN} or with --token-file, or allow everybody with --insecure",
        )
    for folder in settings.bundles.values():
        if not Bundle(folder).exists:
            raise MissingArtifactError(f"{folder} is no bundle: it has no manifest.json", hint="recsys export RUN")
    from recsys_cli.serving.http.server import serve as run

    run(settings, started)


def check_extra() -> None:
    """Check the packages of the extra `serve`.

    Raises:
        MissingExtraError: One is not installed.
    """
    try:
        for package in _PACKAGES:
            __import__(package)
    except ImportError as error:
        raise MissingExtraError.for_extra("serve", what="recsys serve") from error


def named_bundles(given: Sequence[str]) -> dict[str, Path]:
    """Return folders by name, of arguments such as `bundles/mf` or `main=bundles/current`.

    Raises:
        ConfigError: Two bundles have one name.
    """
    bundles: dict[str, Path] = {}
    for one in given:
        name, found, path = one.partition("=")
        folder = Path(path if found else one)
        name = name if found else folder.name or folder.resolve().name
        if not name or "/" in name:
            raise ConfigError(f"{one}: invalid name {name!r}", hint="NAME=FOLDER, such as main=bundles/current")
        if not Bundle(folder).exists and (folder / "current").is_symlink():  # of recsys publish
            folder /= "current"
        if name in bundles:
            raise ConfigError(f"two bundles are named {name}", hint=f"name one of them: other={folder}")
        bundles[name] = folder.absolute()
    return bundles


def shares_of(given: Sequence[str], bundles: Mapping[str, object], *, option: str = "--share ") -> dict[str, float]:
    """Return the share of the users by bundle, of arguments such as `a=0.9` or `a=0.9,b=0.1`; equal ones by default.

    Raises:
        ConfigError: A name is unknown, a share is no number from 0 to 1, or the sum is not 1.
    """
    if not given:
        return dict.fromkeys(bundles, 1 / len(bundles))
    shares: dict[str, float] = {}
    hint = f"{option}a=0.9,b=0.1"
    for part in ",".join(given).split(","):
        name, _, share = part.partition("=")
        if name not in bundles:
            raise ConfigError(f"{option.strip()} {name}: no such bundle", hint=f"the bundles are {', '.join(bundles)}")
        try:
            shares[name] = float(share)
        except ValueError:
            raise ConfigError(f"{option}{part}: no number", hint=hint) from None
        if not 0 <= shares[name] <= 1:
            raise ConfigError(f"{option}{part}: not from 0 to 1", hint=hint)
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ConfigError(f"the shares add up to {sum(shares.values()):g}", hint=hint)
    return shares


def table_form(config: RunConfig, workspace: Workspace, *, like: str | None, time_unit: str | None) -> TableForm:
    """Return the form of a table of feedback beside the interactions of a config, by default with their unit of times.

    The workspace has copies of the tables of a lake or a database.

    Raises:
        ConfigError: The interactions are no table of the user, or users, items, label or events are made of several columns.
        DataError: A file is missing or unreadable.
    """
    from recsys_cli.detect.names import ALIASES, simplified
    from recsys_cli.etl.reading.reader import Inputs
    from recsys_cli.ops.op import RowFilter
    from recsys_cli.serving.feedback.table import TableForm
    from recsys_cli.stages.validate import raw_tables

    if config.dataset.name != "files":
        return TableForm(like=like, time_unit=time_unit or "s")
    with raw_tables(config, workspace) as raw:
        inputs = Inputs.of(config, raw.folder if raw is not None else Path())
        reader = next(iter(inputs.interactions.values()))
        schema, how, kinds = reader.stored_schema, reader.known_times, inputs.schema
    if reader.table.format == "npy":
        raise ConfigError("NumPy arrays take no rows of feedback", hint="write CSV with --columns")
    plan, sources = config.features, inputs.program.sources
    of = {name: sorted(sources.get(name, frozenset()) & set(schema.names)) for name in filter(None, (
        plan.user, plan.item, plan.timestamp, plan.weight, plan.labels[0]))}  # fmt: skip
    user, item, time = (of.get(name or "", []) for name in (plan.user, plan.item, plan.timestamp))
    value = [one for one in of[plan.labels[0]] if one not in {*user, *item, *time}]
    event = [one for one in of.get(plan.weight or "", []) if one not in {*user, *item, *time}]
    label = [one for one in value if not is_text(kinds.field(one).type)]
    event = [one for one in dict.fromkeys((*value, *event)) if is_text(kinds.field(one).type)]
    columns = [user, item, label, time, event]
    if not user or not item or any(len(one) > 1 for one in columns):
        raise ConfigError(
            f"feedback has one value each for user, item, label, time and event, and the config reads "
            f"{'; '.join(', '.join(one) or 'none' for one in columns)} for them",
            hint="name the columns of a CSV with --columns",
        )
    if time_unit is None:
        time_unit = _unit(schema.field(time[0]).type, how.get(time[0], ""), reader.table.format) if time else "s"
    taken = {one[0] for one in columns if one}
    numbers = [one for one in schema.names if one not in taken and not is_text(schema.field(one).type)]
    filters = [op for op in plan.ops if isinstance(op, RowFilter)]
    filtered = {one: op.title for op in filters for name in op.reads for one in sources.get(name, {name})}
    counts = [one for one in numbers if one in of.get(plan.weight or "", [])
              or (one in filtered and simplified(one) in ALIASES["count"])]  # fmt: skip
    empty = [f"{one}, read by {filtered[one]}" for one in schema.names if one in filtered.keys() - {*taken, *counts}]
    return TableForm([one[0] if one else "" for one in columns], like, time_unit, reader.table, schema, counts, empty)


def _unit(kind: pa.DataType, how: str, form: str) -> str:
    """Return the unit or format of a time column, by its stored type and its detected format."""
    if "%" in how or how in TICKS:
        return how
    if how.startswith("iso"):
        return "iso"
    if how:  # numbers as text
        return how.rsplit(" ", maxsplit=1)[-1]
    if pa.types.is_timestamp(kind):
        return str(kind.unit) if form == "parquet" else "iso" if kind.tz is None else "%Y-%m-%d %H:%M:%S+00:00"
    return "%Y-%m-%d" if pa.types.is_date(kind) else "s"


def origins_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return checked origins, as browsers send them.

    Raises:
        ConfigError: A text is no origin.
    """
    for one in given:
        if not re.fullmatch(r"https?://[a-z0-9.:\[\]-]+", one):
            raise ConfigError(
                f"--cors {one}: no origin", hint="scheme, host and port in lower case: https://shop.example"
            )
    return tuple(given)


def read_token(path: Path | None) -> str | None:
    """Return the token of a file, or of the environment; None without one.

    Raises:
        ConfigError: The file cannot be read, or the token is short.
    """
    try:
        token = (path.read_text(encoding="utf-8") if path is not None else os.environ.get(TOKEN, "")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {path}: {error}", hint="name a readable file with a token") from error
    if not token and path is None:
        return None
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token needs {_LEAST_TOKEN} or more ASCII characters", hint="openssl rand -hex 32 makes one"
        )
    return token
