"""Odd frames, names and arguments: a result, or an error with the argument or column, never one of a library."""

from __future__ import annotations

import datetime as dt
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import recsys_cli as recsys
from recsys_cli.api.boundary import with_calls
from tests.api.test_python_docs import ratings

COLUMNS = {"user": "userId", "item": "movieId", "rating": "rating", "timestamp": "timestamp"}
ROWS = len(ratings())


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> recsys.Workspace:
    return recsys.Workspace(tmp_path_factory.mktemp("odd"))


@pytest.fixture(scope="module")
def config(workspace: recsys.Workspace) -> recsys.RunConfig:
    return recsys.config_from_frame(ratings(), workspace, **COLUMNS, model="popularity")


@pytest.fixture(scope="module")
def run(workspace: recsys.Workspace, config: recsys.RunConfig) -> recsys.TrainedRun:
    recsys.etl(config, workspace, progress=False)
    return recsys.train(config, workspace, progress=False)


def with_column(name: str, values: pa.Array) -> pa.Table:
    return ratings().to_arrow().append_column(name, values)


def trained(table: Any, workspace: recsys.Workspace, **columns: Any) -> recsys.TrainedRun:
    config = recsys.config_from_frame(table, workspace, **{**COLUMNS, "model": "popularity", **columns})
    recsys.etl(config, workspace, progress=False)
    return recsys.train(config, workspace, progress=False)


@pytest.mark.parametrize(
    ("values", "plain"),
    [
        (pa.array(np.arange(ROWS, dtype=np.float16)), pa.array(np.arange(ROWS, dtype=np.float16).astype(np.float32))),
        (pa.RunEndEncodedArray.from_arrays([ROWS], [7]), pa.array([7] * ROWS)),
        (pa.RunEndEncodedArray.from_arrays([ROWS], pa.array(["a"])), pa.array(["a"] * ROWS)),
    ],
)
def test_types_without_a_parquet_type_are_converted_without_loss(
    workspace: recsys.Workspace, values: pa.Array, plain: pa.Array
) -> None:
    found, wanted = (recsys.dataset_from_frames(workspace, with_column("x", each)) for each in (values, plain))
    assert found == wanted


def test_float16_is_a_label_and_a_column_of_score(workspace: recsys.Workspace) -> None:
    frame = ratings().with_columns(pl.col("rating").cast(pl.Float16))
    run = trained(frame, workspace)
    assert len(run.score(frame.head(5))) == 5


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval()), "month_day_nano_interval"),
        (
            pa.UnionArray.from_sparse(pa.array([0] * ROWS, pa.int8()), [pa.array(range(ROWS))]),
            "sparse_union<0: int64=0>",
        ),
    ],
)
def test_types_without_a_plain_type_are_named(workspace: recsys.Workspace, values: pa.Array, kind: str) -> None:
    with pytest.raises(recsys.RecsysError) as caught:
        recsys.dataset_from_frames(workspace, with_column("x", values))
    assert f"column 5, 'x', has type {kind}" in caught.value.message
    assert "drop it" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", ["Object", "Int128"])
def test_polars_types_without_an_arrow_type_are_named(workspace: recsys.Workspace, kind: str) -> None:
    values = pl.Series([object()] * ROWS, dtype=pl.Object) if kind == "Object" else pl.col("userId").cast(pl.Int128)
    with pytest.raises(recsys.RecsysError, match=f"column 'x' has the Polars type {kind}"):
        recsys.dataset_from_frames(workspace, ratings().with_columns(x=values))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("\0", "user has a character that no text may have"),
        ("\x01row", r"column 1 of interactions: the name '\\x01row' begins with the reserved character"),
        ("", "column 1 of interactions: the name '' is empty"),
        ("x" * 300, r"column 1 of interactions: the name 'x{40}' is too long"),
        ("\u732b" * 60, "is too long"),
    ],
)
def test_odd_names_are_refused_with_their_position(workspace: recsys.Workspace, name: str, message: str) -> None:
    with pytest.raises(recsys.RecsysError, match=message):
        trained(ratings().rename({"userId": name}), workspace, user=name)


@pytest.mark.parametrize("name", ["..", ".", "user.id", "movieId.x", "a/b", "a%b", " "])
def test_names_with_special_characters_are_columns(workspace: recsys.Workspace, name: str) -> None:
    assert len(trained(ratings().rename({"userId": name}), workspace, user=name).recommend(k=1)) == 60


@pytest.mark.parametrize("name", ["", "\0", "\x01row", "x" * 300])
def test_odd_names_of_unused_columns_are_accepted(workspace: recsys.Workspace, name: str) -> None:
    assert len(trained(ratings().with_columns(pl.lit(1).alias(name)), workspace).recommend(k=1)) == 60


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda place, config, run: recsys.train(5, place), "config has to be RunConfig, not int: 5"),
        (lambda place, config, run: recsys.etl(config, "place"), "workspace has to be Workspace, not str"),
        (lambda place, config, run: recsys.train(config, place, progress=3), "progress has to be"),
        (lambda place, config, run: recsys.download(5, place), "dataset has to be RunConfig or str"),
        (lambda place, config, run: recsys.evaluate("run"), "run has to be TrainedRun"),
        (lambda place, config, run: recsys.evaluate(run, config=config), "config has to be EvaluateConfig or None"),
        (lambda place, config, run: recsys.compare(run), "runs has to be Sequence"),
        (lambda place, config, run: recsys.compare(["a", "b"]), r"runs\[0\] has to be TrainedRun"),
        (lambda place, config, run: recsys.Workspace(3), "root has to be Path or str"),
        (lambda place, config, run: place.run(3), "name has to be str"),
        (lambda place, config, run: recsys.load_config(3), "source has to be str or Path or Mapping"),
        (lambda place, config, run: recsys.load_config({}, "train.epochs=3"), "overrides is a single text; pass a list"),
        (lambda place, config, run: recsys.config_from_frame(ratings(), "w", **COLUMNS), "workspace has to be"),
        (lambda place, config, run: recsys.config_from_frame(ratings(), place, user=3, item="i"), "user has to be str"),
        (lambda place, config, run: run.recommend(k="a"), "k has to be int, not str"),
        (lambda place, config, run: run.recommend(k=True), "k has to be int, not bool"),
        (lambda place, config, run: run.recommend(5), "users has to be Iterable or None"),
        (lambda place, config, run: run.recommend([[1]]), "users has to be a flat list"),
        (lambda place, config, run: run.recommend([10**30]), "a user id does not fit into 64 bits"),
        (lambda place, config, run: recsys.etl(config, place, progress=False).loader(batch_size=0), "batch_size is 0"),
    ],
)  # fmt: skip
def test_arguments_of_a_wrong_type_are_named(
    workspace: recsys.Workspace, config: recsys.RunConfig, run: recsys.TrainedRun, call: Any, message: str
) -> None:
    with pytest.raises(recsys.RecsysError, match=message):
        call(workspace, config, run)


def test_a_table_is_saved_below_the_workspace(workspace: recsys.Workspace) -> None:
    saved = recsys.dataset_from_frames(workspace, ratings(), **{"../a": ratings()})
    assert Path(saved["tables"]["../a"]).parent == workspace.root.resolve() / "frames"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"epochs": 10**30}, "train.epochs: does not fit into 64 bits"),
        ({"epochs": 2**40}, "train.epochs: has to be at most 1,000,000,000, not 1099511627776"),
        ({"schedule": {"warmup_steps": 2**60}}, "warmup_steps: has to be at most 1,000,000,000"),
        ({"seed": 2**63}, "train.seed: has to be at most 9,223,372,036,854,775,807"),
        ({"continue_from": "a\0b"}, "train.continue_from: has NUL"),
    ],
)
def test_values_of_a_config_have_bounds(workspace: recsys.Workspace, section: dict[str, Any], message: str) -> None:
    with pytest.raises(recsys.RecsysError, match=message):
        recsys.config_from_frame(ratings(), workspace, **COLUMNS, train=section)


def test_the_largest_seed_works(workspace: recsys.Workspace) -> None:
    seed = 2**63 - 1
    sections = {"train": {"epochs": 1, "seed": seed, "batch_size": 512, "device": "cpu"}, "evaluate": {"seed": seed}}
    run = trained(ratings(), workspace, model="mlp", etl={"seed": seed}, timestamp=None, **sections)
    assert recsys.evaluate(run, progress=False).metrics


def test_an_unknown_metric_is_an_error_with_the_known_ones(run: recsys.TrainedRun) -> None:
    evaluation = recsys.evaluate(run, progress=False)
    with pytest.raises(KeyError) as caught:
        _ = evaluation.metrics["ndcg@5"]
    assert isinstance(caught.value, recsys.RecsysError)
    assert "no 'ndcg@5'; there are hr@10, ndcg@10" in str(caught.value)
    assert "evaluate.k" in (caught.value.hint or "")
    assert evaluation.metrics.get("ndcg@5") is None
    with pytest.raises(recsys.RecsysError, match="no 'eas'; there are model"):
        _ = evaluation.systems["eas"]


def test_hints_name_the_python_call(tmp_path: Path, config: recsys.RunConfig) -> None:
    with pytest.raises(recsys.RecsysError) as caught:
        list(recsys.Events(recsys.train, config, recsys.Workspace(tmp_path)))
    assert caught.value.hint == "recsys etl CONFIG (in Python: recsys.etl(config, workspace))"
    assert traceback.format_exception(caught.value)[-1] == f"hint: {caught.value.hint}\n"


@pytest.mark.parametrize(
    ("hint", "calls"),
    [
        ("set the key, then run `recsys etl`; or choose another model", "recsys.etl(config, workspace)"),
        ("recsys evaluate run-1 --force", "recsys.evaluate(run, force=True)"),
        (
            "recsys train c.yaml --resume continues it; recsys train c.yaml --force starts over",
            "recsys.train(config, workspace, resume=True), recsys.train(config, workspace, force=True)",
        ),
    ],
)
def test_calls_have_the_flags_of_the_commands(hint: str, calls: str) -> None:
    assert with_calls(hint) == f"{hint} (in Python: {calls})"
    assert with_calls("recsys status") == "recsys status"


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_ids_of_dates_stay_dates(workspace: recsys.Workspace, kind: pa.DataType) -> None:
    day = pl.date(2020, 1, 1) + pl.duration(days=pl.col("userId"))
    frame = ratings().with_columns(userId=day, movieId=pl.date(1990, 1, 1) + pl.duration(days=pl.col("movieId")))
    table = frame.to_arrow()
    table = table.set_column(0, "userId", table["userId"].cast(kind))
    run = trained(table, workspace)
    everyone = run.recommend(k=2)
    assert (everyone.table["user"].type, everyone.table["item"].type) == (pa.date32(), pa.date32())
    assert set(everyone.to_frame()["user"]) == set(frame["userId"])
    one = run.recommend([dt.date(2020, 1, 8)], k=2).to_frame()
    assert one["user"].to_list() == [dt.date(2020, 1, 8)] * 2
