"""Warm starts, and runs with collaborative features."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError
from recsys_cli.events import Event, Message, Progress
from recsys_cli.features.schema import UNSEEN
from recsys_cli.models import build
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.weights import load_weights, read_weights
from recsys_cli.stages.run_selection import run_key
from recsys_cli.stages.train import train_on
from recsys_cli.stages.warm_start import carry_over, start_of
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests import checkerboard
from tests.checkerboard import put_prepared, same_weights, set_column
from tests.ranks import on_ranks
from tests.sealing import reseal

MODEL = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.0, "embedding_dropout": 0.0}


def a_config(model: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    return checkerboard.a_config({**MODEL, **(model or {})}, **{"epochs": 3, **train})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A workspace with data of 40 users and 30 movies and a run of them, and with data of 60 users and 50 movies.

    There the user of value v has the id 62 - v instead of v + 3, and movies 0 and 1 are gone.
    """
    workspace = Workspace(tmp_path_factory.mktemp("warm") / "workspace")
    old, new = put_prepared(workspace), put_prepared(workspace, users=60, items=50)
    users = pa.table({"value": np.arange(60, dtype=np.int32)[::-1], "count": np.ones(60, np.int64)})
    movies = pa.table({"value": np.arange(2, 52, dtype=np.int64), "count": np.ones(50, np.int64)})
    pq.write_table(users, new.vocabulary("userId"))
    pq.write_table(movies, new.vocabulary("movieId"))
    reseal(new)
    train_on(old, a_config(), workspace)
    return workspace, old, new


@pytest.fixture
def workspace(trained, tmp_path):
    """A copy of the workspace of `trained`."""
    shutil.copytree(trained[0].root, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def run(workspace):
    (run,) = workspace.runs()
    return run


@pytest.fixture
def data(trained, workspace):
    return workspace.data(trained[1].key)


@pytest.fixture
def grown(trained, workspace):
    return workspace.data(trained[2].key)


def a_batch(user_idx: list[int], item_idx: list[int], genres: list[list[int]]) -> Batch:
    offsets = torch.tensor([0, *np.cumsum([len(one) for one in genres])])
    lists = Ragged(torch.tensor([one for row in genres for one in row]), offsets)
    return Batch({"userId": torch.tensor(user_idx), "movieId": torch.tensor(item_idx), "genres": lists}, {})


def continued(run: TrainedRun, data: PreparedData, workspace: Workspace, **model: Any) -> Any:
    config = a_config(model, continue_from=run.folder.name)
    start = start_of(config.train.continue_from, workspace)
    assert start is not None
    torch.manual_seed(7)
    made = build("mlp", config.model.options, data.schema, sparse=True)
    carry_over(made, config, start, data, emit=lambda event: None)
    return made


def test_old_pairs_score_the_same_on_new_ids(data, grown, workspace, run):
    before = build("mlp", MODEL_OPTIONS, data.schema)
    load_weights(before, run.checkpoint("best"))
    after = continued(run, grown, workspace)
    users, movies = np.arange(40), np.arange(40) % 28 + 2
    genres = [[3, 4] if user % 2 else [5] for user in users]
    old = a_batch((users + 3).tolist(), (movies + 3).tolist(), genres)
    new = a_batch((62 - users).tolist(), (movies + 1).tolist(), genres)
    assert torch.equal(after.eval().score(new), before.eval().score(old))
    for reserved in (0, 1, 2):
        assert torch.equal(
            after.score(a_batch([reserved], [reserved], [[]])), before.score(a_batch([reserved], [reserved], [[]]))
        )


def test_damaged_weights_are_not_continued(data, workspace, run):
    content = bytearray(run.checkpoint("best").read_bytes())
    content[-2] ^= 1
    run.checkpoint("best").write_bytes(content)
    with pytest.raises(DataError, match=r"best\.safetensors is damaged"):
        continued(run, data, workspace)


MODEL_OPTIONS = {key: value for key, value in MODEL.items() if key != "name"}


def test_new_values_start_near_the_row_of_unknown_ids(grown, workspace, run):
    best = Checkpoint.load(run.checkpoint("best"))
    users = best.tensors["model.embeddings.tables.of_userId.weight"]
    users[UNSEEN] = 5.0
    best.save(run.checkpoint("best"))
    reseal(run)
    after = continued(run, grown, workspace).embeddings.table("userId").detach()
    new = after[3:23] - 5.0  # values 59 to 40
    assert new.mean().abs() < 5 * INITIAL_STD / new.numel() ** 0.5
    assert new.std() == pytest.approx(INITIAL_STD, rel=0.3)
    assert torch.equal(after[23:], users[3:].flip(0))
    assert torch.equal(after[:3], users[:3])


@pytest.mark.parametrize(
    "sparse", [{}, *({"sparse_embeddings": True, "embedding_optimizer": name} for name in ("adam", "adagrad"))]
)
def test_the_state_of_optimizers_goes_on_by_value(data, grown, workspace, sparse):
    """40 users of 60 were there, in reverse order; steps of Adam are counted over both runs."""
    first = train_on(data, a_config(**sparse), workspace).artifact
    config = a_config(continue_from=first.folder.name, epochs=1, **sparse)
    start = start_of(first.folder.name, workspace)
    model = build("mlp", MODEL_OPTIONS, grown.schema, sparse=bool(sparse))
    state = carry_over(model, config, start, grown, emit=lambda event: None)
    before = Checkpoint.load(first.checkpoint("last")).tensors
    assert {*state} == {key for key in before if key.startswith("optimizer.")}
    fields = {key.rpartition(":")[2] for key in state if "of_userId" in key} - {"step"}
    assert fields == ({"sum"} if "adagrad" in sparse.values() else {"exp_avg", "exp_avg_sq"})
    for field in fields:
        name = f"optimizer.embeddings.tables.of_userId.weight:{field}"
        assert before[name][3:].any()
        assert torch.equal(state[name][23:], before[name][3:].flip(0))
        assert not state[name][3:23].any()
    made = train_on(grown, config, workspace).artifact
    after = Checkpoint.load(made.checkpoint("last")).tensors
    steps = [key for key in before if key.endswith(":step")]
    assert steps
    assert all(after[key] == before[key] + made.manifest["steps"] for key in steps)


def test_optimizers_start_anew_after_a_change_and_without_their_state(data, workspace, run):
    def carried(**train: Any) -> dict[str, Any]:
        config = a_config(continue_from=run.folder.name, **train)
        model = build("mlp", MODEL_OPTIONS, data.schema, sparse=config.train.sparse_embeddings)
        return carry_over(model, config, start_of(run.folder.name, workspace), data, emit=lambda event: None)

    assert carried()
    assert not carried(sparse_embeddings=True, embedding_optimizer="adagrad")
    run.checkpoint("last").unlink()
    assert not carried()


def test_training_goes_on_from_there_and_improves(grown, workspace, run):
    config = a_config(continue_from=run.folder.name, epochs=4)
    events: list[Event] = []
    made = train_on(grown, config, workspace, emit=events.append)
    history = made.artifact.manifest["history"]
    assert made.artifact.manifest["continues"] == run.folder.name
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    said = [event.text for event in events if isinstance(event, Message)]
    assert any("userId keeps 43 rows and gets 20 new ones" in text and text.endswith("state goes on") for text in said)
    assert train_on(grown, config, workspace).up_to_date
    assert run_key(config, grown) != run_key(a_config(epochs=4), grown)


def test_a_continued_run_resumes(data, workspace, run):
    config = a_config(continue_from=run.folder.name, epochs=1)
    made = train_on(data, config, workspace).artifact
    before = made.checkpoint("last").read_bytes()
    (made.folder / "manifest.json").unlink()
    assert train_on(data, config, workspace, resume=True).artifact == made
    assert made.manifest["continues"] == run.folder.name
    assert made.checkpoint("last").read_bytes() == before


def test_without_changes_it_begins_where_the_first_ended(data, workspace, run):
    after = continued(run, data, workspace)
    weights = read_weights(run.checkpoint("best"))
    assert all(torch.equal(tensor, weights[key]) for key, tensor in after.state_dict().items())


def test_what_does_not_fit_is_named(grown, workspace, run):
    with pytest.raises(ConfigError, match=r"the embedding of movieId is 16 wide and was 8"):
        continued(run, grown, workspace, embedding_dim={"movieId": 16, "userId": 8, "genres": 8})
    with pytest.raises(ConfigError, match=r"first\.linear\.weight is 5 × 24 and was 16 × 24"):
        continued(run, grown, workspace, hidden_dims=[5])
    with pytest.raises(ConfigError, match=r"rest\.5\.weight is 1 × 16 and was missing"):
        continued(run, grown, workspace, hidden_dims=[16, 16])


def test_other_columns_are_named(grown, workspace, run):
    schema = json.loads((grown.folder / "schema.json").read_text())
    for column in schema["columns"]:
        if column["name"] == "genres":
            column["name"] = "tags"
    (grown.folder / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(ConfigError, match=r"the column tags is new\n  the column genres is missing now"):
        continued(run, grown, workspace)


def test_a_run_has_to_be_there_whole_and_named_in_full(data, workspace, tmp_path, run):
    name = run.folder.name
    with pytest.raises(MissingArtifactError, match=rf"no run 'mpl'.*there are: {name}"):
        start_of("mpl", workspace)
    with pytest.raises(ConfigError, match="must be the full name"):
        start_of(name[-8:], workspace)
    data.folder.rename(tmp_path / "gone")
    with pytest.raises(MissingArtifactError, match=r"the training data of .*, .* does not exist"):
        start_of(name, workspace)
    (run.folder / "manifest.json").unlink()
    with pytest.raises(MissingArtifactError, match="is not finished"):
        start_of(name, workspace)


# -- collaborative features -------------------------------------------------------------------------------------------


def with_collaborative(**train: Any) -> RunConfig:
    options = {"collaborative": {"embedding_dim": 4, "positions": 4, "factor_rounds": 3}}
    return a_config(options, **{"learning_rate": 0.01, "trackers": [], **train})


def fitted(run: TrainedRun) -> dict[str, bytes]:
    """Return the collaborative features of a run."""
    found = load_file(run.checkpoint("last"))
    values = {name: array.tobytes() for name, array in found.items() if "collaborative." in name}
    assert values
    return values


def train_here(data: PreparedData, config: RunConfig, root: Path, stop: int) -> None:
    """Train in this process, resumed if there is a run, and interrupted in the step `stop`."""
    steps = 0

    def emit(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, Progress) and event.task.startswith("train")
        if stop and steps == stop:
            raise KeyboardInterrupt

    train_on(data, config, Workspace(root), resume=any(Workspace(root).runs()), emit=emit)


def test_an_interrupted_run_resumes_to_the_same_bits(make_prepared, tmp_path):
    """Folds are fitted anew on resume; 4 steps per epoch and a checkpoint in each."""
    data, config = make_prepared(rows=1_000), with_collaborative(sparse_embeddings=True, checkpoint_steps=1)
    whole = train_on(data, config, Workspace(tmp_path / "whole")).artifact
    with pytest.raises(KeyboardInterrupt):
        train_here(data, config, tmp_path / "left", stop=6)
    train_here(data, config, tmp_path / "left", stop=0)
    (left,) = Workspace(tmp_path / "left").runs()
    assert same_weights(left, whole)
    assert same_weights(left, whole, "best")


def test_two_processes_have_the_features_of_one(make_prepared, tmp_path):
    data, config = make_prepared(rows=1_009), with_collaborative(epochs=2, sparse_embeddings=True)
    runs = []
    for ranks in (1, 2):
        assert on_ranks(ranks, train_here, data, config, tmp_path / str(ranks), 0) == [None] * ranks
        runs += Workspace(tmp_path / str(ranks)).runs()
    assert fitted(runs[0]) == fitted(runs[1])
    aucs = [[record["valid"]["auc"] for record in run.manifest["history"]] for run in runs]
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-3)


def test_a_continued_run_fits_the_features_of_its_own_train_rows(data, workspace):
    more = put_prepared(workspace, users=60, items=40)
    run = train_on(data, with_collaborative(), workspace).artifact
    continued = train_on(more, with_collaborative(epochs=1, continue_from=run.folder.name), workspace).artifact
    new = train_on(more, with_collaborative(epochs=1), workspace).artifact
    assert fitted(continued) == fitted(new)
    losses = [one.manifest["history"][0]["train_loss"] for one in (continued, new)]
    assert losses[0] < losses[1]


def test_random_labels_give_nothing(make_prepared, tmp_path):
    """A label among its own row's features would be learned in training and mislead on other rows of its pair."""
    data, rng = make_prepared(users=60, items=60, rows=8_000), np.random.default_rng(9)
    for split in ("train", "valid"):
        set_column(data, split, "label", lambda _, rows: rng.integers(0, 2, rows))
    run = train_on(data, with_collaborative(epochs=2, early_stopping=None), Workspace(tmp_path)).artifact
    last = run.manifest["history"][-1]
    assert last["valid"]["auc"] == pytest.approx(0.5, abs=3 * (1 / (3 * 2_000)) ** 0.5)  # its standard error
    assert last["train_loss"] > 0.68
