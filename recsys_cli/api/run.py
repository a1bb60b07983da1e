"""A trained run that recommends and scores."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli import workspace
from recsys_cli.api.boundary import Count, public
from recsys_cli.api.recommendations import Recommendations, distinct
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import STORED_AS
from recsys_cli.features.schema import Role

if TYPE_CHECKING:
    from recsys_cli.evaluation.names import IdNames
    from recsys_cli.models.model import Model
    from recsys_cli.serving.recommender import Recommender

_SHOWN = 5
_DATES = {str(kind).encode(): kind for kind in (pa.date32(), pa.date64())}


class TrainedRun(workspace.TrainedRun):
    """A trained model with its config, checkpoints and evaluations. The model is loaded at first use, on the CPU."""

    @public
    def model(self) -> Model:
        """Return the model with its best weights, in evaluation mode, with the user histories of `evaluate`.

        Raises:
            MissingArtifactError: The run is not finished, or its prepared data is missing.
        """
        return self._loaded.model

    @public
    def recommend(self, users: Iterable[Any] | None = None, k: Count = 10) -> Recommendations:
        """Return the top-k items of users, with the scores of `evaluate` and without seen items.

        User histories are those of the evaluation: train, plus valid if there is a test split.

        Args:
            users: Raw user ids, without duplicates in the result; None for all users of train.
            k: Cut-off.

        Raises:
            ConfigError: Train has no such user, `k` is below 1, `users` is one text, or the model cannot score a catalog.
            MissingArtifactError: The run is not finished, or its prepared data is missing.
        """
        from recsys_cli.serving.every_user import recommend_to_all

        run = self._loaded
        if (reason := run.recommender.scorer.why_not) is not None:
            raise ConfigError(f"{self.folder.name} cannot recommend: {reason}")
        raw = run.names.values(Role.USER) if users is None else _ids(users)
        user_idx = run.names.encode(Role.USER, raw)
        if (user_idx < 0).any():
            raise _unknown(raw.filter(pa.array(user_idx < 0)), len(raw))
        user_idx = user_idx[np.sort(np.unique(user_idx, return_index=True)[1])]  # each once, in any spellings
        blocks = list(recommend_to_all(run.recommender, user_idx, k=k))
        user, item, rank, score = (
            np.concatenate([np.empty(0, kind), *(getattr(block, name) for block in blocks)])
            for name, kind in (("users", np.int64), ("items", np.int64), ("ranks", np.int64), ("scores", np.float32))
        )
        ids = {"user": run.raw_ids(Role.USER, user), "item": run.raw_ids(Role.ITEM, item)}
        return Recommendations(pa.table({**ids, "rank": rank, "score": score}))

    @public
    def score(self, rows: Any) -> npt.NDArray[np.float32]:
        """Score raw rows with the fitted feature plan and the model, in their order.

        Args:
            rows: A DataFrame or Arrow table with the raw columns of the features; label, weight and timestamp may be
                missing.

        Returns:
            Scores, shape (N,): logits for a binary label, values for a numeric label.

        Raises:
            DataError: A column is missing, or a value does not cast to its type.
        """
        from recsys_cli.etl.reading.rows import write_frame
        from recsys_cli.evaluation.pointwise import score_rows
        from recsys_cli.stages.apply import apply

        parent = workspace.Workspace(self.folder.parent.parent)
        with parent.scratch() as scratch:
            raw = scratch / "rows.parquet"
            write_frame(rows, raw)
            applied = apply(str(self.folder), [str(raw)], parent, output=scratch / "rows.prepared.parquet")
            run = self._loaded
            return score_rows(run.model, applied.output, applied.schema, batch_size=run.config.evaluate.batch_size)

    @cached_property
    def _loaded(self) -> _Loaded:
        return _Loaded(self)


class _Loaded:
    """A run with its model and user histories in memory."""

    def __init__(self, run: TrainedRun) -> None:
        import pyarrow.parquet as pq

        from recsys_cli.evaluation.loaded_run import config_of
        from recsys_cli.evaluation.names import IdNames

        self._run = run
        self._workspace = workspace.Workspace(run.folder.parent.parent)
        self.config = config_of(run)
        self._data = self._workspace.data_of(run)
        self.names: IdNames = IdNames(self._data)
        raw, features = pq.read_schema(self._data.raw_columns), self.config.features
        sources = {Role.USER: features.user, Role.ITEM: features.item}
        self._stored_as = {role: _date_type(raw, features.raw_source(name)) for role, name in sources.items()}

    @cached_property
    def model(self) -> Model:
        """The model with the user histories of all users."""
        from recsys_cli.evaluation.loaded_run import model_in_context

        return model_in_context(self._run, self.config, self._data)

    @cached_property
    def recommender(self) -> Recommender:
        """The model for recommendations; of one with fold-in a second copy, whose context changes with every call."""
        from recsys_cli.serving.recommender import Recommender

        return Recommender.of_run(self._run, self._workspace)

    def raw_ids(self, role: Role, encoded: npt.NDArray[np.int64]) -> pa.Array:
        """Return the raw ids of encoded ids; dates, prepared as timestamps, are dates again."""
        ids, kind = self.names.decode(role, encoded), self._stored_as[role]
        return ids if kind is None else ids.cast(kind)


def _date_type(raw: pa.Schema, column: str | None) -> pa.DataType | None:
    """Return the stored type of a raw column of dates; None for other columns."""
    metadata = raw.field(column).metadata if column in raw.names else None
    return _DATES.get((metadata or {}).get(STORED_AS, b""))


def _ids(users: Iterable[Any]) -> pa.Array:
    values = distinct(users)
    try:
        return pa.array(values)
    except OverflowError as error:
        raise ConfigError(f"a user id does not fit into 64 bits: {error}") from error
    except pa.ArrowException as error:
        raise ConfigError(f"user ids mix types: {error}", hint="give ids of one type") from error


def _unknown(users: pa.Array, total: int) -> ConfigError:
    shown = ", ".join(str(user) for user in users[:_SHOWN]) + (" …" if len(users) > _SHOWN else "")
    return ConfigError(
        f"train has no interactions of {len(users):,} of {total:,} users: {shown}",
        hint="omit these users, or train on data with their interactions; a bundle gives them the most popular items",
    )
