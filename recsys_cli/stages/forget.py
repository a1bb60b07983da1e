"""`recsys forget`: users and items removed from all that recsys owns. Each place is replaced in one step; a later call finishes."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch

from recsys_cli.config import load
from recsys_cli.data import open_source
from recsys_cli.data.raw_files import compression
from recsys_cli.data.source import RawTable
from recsys_cli.errors import RecsysError
from recsys_cli.etl.forgotten import FORGOTTEN, PARQUET, REMADE, Forgotten, ForgottenData, opened, rewrite
from recsys_cli.evaluation.loaded_run import config_of, model_of
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import FIRST, UNSEEN, Role
from recsys_cli.models import kind_of
from recsys_cli.models.collaborative.features import CollaborativeFeatures
from recsys_cli.models.model import Model
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.feedback import table as feedback_table
from recsys_cli.serving.feedback.log import current_files, exclusive, outdated_files
from recsys_cli.serving.feedback.state import Event, lines_of
from recsys_cli.stages.daily import State
from recsys_cli.stages.export import bundle_key, export
from recsys_cli.stages.train import train_run
from recsys_cli.stages.warm_start import tables_of
from recsys_cli.training.checkpoint import Checkpoint, weights
from recsys_cli.training.ranks import Ranks
from recsys_cli.workspace import Artifact, PreparedData, TrainedRun, Workspace, replacing, write_json
from recsys_cli.workspace.artifacts import MANIFEST
from recsys_cli.workspace.locks import alone, sweep_all

_ROUNDS = 200_000
_OWN = ("raw", "data", "runs", "tune", "daily", ".locks", ".scratch", FORGOTTEN)
_ANEW = {
    PreparedData: REMADE,
    TrainedRun: ("last.safetensors", "evaluation*.json", "rankings*.safetensors", "report*.html"),
}
"""Files of an artifact that are not copied; an evaluation or a training makes those of a run again."""
_PAGES = {".html", ".json", ".md", ".txt"}
_RESET = "rows of the ids reset in tables; only a new training removes what other weights learned"
_ROLES = (Role.USER, Role.ITEM)


class _Place(NamedTuple):
    """A place of the ids, and what is done there; `act` is None if it is left to the user."""

    path: Path
    done: str
    act: Callable[[], object] | None = None


def forget(
    ids: Mapping[Role, Sequence[str]], workspace: Workspace, *,
    folders: Sequence[Path] = (), dry_run: bool = False, emit: Emit = ignore,
) -> dict[str, Any]:  # fmt: skip
    """Remove users and items from the workspace and from further folders; return the receipt. A dry run only lists the places.

    Raises:
        LockedError: Another command works in the workspace, or a server writes a feedback folder.
    """
    roots, receipt = (workspace.root, *folders), _receipt(ids)
    path = workspace.root / FORGOTTEN / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{receipt['salt'][:8]}.json"
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(alone(workspace.root))
            for folder in _feedback_folders(roots):
                stack.enter_context(exclusive(folder))
            sweep_all(roots)
        forgotten = _described(ids, workspace)
        places = list(_places(forgotten, workspace, roots))
        receipt["places"] = [{"path": str(place.path), "done": place.done} for place in places]
        receipt["left"] = [str(place.path) for place in places if place.act is None]
        receipt["sources"] = dict(_sources(forgotten, workspace))
        if dry_run:
            return {"receipt": None, **receipt}
        write_json(path, receipt)  # before the changes, which a later call does not see
        for number, act in enumerate(place.act for place in places if place.act is not None):
            emit(Progress("forget", number, len(places), "parts"))
            act()
        write_json(path, receipt | {"finished": True})
    return {"receipt": str(path), **receipt, "finished": True}


def _described(ids: Mapping[Role, Sequence[str]], workspace: Workspace) -> Forgotten:
    """Return the ids with the names of their columns, and whether they are numbers in some prepared data."""
    found = Forgotten(
        {role: tuple(ids.get(role, ())) for role in _ROLES}, {role: {role.value} for role in _ROLES}, set()
    )
    for data in workspace.all_data():
        plan = FittedPlan.read(data.folder).plan
        for column in (data.schema.only(role) for role in _ROLES):
            found.names[column.role].update((column.name, plan.raw_name(column.name)))
            kind = pq.read_schema(data.vocabulary(column.vocabulary)).field("value").type if column.vocabulary else ""
            found.numeric.update([column.role] if "int" in str(kind) else [])
    return found


def _places(forgotten: Forgotten, workspace: Workspace, roots: Sequence[Path]) -> Iterator[_Place]:
    """Yield the places; inputs come before what is made of them."""
    for raw in workspace.all_raw():
        paths = [path for path in raw.folder.rglob("*") if path.is_file() and path.name != MANIFEST]
        if found := [path.relative_to(raw.folder) for path in paths if rewrite(path, None, forgotten)]:
            act = partial(_swap, workspace, raw, partial(_rewrite, found, forgotten))
            yield _Place(raw.folder, f"rows removed from {', '.join(map(str, found))}", act)
        elif any(path.suffix not in PARQUET and _has(path, forgotten) for path in paths):
            yield _Place(raw.folder, "not changed: has the ids as words; check it, and remove the folder")
    stale: set[str] = set()
    for data in workspace.all_data():
        if (one := ForgottenData(data, forgotten)).is_affected:
            stale.add(data.key)
            yield _Place(data.folder, f"ids and {one.rows:,} rows removed", partial(_swap, workspace, data, one.write))
    for run in workspace.runs():
        if not run.exists:
            if stale or any(FORGOTTEN in one.manifest for one in workspace.all_data()):
                yield _Place(run.folder, "unfinished run removed: train it anew", partial(workspace.remove, run))
        elif _times(run) < _times(workspace.data(key := run.manifest["data"]["key"])) or key in stale:
            stale.add(run.folder.name)
            refit = kind_of(config_of(run).model.name).rows == "all"
            done = "fitted again, as without the rows" if refit else _RESET
            yield _Place(run.folder, f"{done}; evaluation removed", partial(_correct, run, workspace, refit=refit))
    yield from _bundles(forgotten, workspace, roots, stale)
    yield from _feedback(forgotten, roots)
    yield from _refusals(forgotten, workspace)
    yield from _loose(forgotten, roots)


def _times(made: Artifact) -> int:
    """Return how often data has forgotten ids; of a run or an export, the data that it was made of."""
    return made.manifest.get("data", made.manifest).get(FORGOTTEN, 0) if made.exists else 0


def _swap(workspace: Workspace, artifact: Artifact, change: Callable[[Path, dict[str, Any]], None]) -> None:
    """Replace an artifact by a changed copy."""
    manifest = {name: value for name, value in artifact.manifest.items() if name != "files"}
    with workspace.create(artifact, manifest) as folder:
        ignored = shutil.ignore_patterns(MANIFEST, *_ANEW.get(type(artifact), ()))
        shutil.copytree(artifact.folder, folder, ignore=ignored, dirs_exist_ok=True)
        change(folder, manifest)


def _rewrite(paths: Iterable[Path], forgotten: Forgotten, folder: Path = Path(), _: Any = None) -> None:
    for path in paths:
        with replacing(folder / path) as made:
            rewrite(folder / path, made, forgotten)


def _has(path: Path, forgotten: Forgotten) -> bool:
    """Whether a Parquet file has rows of the ids, or another file has them as words."""
    if path.suffix in PARQUET:
        return rewrite(path, None, forgotten) > 0
    with opened(path) as lines:
        return any(map(forgotten.is_in, lines))


def _correct(run: TrainedRun, workspace: Workspace, *, refit: bool) -> None:
    """Replace a run by one of the corrected data."""
    data, config = workspace.data_of(run), config_of(run)

    def change(folder: Path, manifest: dict[str, Any]) -> None:
        made = TrainedRun(folder)
        if refit:
            train_run(made, data, config, workspace, ranks=Ranks(), resume=False, emit=ignore)
            manifest |= {name: value for name, value in made.manifest.items() if name != "files"}
        else:
            best, model = Checkpoint.load(run.checkpoint("best")), model_of(run, config, data)
            _reset(model, data)
            Checkpoint({**best.tensors, **weights(model)}, best.meta).save(made.checkpoint("best"))
        manifest["data"] = {**manifest["data"], FORGOTTEN: _times(data)}

    _swap(workspace, run, change)


@torch.no_grad()
def _reset(model: Model, data: PreparedData) -> None:
    """Replace the rows of forgotten ids by that of unseen ids, and their collaborative features by zeros."""
    gone = {}
    for column in (column for column in data.schema.categorical if column.vocabulary):
        values = read_parquet(data.vocabulary(str(column.vocabulary)), ["value"])["value"]
        gone[column.name] = torch.from_numpy(np.flatnonzero(values.is_null()) + FIRST)
    for owner, name in tables_of(model).values():
        if (ids := gone.get(name)) is not None:
            owner.write_rows(name, ids, owner.table(name)[[UNSEEN]].expand(len(ids), -1))
    for module in (one for one in model.modules() if isinstance(one, CollaborativeFeatures)):
        for name, values in module.named_buffers():
            for column in (data.schema.only(role) for role in _ROLES if role.value in name):
                if column.cardinality in values.shape:
                    values.index_fill_(values.shape.index(column.cardinality), gone[column.name], 0)


def _bundles(forgotten: Forgotten, workspace: Workspace, roots: Sequence[Path], stale: set[str]) -> Iterator[_Place]:
    """Yield exports of corrected runs; and others with the ids: their run, or its prepared data, is gone."""
    seen: set[Path] = set()
    for folder in sorted(path.parent for root in roots for path in root.rglob(MANIFEST)):
        manifest = Artifact(folder).manifest
        if not isinstance(made_of := manifest.get("run"), dict):
            continue
        run = workspace.run_named(made_of["name"])
        is_here = run.exists and run.key == made_of["key"]
        if is_here and (run.folder.name in stale or _times(Artifact(folder)) < _times(run)):
            for delta in set(folder.parent.parent.glob("deltas/*.delta")) - seen:
                seen.add(delta)
                yield _Place(delta, "removed: it packs rows of the ids", partial(delta.unlink, missing_ok=True))
            yield _Place(folder, "exported again", partial(_export, run, workspace, folder, manifest))
        elif any(ForgottenData(PreparedData(path.parent), forgotten).is_affected for path in folder.rglob("plan.json")):
            yield _Place(folder, f"not changed: the run {run.folder.name} or its data is gone; remove this export")


def _export(run: TrainedRun, workspace: Workspace, folder: Path, manifest: Mapping[str, Any]) -> None:
    kind = "triton" if manifest["kind"] == "TritonRepository" else manifest.get("export", "bundle")
    own = {"histories": manifest.get("histories", True), "tables": manifest.get("tables", {}).get("type", "fp32")}
    own["newest"] = manifest["key"] == bundle_key(run, kind, **own, newest=True)
    export(run, workspace, kind=kind, out=folder, **own, verify=False, force=True)


def _feedback_folders(roots: Iterable[Path]) -> list[Path]:
    files = (path for root in roots for path in root.rglob("*.jsonl"))
    return sorted({path.parent for path in files if path in current_files(path.parent)})


def _feedback(forgotten: Forgotten, roots: Sequence[Path]) -> Iterator[_Place]:
    """Yield feedback logs with events of the ids, or with lines that cannot be read."""

    def drops(event: Event) -> bool:
        return forgotten.is_one(Role.USER, event.user) or forgotten.is_one(Role.ITEM, event.item)

    for folder in _feedback_folders(roots):
        events = [event for path in current_files(folder) for event in lines_of(path.read_bytes())]
        number = sum(event is not None and drops(event) for event in events)
        if number or None in events or outdated_files(folder) or any(folder.glob("*.damaged")):
            yield _Place(folder, f"{number:,} events removed", partial(feedback_table.rewrite, folder, drops=drops))


def _refusals(forgotten: Forgotten, workspace: Workspace) -> Iterator[_Place]:
    """Yield states of updates with ids in the reason of a refusal; the next update judges its rows again."""
    for path in workspace.root.glob("daily/*/*.json"):
        state = State.read(path)
        if state.refused and forgotten.is_in(json.dumps(state.refused).encode()):
            state.refused, state.key = None, ""
            yield _Place(path, "reason of a refused update removed", partial(state.write, path))


def _loose(forgotten: Forgotten, roots: Sequence[Path]) -> Iterator[_Place]:
    """Yield tables and pages outside artifacts, such as recommendations in a file."""
    for root in roots:
        exports = {path.parent for path in root.rglob(MANIFEST)}
        for path in sorted(path for path in root.rglob("*") if path.is_file() and not exports & set(path.parents)):
            if path.relative_to(root).parts[0] in _OWN or path in current_files(path.parent):
                continue
            if number := rewrite(path, None, forgotten):
                yield _Place(path, f"{number:,} rows removed", partial(_rewrite, [path], forgotten))
            elif path.suffix in _PAGES and forgotten.is_in(path.read_bytes()):
                act = path.unlink if path.suffix == ".html" else None
                yield _Place(
                    path, "page with the ids as words removed" if act else "not changed: has the ids as words", act
                )


def _sources(forgotten: Forgotten, workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield where data comes from, and whether the ids are still there."""
    for raw in workspace.all_raw():
        yield from (
            (f"{raw.folder.name}: {name}", "not searched") for name in raw.manifest["facts"].get("copies", ["download"])
        )
    for data in workspace.all_data():
        dataset, tables = load(data.folder / "config.yaml").dataset, tuple[RawTable, ...]()
        raw = workspace.raw(dataset.name)
        with suppress(RecsysError):  # files that are gone have no ids
            tables = open_source(dataset.name, dataset.options).tables(raw.folder)
        for file in (file for table in tables for file in table.files):
            if not isinstance(file, Path) or compression(file.name) not in {None, "gzip"}:
                yield str(file), "not searched"
            elif raw.folder not in file.parents:
                yield str(file), "yes" if _has(file, forgotten) else "no"


def _receipt(ids: Mapping[Role, Sequence[str]]) -> dict[str, Any]:
    """Return a new receipt: a slow, salted digest in place of the ids, because short ones could be guessed."""
    salt = secrets.token_hex(16)
    text = json.dumps({role.value: sorted(given) for role, given in ids.items()}, sort_keys=True).encode()
    return {
        "salt": salt,
        "digest": hashlib.pbkdf2_hmac("sha256", text, salt.encode(), _ROUNDS).hex(),
        "finished": False,
    }
