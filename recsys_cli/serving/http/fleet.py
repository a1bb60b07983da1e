"""The bundles of a worker: traffic shares, upserted items, and the swap of a bundle without a failed request."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cli.errors import RecsysError
from recsys_cli.features.schema import Role
from recsys_cli.serving.bundle import checked_manifest, load_bundle
from recsys_cli.serving.bundle_checks import naming
from recsys_cli.serving.feedback.arms import name_of
from recsys_cli.serving.feedback.state import Event, FeedbackState, Id
from recsys_cli.serving.http.batching import ModelThread, Work
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.http.settings import Settings
from recsys_cli.serving.ids import IdIndex
from recsys_cli.serving.item_upserts import ItemUpserts, ItemValues
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.workspace import Bundle, read_json


def exempt_from_collection() -> None:
    """Collect garbage once, and exempt what is left from later collections.

    Objects without cycles are still freed with their last reference. A full collection over the imported modules and a
    bundle took 0.13 s, and came every half second at 1,700 requests per second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


_LOG = logging.getLogger("recsys.serve")
_POLL = 0.5  # seconds between two looks at the links
_GRACE = 1.0
"""Seconds between the swap of a bundle and the end of the old thread."""


class Deployment:
    """A loaded bundle. After upserts, its recommender is replaced: once for all upserts since the last time.

    After the start, only its thread uses the recommender.

    Attributes:
        about: Its manifest.
        version: Its key.
        number: Its number in a folder of versions; None elsewhere.
        signature: Raw inputs and outputs of `score`.
        takes_histories: Whether the model scores a history of the request.
        user_input: Raw column of the users in rows to score.
        columns: Arrow types of the raw columns of an upserted item.
    """

    def __init__(self, name: str, folder: Path, model: Recommender, thread: ModelThread, metrics: Metrics) -> None:
        self.name, self.folder, self.thread, self._metrics = name, folder, thread, metrics
        self.about, self.version = model.served.about, str(model.served.about["key"])
        self.number = int(folder.name) if folder.parent.name == "versions" and folder.name.isdecimal() else None
        self.signature: Mapping[str, Any] = read_json(
            folder / "signature.json", hint="recsys export RUN --force", expected={"inputs": list}
        )
        self.takes_histories, self.user_input = model.served.takes_histories, model.rows.user_input
        self._upserts, self._applied, self._following = ItemUpserts(model), 0, asyncio.Lock()
        self.columns = {column: str(kind) for column, kind in self._upserts.columns.items()}

    @property
    def identity(self) -> dict[str, Any]:
        """Name, version and number, as they are in answers."""
        return {"bundle": self.name, "version": self.version, "number": self.number}

    @property
    def why_no_upserts(self) -> str | None:
        """The reason against upserts; None if they are possible."""
        return self._upserts.why_not

    async def check(self, events: Sequence[Event]) -> None:
        """Check values of upserts before they are written.

        Raises:
            DataError: A value does not fit.
        """
        items = [_values_of(event) for event in events]
        await self.thread.call(lambda _: self._upserts.check(items))

    def is_behind(self, state: FeedbackState) -> bool:
        """Whether the recommender lacks upserts of the feedback."""
        return self.why_no_upserts is None and state.num_upserts != self._applied

    async def follow(self, state: FeedbackState) -> None:
        """Bring the upserts of the feedback into the recommender."""
        if self.why_no_upserts is not None:
            return
        wanted = state.num_upserts  # not those that come meanwhile: they would hold up the request that waits
        async with self._following:
            while self._applied < wanted:
                number = state.num_upserts
                items = {item: _values_of(event) for item, event in state.upserts.items()}
                before = self._upserts.refused
                await self.thread.change(partial(self._upserts.recommender, items))
                refused = [text for item, text in self._upserts.refused.items() if item not in before]
                for text in refused:
                    _LOG.warning("bundle %s is without the features of %s", self.name, text)
                count = self._metrics.upserts.labels
                count(self.name, "refused").inc(len(refused))
                count(self.name, "applied").inc(number - self._applied - len(refused))
                self._applied = number


def _values_of(event: Event) -> ItemValues:
    return ItemValues(event.item, event.features or {}, event.title, event.at)


class Fleet:
    """All bundles of a worker."""

    def __init__(
        self, settings: Settings, metrics: Metrics, under_way: Callable[[], int], state: FeedbackState
    ) -> None:
        self._settings, self._metrics, self._under_way, self._state = settings, metrics, under_way, state
        self._deployments = {name: self._load(name, self._last(name)) for name in settings.bundles}
        for one in self.all:
            self._remember(one)
        self._seen = {one.name: str(one.folder) for one in self.all}
        self._reloading: asyncio.Task[Any] | None = None

    @property
    def all(self) -> tuple[Deployment, ...]:
        """All bundles."""
        return tuple(self._deployments.values())

    @property
    def default(self) -> Deployment:
        """The first bundle."""
        return next(iter(self._deployments.values()))

    def folding_in(self, history: Sequence[Id]) -> list[str]:
        """Return the names of the bundles that fold in a history with an item of their catalog."""
        able = (one for one in self.all if one.takes_histories)
        return [one.name for one in able if (one.thread.catalog.places_of(history) >= 0).any()]

    def named(self, name: str | None) -> Deployment:
        """Return a bundle; the first one for None.

        Raises:
            RequestError: No bundle has the name.
        """
        if name is None:
            return self.default
        if name not in self._deployments:
            raise RequestError(404, f"no bundle is named {name}", f"the bundles are {', '.join(self._deployments)}")
        return self._deployments[name]

    def of_user(self, user: object) -> Deployment:
        """Return the bundle of a user: shares by a stable hash of the id, equal in all workers and for any order."""
        own = self.canonical(Role.USER, user) if isinstance(user, int | float | str) else None
        return self._deployments[name_of(user if own is None else own, self._settings.shares)]

    def arm_of(self, user: Id) -> dict[str, Any]:
        """Return the bundle of a user and its share, as they are in the log with the user's feedback."""
        name = self.of_user(user).name
        return {"arm": name, "share": self._settings.shares[name]}

    def id_of(self, role: Role, raw: Id) -> Id:
        """Return an id of feedback in the type of the first bundle's column.

        Raises:
            RequestError: No row can have the id, so that training on it would fail.
        """
        if (canonical := self.canonical(role, raw)) is None:
            ids = self._ids(role)
            kind = "text without control characters" if pa.types.is_string(ids.values.type) else str(ids.values.type)
            raise RequestError(422, f"the {role.value} {raw!r} is no id of this data", f"ids are {kind}")
        return canonical

    def canonical(self, role: Role, raw: Id) -> Id | None:
        """Return an id in the type of the first bundle's column; None for an id that no row can have."""
        return self._ids(role).canonical(raw)

    def _ids(self, role: Role) -> IdIndex:
        catalog = self.default.thread.catalog
        return catalog.users if role is Role.USER else catalog.items

    def num_unknown(self, items: Sequence[Id]) -> int:
        """Return the number of raw item ids outside the catalogs of all bundles."""
        unknown = np.full(len(items), True)
        for one in self.all:
            unknown &= one.thread.catalog.places_of(items) < 0
        return int(unknown.sum())

    def is_behind(self, state: FeedbackState) -> bool:
        """Whether a recommender lacks upserts."""
        return any(one.is_behind(state) for one in self.all)

    async def follow(self, state: FeedbackState) -> None:
        """Bring the upserted items into all recommenders."""
        await asyncio.gather(*(one.follow(state) for one in self.all))

    async def reload(self) -> None:
        """Load the bundles whose folders have changed, and put them in place of the old ones.

        A folder that cannot be loaded leaves the old bundle in place. A reload under way is given up: it may never end.
        """
        if self._reloading is not None and self._reloading.cancel():
            _LOG.warning("the loads under way are given up for newer ones")
        self._reloading, self._seen = asyncio.current_task(), self._targets()
        for name, folder in self._settings.bundles.items():
            try:
                if (fresh := await _apart(partial(self._changed, name, folder))) is None:
                    continue
                await fresh.follow(self._state)
            except Exception as error:
                problem = f"{error}; {error.hint}" if isinstance(error, RecsysError) else repr(error)
                _LOG.error("bundle %s was not reloaded, the old one stays in place: %s", name, problem)
                self._metrics.reloads.labels(name, "failed").inc()
                continue
            old, self._deployments[name] = self._deployments[name], fresh
            self._remember(fresh)
            self._metrics.reloads.labels(name, "loaded").inc()
            _LOG.warning("bundle %s is now %s, version %s", name, fresh.version, fresh.number)
            await asyncio.shield(old.thread.close(grace=_GRACE))
            del old, fresh
            gc.collect()  # 0.1 ms: the objects of the start are exempt

    async def watch(self, reload: Callable[[], None]) -> None:
        """Ask for a reload when a folder, such as a symbolic link, leads elsewhere."""
        while True:
            if self._targets() != self._seen:
                reload()
            await asyncio.sleep(_POLL)

    def _targets(self) -> dict[str, str]:
        return {name: os.path.realpath(folder) for name, folder in self._settings.bundles.items()}

    async def close(self) -> None:
        """End the threads after what waits."""
        await asyncio.gather(*(one.thread.close() for one in self.all))

    def _last(self, name: str) -> Path:
        """Return the folder of a bundle that a worker has loaded last, or the given one before the first load."""
        last = self._settings.loaded and self._settings.loaded / f"bundle-{name}"
        return last if last and last.exists() else self._settings.bundles[name]

    def _remember(self, one: Deployment) -> None:
        """Link to a loaded folder: a restarted worker begins with it, whatever the given folder has become."""
        if self._settings.loaded is not None:
            fresh = self._settings.loaded / f"fresh-{os.getpid()}"
            fresh.symlink_to(one.folder)
            fresh.replace(self._settings.loaded / f"bundle-{one.name}")

    def _changed(self, name: str, folder: Path) -> Deployment | None:
        """Load a bundle with another manifest than the present one; return None for one without change or damage."""
        if checked_manifest(Bundle(folder), verify=False) == self._deployments[name].about:
            return None
        _LOG.warning("bundle %s is loaded from %s", name, folder.resolve())
        return self._load(name, folder)

    def _load(self, name: str, folder: Path) -> Deployment:
        """Load a bundle, and warm it up."""
        folder = folder.resolve()  # a link may change meanwhile
        model = load_bundle(folder)
        with naming(folder, Bundle(folder)):
            work = Work(warm(model), limit=self._settings.limits.seconds)
        thread = ModelThread(name, model, self._settings.batching, work, self._metrics, self._under_way)
        return Deployment(name, folder, model, thread, self._metrics)


async def _apart(load: Callable[[], Deployment | None]) -> Deployment | None:
    """Return a loaded bundle; neither other loads nor the end of the process wait for its thread."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[Deployment | None] = loop.create_future()

    def finish(result: Deployment | Exception | None) -> None:
        if isinstance(result, Exception):
            if not loaded.done():
                loaded.set_exception(result)
        elif not loaded.done():
            loaded.set_result(result)
        elif result is not None:  # given up meanwhile
            result.thread.stop()

    def run() -> None:
        result: Deployment | Exception | None
        try:
            result = load()
        except Exception as error:
            result = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, result)

    threading.Thread(target=run, name="load", daemon=True).start()
    return await loaded


def warm(model: Recommender) -> float:
    """Answer first queries, and return the seconds of one: lazy parts are built here."""
    users = model.served.users.values
    first = users[0].as_py() if len(users) else None
    model.recommend([Query(), Query(user=first, explain=True)])
    model.catalog.search("a", 1)
    started = time.perf_counter()
    model.recommend([Query(user=first)])
    return time.perf_counter() - started
