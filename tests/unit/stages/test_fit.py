"""The run of a closed-form model is a run like any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation import Evaluation
from recsys_cli.features.schema import UNSEEN
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.profile import profile_on
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, Workspace
from tests.rated import FEATURES
from tests.sealing import reseal

MakePrepared = Callable[..., PreparedData]


def a_config(**train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": {"name": "popularity"},
        "train": {"device": "cpu", **train},
    })  # fmt: skip


def test_a_fitted_model_is_kept_and_measured(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared()

    made = train_on(data, a_config(), workspace)

    run = made.artifact
    counts = load_file(run.checkpoint("best"))["model.counts"]
    assert counts.tolist() == np.bincount(read_interactions(data, "train").item_idx, minlength=33).tolist()
    assert run.manifest["steps"] == 0
    assert run.manifest["parameters"] == 33
    (line,) = [json.loads(text) for text in run.metrics.read_text().splitlines()]
    assert line["valid"] == run.manifest["valid"]
    assert line["valid"]["loss"] is None
    assert 0.4 < line["valid"]["auc"] < 0.6
    assert train_on(data, a_config(), workspace).up_to_date


def test_it_can_be_chosen_by_a_ranking(make_prepared: MakePrepared, workspace: Workspace) -> None:
    run = train_on(make_prepared(), a_config(monitor="ndcg@10"), workspace).artifact

    assert run.manifest["valid"]["ndcg@10"] > 0


def test_a_ranking_that_the_data_has_not_is_left_out(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared()
    for path in (data.folder / "valid").glob("*.parquet"):
        rows = pq.read_table(path)
        nobody = pa.array(np.full(rows.num_rows, UNSEEN, np.int32))
        pq.write_table(rows.set_column(rows.column_names.index("userId"), "userId", nobody), path)
    reseal(data)
    told: list[str] = []

    run = train_on(data, a_config(monitor="ndcg@10"), workspace, emit=lambda event: told.append(str(event))).artifact

    assert run.manifest["valid"].keys() == {"loss", "auc"}
    assert any("ndcg@10 cannot be measured" in text and "not measured after fitting" in text for text in told)


def test_it_ranks_as_the_baseline_of_its_name_does(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared()
    shutil.copytree(data.folder, workspace.data(data.key).folder)
    run = train_on(data, a_config(), workspace).artifact

    evaluate(run, workspace, config=EvaluateConfig(k=(5,), bootstrap=10))

    ranking = Evaluation.read(run.evaluation).ranking
    assert ranking["model"] == ranking["popularity"]


def test_a_run_cannot_be_continued_all_at_once(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared()
    shutil.copytree(data.folder, workspace.data(data.key).folder)
    before = train_on(data, a_config(), workspace).artifact.folder.name

    with pytest.raises(ConfigError, match="popularity is fitted at once, in one process and without a warm start"):
        train_on(data, a_config(continue_from=before), workspace)


def test_there_are_no_steps_to_profile(make_prepared: MakePrepared, workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="popularity is a closed-form model without training steps"):
        profile_on(make_prepared(), a_config(), workspace)
