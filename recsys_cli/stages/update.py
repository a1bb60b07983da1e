"""`recsys update`: a day of a served recommender.

New rows are taken, ids grow, the model continues, a gate decides, and a version is published. All parts are artifacts with keys: a
killed update goes on where it ended, and a second one of the same day does nothing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from recsys_cli.config import Recent, RunConfig, UpdateConfig
from recsys_cli.data import open_source
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError, listed
from recsys_cli.etl.calendar import DAY, WATCHED, added, kept
from recsys_cli.etl.days import NewInteractions, new_interactions
from recsys_cli.evaluation.loaded_run import config_of
from recsys_cli.events import Emit, Event, Message, ignore
from recsys_cli.features.schema import Role
from recsys_cli.features.split import TemporalSplit
from recsys_cli.loader.recent import read_times
from recsys_cli.models import kind_of
from recsys_cli.ops import Categorify
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.packages import pq
from recsys_cli.registry import AUTO
from recsys_cli.stages.daily import State
from recsys_cli.stages.day_checks import Problem, problems
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl, inputs
from recsys_cli.stages.gate import Gate, figures_of, judge, outcomes, prepared_as
from recsys_cli.stages.keys import by_content, files_in
from recsys_cli.stages.publish import Publication
from recsys_cli.stages.train import train
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, key_of

_SIGMAS = 1.96
_FIRST_SHARE = 0.02
"""Held-out share of the first update, which has all rows."""
Verdict = Literal["promoted", "refused", "nothing new"]


@dataclass(frozen=True)
class Update:
    """The result of an update.

    Attributes:
        verdict: Whether a new version is served.
        steps: What each step did, by name.
        problems: The failed checks of a refused day.
        gate: The comparison with yesterday's model; None for the first version and before training.
        version: Number of the served version; None before the first.
        run: Its run.
    """

    verdict: Verdict
    steps: Mapping[str, str]
    problems: tuple[Problem, ...] = ()
    gate: Gate | None = None
    version: int | None = None
    run: str | None = None


def update(
    config: RunConfig, workspace: Workspace, name: str, *,
    accept: Collection[str] = (), since: float | None = None, full: bool = False, emit: Emit = ignore,
) -> Update:  # fmt: skip
    """Bring a served recommender up to date with the rows of a config.

    `split` and the epochs of a continued model are those of `update`. Names in `accept` are of checks that may fail, and
    `gate`. Rows from `since` on, in seconds since 1970, are taken again; `full` trains a full model beside the continued one.

    Raises:
        ConfigError: The data has no times, or the config does not fit.
        MissingArtifactError: A run or prepared data of the served version is gone.
    """
    with workspace.lock(f"update-{name}", emit=emit):
        return _Updating(config, workspace, name, frozenset(accept), emit).run(since, full=full)


@dataclass(frozen=True)
class _Candidate:
    """Today's run with its metric; `is_full` if a full training was among the candidates."""

    run: TrainedRun
    metric: str
    figures: Mapping[str, float | None]
    gate: Gate | None
    is_full: bool


@dataclass
class _Updating:
    config: RunConfig
    workspace: Workspace
    name: str
    accept: frozenset[str]
    emit: Emit

    def __post_init__(self) -> None:
        self.folder = self.workspace.root / "daily" / self.name
        self.publication = Publication(self.workspace.root / "published" / self.name)
        self.options = self.config.update or UpdateConfig()
        self.settings = _settings(self.config)
        self.steps: dict[str, str] = {}
        self.repeats = False

    def run(self, since: float | None, *, full: bool) -> Update:
        self.state = state = self._state()
        self.served = served = _served(state, self.publication)
        if not open_source(self.config.dataset.name, self.config.dataset.options).info.is_own:
            download(self.config.dataset, self.workspace, emit=self.emit)
        identity = inputs(self.config, self.workspace)
        self.key = key_of("update", identity, self.settings)
        if since is not None and state.through is not None:
            self.repeats, state.through = True, min(math.nextafter(since, 0), state.through)
            state.days = [day for day in state.days if day.last < since]
        elif self.key == state.key and not full and not (state.refused and self.accept):
            return self._as_before()
        files, tables = self._contents(identity["raw"])
        try:
            new = self._take(files)
            has_rows = bool(served is None or new.rows or {*files} != {*state.files})
            if not has_rows and not full and tables == state.tables:
                state.key, state.files, state.refused = self.key, dict(files), None
                state.write(self.folder / "state.json")
                return self._as_before()
            if served is not None and has_rows and (found := self._unusual(new)):
                return self._refused(found)
            data, own = self._grow(new)
        except (ConfigError, DataError) as error:
            if served is None:
                raise
            return self._refused((Problem("reading", error.message),))
        if served is not None and served["run"] != state.versions[-1]["run"]:
            self._say(
                "rollback", f"version {served['version']} is served again; a version after it is made and published"
            )
        candidate = self._candidate(own, data, full=full)
        gate = candidate.gate
        self._record(new.last, candidate)
        if gate is not None and not gate.passed and "gate" not in self.accept:
            return self._refused(gate=gate)  # its rows count as new in the next update
        _taken(state, new, self.key, files, data)
        state.tables = tables
        return self._publish(candidate, data)

    def _state(self) -> State:
        """Return the state, also of an update that was killed after its version was served."""
        path, pending = self.folder / "state.json", self.folder / "next.json"
        if pending.is_file():
            current, state = self.publication.current, State.read(pending)
            if current is not None and current.manifest["run"]["name"] == (made := state.versions[-1])["run"]:
                run = self.workspace.run(made["run"])
                made["version"] = self.publication.publish(run, self.workspace, emit=self.emit, newest=True).number
                self._keep(state)
            pending.unlink()
        state = State.read(path)
        if state.ids and not (data := self.workspace.data(state.ids)).exists:
            raise MissingArtifactError(
                f"{data.folder}, which has the ids so far, is gone",
                hint=f"remove {self.folder}: the next update trains anew on all rows, beside the served version",
            )
        return state

    def _say(self, step: str, text: str) -> None:
        self.steps[step] = text
        self.emit(Message(f"{step}: {text}", facts={"step": step}))

    def _but_facts(self, event: Event) -> None:
        """Pass on progress and warnings of the training; what else it says is the same each day."""
        if not (isinstance(event, Message) and event.level == "info"):
            self.emit(event)

    def _as_before(self) -> Update:
        if (refused := self.state.refused) is not None:
            self._say("take", "no new rows since the refused update")
            gate = Gate(**refused["gate"]) if refused["gate"] else None
            return self._result("refused", [Problem(**one) for one in refused["problems"]], gate)
        self._say("take", "no new rows")
        return self._result("nothing new")

    def _result(self, verdict: Verdict, found: Sequence[Problem] = (), gate: Gate | None = None) -> Update:
        version, run = (self.served["version"], self.served["run"]) if self.served else (None, None)
        return Update(verdict, dict(self.steps), tuple(found), gate, version, run)

    def _contents(self, raw: Mapping[str, Any]) -> tuple[dict[str, str], str]:
        """Return the checksums of the files of interactions by path, and the key of the other tables' content."""
        source = open_source(self.config.dataset.name, self.config.dataset.options)
        files = (raw.get("own") or by_content(source.identity(), self.workspace)).get("files", {})
        tables = {**files, **raw.get("facts", {}).get("copies", {})}
        tables.pop(INTERACTIONS, None)
        return files_in(files.get(INTERACTIONS, [])), key_of(tables)

    def _take(self, files: Mapping[str, str]) -> NewInteractions:
        state = self.state
        if gone := sorted({*state.files} - {*files}):
            raise DataError(f"{listed(gone)} was taken before and is gone", hint="bring it back")
        raw, known, only = self.workspace.raw(self.config.dataset.name).folder, None, None
        if state.through is not None:
            known = self._known()
            new = {path for path in files if path not in state.files}
            if new and not self.repeats and all(files.get(path) == checksum for path, checksum in state.files.items()):
                only = frozenset(new)
        found = new_interactions(self.config, raw, after=state.through, files=only, rows_before=state.rows, known=known)
        changed = sorted(path for path in state.files if files[path] != state.files[path])
        if changed and (not found.rows or changed[0] != max(state.files)):  # the last file may grow
            text = (
                f"{listed(changed)} changed: rows up to the last time so far are not checked; --from DATE checks them"
            )
            self.emit(Message(text, "warning"))
        self._say("take", f"{found.rows:,} new rows{f', {found.late:,} of them late' if found.late else ''}")
        return found

    def _known(self) -> dict[str, Any]:
        data = self.workspace.data(self.state.ids)
        columns = {role.value: data.schema.only(role) for role in (Role.USER, Role.ITEM)}
        names = {role: column.vocabulary for role, column in columns.items() if column.vocabulary is not None}
        return {role: pq.read_table(data.vocabulary(name))["value"].combine_chunks() for role, name in names.items()}

    def _unusual(self, new: NewInteractions) -> tuple[Problem, ...]:
        assert self.state.through is not None
        found = problems(new, kept(self.state.days), through=self.state.through, now=time.time())
        for one in (one for one in found if one.check in self.accept):
            self.emit(Message(f"accepted: {one.check}: {one.text}", "warning"))
        return tuple(one for one in found if one.check not in self.accept)

    def _grow(self, new: NewInteractions) -> tuple[PreparedData, RunConfig]:
        """Prepare all rows with the ids so far, and the latest rows held out."""
        share = _FIRST_SHARE if self.served is None else self.options.held_out * max(1, new.fresh) / new.total
        split = TemporalSplit(method="temporal", valid=0, test=share)
        ops = self.config.features.ops
        if self.state.ids:
            ops = tuple(self._with_ids(op) for op in ops)
        features = self.config.features.model_copy(update={"ops": ops})
        own = self.config.model_copy(update={"split": split, "features": features})
        made = etl(own, self.workspace, emit=self.emit)
        sizes = made.artifact.manifest["vocabularies"]
        self._say("grow", ", ".join(f"{size:,} values of {name}" for name, size in sizes.items()) or "no ids")
        return made.artifact, own

    def _with_ids(self, op: Any) -> Any:
        """Return a Categorify with the vocabularies so far as given ones."""
        if not isinstance(op, Categorify):
            return op
        data = self.workspace.data(self.state.ids)
        own = {name: str(data.vocabulary(name)) for name in op.vocabularies if name not in op.vocabs}
        return Categorify(**{**op.model_dump(), "vocabs": {**op.vocabs, **own}, "grow": True})

    def _candidate(self, own: RunConfig, data: PreparedData, *, full: bool) -> _Candidate:
        """Train today's model, or two if a full training is due, and compare with yesterday's."""
        state, served = self.state, self.served
        every = self.options.full_every
        is_due = full or served is None or (every is not None and state.since_full + 1 >= every)
        lost, error = -sum(gain for gain, _ in state.drift), math.hypot(*(error for _, error in state.drift))
        if lost > _SIGMAS * error:
            self._say("drift", f"versions since the last full training lost {lost:.4f} in sum: a full one is due")
            is_due = True
        configs = {} if served is None else self._continued(served, own, is_due=is_due)
        if is_due or not configs:
            configs["full"] = own
        runs = {
            how: train(one, self.workspace, resume=None, emit=self._but_facts).artifact for how, one in configs.items()
        }
        self._say("train", " and ".join(f"{how}: {run.folder.name}" for how, run in runs.items()))
        state.candidates += [{"run": run.folder.name, "data": data.key} for run in runs.values()]
        measured = {how: outcomes(run, data, self.emit) for how, run in runs.items()}
        if served is None:
            metric, rankings = measured["full"]
            return _Candidate(runs["full"], metric, figures_of(metric, rankings, data), None, is_full=True)
        yesterday = self.workspace.run(served["run"])
        as_yesterday = prepared_as(yesterday, own, self.workspace, self.emit)
        metric, before = outcomes(yesterday, as_yesterday, self.emit)
        compare = partial(judge, metric, before, tolerance=self.options.tolerance, config=own.evaluate)
        gates = {how: compare(found) for how, (_, found) in measured.items()}
        best = max(gates, key=lambda how: gates[how].gain)
        self.workspace.remove(as_yesterday)
        self._say("gate", _in_words(gates[best], best, served))
        figures = figures_of(metric, measured[best][1], data)
        return _Candidate(runs[best], metric, figures, gates[best], is_full="full" in runs)

    def _continued(self, served: Mapping[str, Any], own: RunConfig, *, is_due: bool) -> dict[str, RunConfig]:
        """Return the config that continues yesterday's run, or refits its model if that is fitted at once."""
        if served["settings"] != self.settings:
            return {}
        yesterday = self.workspace.run(served["run"])
        if own.model.name == AUTO:
            chosen = config_of(yesterday)
            own = own.model_copy(update={"model": chosen.model, "train": chosen.train})
        if kind_of(own.model.name).rows == "all":
            return {} if is_due else {"refitted": own}
        recent = Recent(after=served["through"], history=self.options.history)
        epochs = self.options.epochs or (4 if own.train.embedding_optimizer == "adagrad" else 1)
        options = {
            "continue_from": yesterday.folder.name, "epochs": epochs, "early_stopping": None, "recent": recent,
            "schedule": own.train.schedule.model_copy(update={"warmup_steps": 0}),  # the optimizers' state goes on
        }  # fmt: skip
        return {"continued": own.model_copy(update={"train": own.train.model_copy(update=options)})}

    def _record(self, last: float | None, candidate: _Candidate) -> None:
        """Record the figures of a model by the day of the last row, for `recsys watch`."""
        day = int(max(self.state.through or 0, last or 0) // DAY)
        about = {"day": day, "at": time.time(), "metric": candidate.metric, "settings": self.settings}
        self.state.history.append({**about, **candidate.figures})

    def _refused(self, found: Sequence[Problem] = (), gate: Gate | None = None) -> Update:
        for one in found:
            self._say(f"refused {one.check}", one.text)
        if not self.repeats:  # a stretch that is refused leaves no trace
            self.state.key = self.key
            self.state.refused = {"problems": [asdict(one) for one in found], "gate": asdict(gate) if gate else None}
            self.state.write(self.folder / "state.json")
        return self._result("refused", found, gate)

    def _publish(self, candidate: _Candidate, data: PreparedData) -> Update:
        state, served = self.state, self.served
        made: dict[str, Any] = {
            "version": 0, "run": candidate.run.folder.name, "data": data.key, "metric": candidate.metric,
            "value": candidate.figures["value"], "settings": self.settings, "through": last_time(data),
        }  # fmt: skip
        state.versions = [*(one for one in state.versions if one["run"] != made["run"]), made]
        state.since_full = 0 if candidate.is_full else state.since_full + 1
        if candidate.is_full or (gate := candidate.gate) is None:
            state.drift = []
        else:
            state.drift.append([gate.gain, (gate.high - gate.low) / (2 * _SIGMAS)])
        state.refused = None
        state.write(self.folder / "next.json")
        current = self.publication.current
        if served and current and current.manifest["run"]["name"] not in {served["run"], made["run"]}:
            self._say("rollback", f"version {current.number} was served meanwhile; a version after it is published")
        version = self.publication.publish(
            candidate.run, self.workspace, emit=self.emit, newest=True, keep=self.options.keep
        )
        made["version"] = version.number
        self.served = made
        self._keep(state)
        (self.folder / "next.json").unlink()
        self._say("publish", str(version.folder))
        return self._result("promoted", gate=candidate.gate)

    def _keep(self, state: State) -> None:
        """Write the state; remove runs and prepared data that no rollback reaches and nothing else needs."""
        removed = [*state.versions[: -self.options.keep], *state.candidates]
        state.versions, state.candidates = state.versions[-self.options.keep :], []
        state.write(self.folder / "state.json")
        states = [State.read(path) for path in self.folder.parent.glob("*/state.json")]
        served = {one["run"] for each in states for one in (*each.versions, *each.candidates)}
        for name in {one["run"] for one in removed} - served:
            if (run := self.workspace.run_named(name)).folder.is_dir():
                self.workspace.remove(run)
        needed = {each.ids for each in states}
        needed |= {str(run.manifest["data"].get("key")) for run in self.workspace.runs() if run.exists}
        for key in {one["data"] for one in removed} - needed:
            if (data := self.workspace.data(key)).folder.is_dir():
                self.workspace.remove(data)


def _in_words(gate: Gate, how: str, served: Mapping[str, Any]) -> str:
    stale = f"; yesterday's had {served['value']:.4f} on its day" if served["value"] is not None else ""
    return (
        f"{gate.metric} {gate.today:.4f} ({how}), yesterday's model {gate.yesterday:.4f}, difference "
        f"[{gate.low:+.4f}, {gate.high:+.4f}] by {gate.users:,} users{stale}: {gate.verdict}"
    )


def _taken(state: State, new: NewInteractions, key: str, files: Mapping[str, str], data: PreparedData) -> None:
    """Record rows as taken."""
    state.key, state.files, state.ids, state.rows = key, dict(files), data.key, new.total
    last = None if new.last is None else min(new.last, time.time())  # else a time in the future makes all others late
    state.through = max((one for one in (state.through, last) if one is not None), default=None)
    by_day = {day.day: day for day in state.days}
    for day in new.days:
        by_day[day.day] = added([by_day[day.day], day]) if day.day in by_day else day
    state.days = [by_day[day] for day in sorted(by_day)]
    if state.days and state.days[-1].day >= state.days[0].day + WATCHED:
        state.days = kept(state.days)
        state.history = [one for one in state.history if one["day"] >= state.days[0].day]


def last_time(data: PreparedData) -> float:
    """Return the time of the last row of train, in seconds since 1970."""
    times = read_times(data, "train")
    assert times is not None
    return float(times.max()) / data.schema.ticks


def _served(state: State, publication: Publication) -> dict[str, Any] | None:
    """Return the record of the served version: after a rollback not the last one; None before the first update."""
    current = publication.current
    if current is None or not state.versions:
        return None
    run, name = current.manifest["run"]["name"], publication.folder.name
    found = [one for one in state.versions if one["run"] == run]
    if not found:
        raise MissingArtifactError(
            f"{publication.folder} serves version {current.number} of {run}, which no update of the latest has made",
            hint=f"recsys publish {name} {state.versions[-1]['run']} serves that of the last update",
        )
    return {**found[0], "version": current.number}


def _settings(config: RunConfig) -> str:
    """Return the hash of the settings that a continued model needs unchanged."""
    features = config.features.model_dump(mode="json")
    ops = [{key: value for key, value in op.items() if key not in {"vocabs", "grow"}} for op in features["ops"]]
    return key_of("daily", json.dumps(config.model.model_dump(mode="json"), sort_keys=True), {**features, "ops": ops})
