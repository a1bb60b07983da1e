"""Messages about invalid configs: all problems at once, each with its line and a suggestion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recsys_cli.config import RunConfig, dump, load
from recsys_cli.config.bench import SEARCHES
from recsys_cli.config.load import model_config, model_config_type, train_defaults
from recsys_cli.errors import ConfigError
from recsys_cli.features.split import splits

GOOD = """\
dataset:
  name: movielens-25m
split: {method: random, valid: 0.2, seed: 42}
features:
  user: userId
  item: movieId
  label: label
  ops:
    - {op: JoinExternal, table: movies, on: movieId, columns: [genres]}
    - {op: Categorify, columns: [userId, movieId, genres]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
model:
  name: mlp
  hidden_dims: [128, 128]
train:
  epochs: 1
"""


EPOCHS, DATASET, MODEL = "  epochs: 1", "dataset:\n  name: movielens-25m", "name: mlp\n  hidden_dims: [128, 128]"
CATEGORIFY = "{op: Categorify, columns: [userId, movieId, genres]}"


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A valid config, x.yaml in the working directory, for short messages."""
    monkeypatch.chdir(tmp_path)
    path = Path("x.yaml")
    path.write_text(GOOD)
    return path


def change(path: Path, old: str, new: str) -> None:
    """Replace a text in the file."""
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))


def full(name: str, **options: object) -> dict[str, object]:
    """Return all options of a model, some of them overridden."""
    return model_config(name, options).model_dump(mode="json")


def test_load_reads_a_good_config(config_file: Path) -> None:
    config = load(config_file)
    assert config.dataset.name == "movielens-25m"
    assert [op.op for op in config.features.ops] == ["JoinExternal", "Categorify", "LambdaOp"]
    assert config.model.options == full("mlp", hidden_dims=[128, 128])
    assert (config.train.epochs, config.train.batch_size) == (1, 1_024)  # what was written, and what the model says


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (EPOCHS, "  epoch: 1", "16: train.epoch: unknown key (did you mean epochs?)"),
        (EPOCHS, "  epochs: 1.5", "16: train.epochs: has to be a whole number, not 1.5"),
        (EPOCHS, "  epochs: 0", "16: train.epochs: has to be at least 1, not 0"),
        (EPOCHS, "  sparse_embeddings: maybe", "16: train.sparse_embeddings: has to be true or false, not 'maybe'"),
        (EPOCHS, "  learning_rate:", "16: train.learning_rate: has to be a number, not nothing"),
        (EPOCHS, "  learning_rate: .inf", "16: train.learning_rate: has to be a finite number, not inf"),
        ("train:", "trian:", "15: trian: unknown key (did you mean train?)"),
        (EPOCHS, "  precision: fp8", "16: train.precision: has to be 'auto', 'fp32', 'bf16' or 'fp16', not 'fp8'"),
        (
            EPOCHS,
            "  {sparse_embeddings: true, embedding_weight_decay: 0.1}",
            "15: train: embedding_weight_decay is not available with sparse_embeddings: true",
        ),
        ("  hidden_dims", "  hiden", "14: model.hiden: unknown key (did you mean hidden_dims?)"),
        ("[128, 128]", "128", "14: model.hidden_dims: has to be a list, not 128"),
        ("[128, 128]", "[128, wide]", "14: model.hidden_dims.1: has to be a whole number, not 'wide'"),
        (
            "  hidden_dims: [128, 128]",
            "  embedding_dim: wide",
            "14: model.embedding_dim: has to be a whole number or a mapping (keys with values), not 'wide'",
        ),
        *(
            (MODEL, f"{{name: {name}, {key}: []}}", f"13: model.{key}: needs at least 1, and has 0")
            for name, key in (("din", "attention_dims"), ("mmoe", "hidden_dims"), ("ple", "hidden_dims"))
        ),
        ("name: mlp", "name: mlpp", "13: model.name: unknown model 'mlpp' (did you mean mlp?); known: "),
        ("  user: userId\n", "", "4: features.user: is missing"),
        (
            "op: Categorify",
            "op: Categorfy",
            "10: features.ops.1.op: unknown op 'Categorfy' (did you mean Categorify?); "
            "known: AddTags, Bucketize, Categorify, ",
        ),
        (
            "op: Categorify, columns",
            "op: Categorify, column",
            "10: features.ops.1.column: unknown key (did you mean columns?)",
        ),
        (CATEGORIFY, "{columns: [userId]}", "10: features.ops.1: needs `op: NAME`"),
        (
            CATEGORIFY,
            "Categorify",
            "10: features.ops.1: has to be a mapping (keys with values), not 'Categorify'; write {op: Categorify}",
        ),
        ("[userId, movieId, genres]", "[]", "10: features.ops.1.columns: needs at least 1, and has 0"),
        ("rating > 3", "open(3)", "11: features.ops.2.expression: the expression 'open(3)' calls open, "),
        (
            "split: {method: random, valid: 0.2, seed: 42}",
            "split:\n  valid: 0.2\n  method: randm",
            f"5: split.method: unknown method 'randm' (did you mean random?); known: {', '.join(splits())}",
        ),
        ("valid: 0.2", "valid: 1.2", "3: split.valid: has to be less than 1, not 1.2"),
        ("valid: 0.2", "valid: 0.6, test: 0.4", "3: split: valid + test is 1, which leaves nothing to train on"),
        (
            DATASET,
            "dataset: movielens-25m",
            "1: dataset: has to be a mapping (keys with values), not 'movielens-25m'; write dataset: {name: movielens-25m}",
        ),
        ("dataset:\n  name: movielens-25m\n", "", "dataset: is missing"),
        ("movielens-25m", "movilens-25m", "2: dataset.name: unknown dataset 'movilens-25m' (did you mean mov"),
        ("movielens-25m", "synthetic\n  rowz: 3", "3: dataset.rowz: unknown key; options of synthetic: users"),
        ("movielens-25m", "synthetic\n  rows: many", "3: dataset.rows: has to be a whole number, not 'many'"),
        ("movielens-25m", "nowhere:source", "2: dataset.name: 'nowhere:source' is code of a plugin and not trusted"),
        (
            "[userId, movieId, genres]",
            "[userId, genres]",
            "features: the item column 'movieId' has to be in a Categorify",
        ),
        (
            "method: random, valid: 0.2, seed: 42",
            "method: temporal",
            "split.method=temporal orders by time: set features.timestamp to the time column",
        ),
        (
            "train:",
            "evaluate: {candidates: given, targets: last}\ntrain:",
            "evaluate.targets chooses by time, but evaluate.candidates=given has the targets: use targets=all",
        ),
        ("train:", "etl: {engine: polar}\ntrain:", "15: etl.engine: unknown engine 'polar' (did you mean pola"),
    ],
)
def test_load_reports_the_problem(problems, config_file: Path, old: str, new: str, line: str) -> None:
    change(config_file, old, new)
    found = problems(config_file)
    assert any(text.startswith((f"x.yaml:{line}", line)) for text in found), found


def test_load_reports_all_problems_in_file_order(problems, config_file: Path) -> None:
    config_file.write_text(
        GOOD.replace("movielens-25m", "movilens").replace("hidden_dims", "hiden").replace("epochs", "epoch")
        + "evaluate: {k: [ten]}\n"
    )
    found = problems(config_file, "etl.engine=gpu")
    places = [re.match(r"(x\.yaml:\d+|override [^:]*): ", text)[1] for text in found]  # type: ignore[index]
    assert places == ["x.yaml:2", "x.yaml:14", "x.yaml:16", "x.yaml:17", "override etl.engine=gpu"]


def test_load_treats_an_empty_section_as_absent(config_file: Path) -> None:
    change(config_file, "  epochs: 1", "  # epochs: 3")
    empty = load(config_file).train
    change(config_file, "train:\n  epochs: 1\n", "")
    assert load(config_file).train == empty


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^x\.yaml: is empty"),
        ("# only a comment\n", r"^x\.yaml: is empty"),
        ("- a\n", r"^x\.yaml: is not a mapping"),
        ("just text", r"^x\.yaml: is not a mapping"),
        ("a: 1\n b: 2\n", r"^x\.yaml:2:3: not YAML: mapping values are not allowed here"),
        ("train:\n\tepochs: 3\n", r"^x\.yaml:2:1: not YAML: .*'\\t'"),
        (
            "a: {b: 1,\n  b: 2}\nc: 1\nc: 2\n",
            r"^x\.yaml:2: duplicate key a\.b, first at x\.yaml:1\nx\.yaml:4: duplicate key c,",
        ),
        ("a: &x [*x]\n", r"^x\.yaml:1:8: not YAML: an anchor that contains itself"),
        ("? [a]\n: b\n", r"^x\.yaml:1: a key has to be text"),
        ("a: !!python/object:os.system 1\n", r"^x\.yaml:1:4: not YAML: unsupported type"),
        ("a: 1\n---\nb: 1\n", r"^x\.yaml:2:1: not YAML: expected a single document"),
    ],
)
def test_load_rejects_other_files(config_file: Path, text: str, message: str) -> None:
    config_file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(config_file)


def test_load_reads_utf_8_with_a_byte_order_mark_and_windows_line_ends(config_file: Path) -> None:
    config_file.write_bytes(b"# fine\n# caf\xe9\n" + GOOD.encode())
    with pytest.raises(ConfigError, match=r"^x\.yaml:2: not UTF-8: byte 0xe9$"):
        load(config_file)
    config_file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(config_file).dataset.name == "movielens-25m"


def test_load_suggests_an_existing_file_and_rejects_a_folder(config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^no config file xx\.yaml \(did you mean x\.yaml\?\)$"):
        load(Path("xx.yaml"))
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path)


def test_overrides_set_values_sections_and_list_elements(config_file: Path) -> None:
    overrides = ["train.epochs=3", "train.learning_rate=1e-4", "evaluate.k=[5, 20]", "etl.engine = polars"]
    overrides += ["features.ops.2.expression=rating > 3.5", "features.timestamp=timestamp"]
    overrides += ["model.embedding_dim={userId: 8}", "split={method: temporal, valid: 0.1}"]
    config = load(config_file, overrides)
    assert config.train.epochs == 3
    assert config.train.learning_rate == 1e-4
    assert config.evaluate.k == (5, 20)
    assert config.features.ops[2].expressions["label"] == "rating > 3.5"
    assert config.model.options["embedding_dim"] == {"userId": 8}
    assert config.split.method == "temporal"
    assert config.etl.engine == "polars"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.epochs", r"^'train.epochs' is not an override$"),
        ("=3", r"^'=3' is not an override$"),
        ("train..epochs=3", r"is not an override$"),
        ("train.epochs.x=3", r"train\.epochs is 1 and has no key 'x'$"),
        ("features.ops.9=1", r"features\.ops is a list; '9' is not an index of it \(0 to 2\)$"),
        ("features.ops.last=1", r"features\.ops is a list; 'last' is not an index of it"),
        ("train.epochs=[", r"the value is not YAML"),
    ],
)
def test_invalid_overrides(config_file: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(config_file, [text])


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        (["model=bert4rec", "model.embedding_dim=64"], "write model.name=bert4rec"),
        (["split=temporal", "split.embedding_dim=64"], "write split.method=temporal"),
        (["train.epochs.embedding_dim=64"], None),
    ],
)
def test_hint_for_an_option_of_a_section_written_as_a_word(
    config_file: Path, overrides: list[str], hint: str | None
) -> None:
    with pytest.raises(ConfigError, match="has no key 'embedding_dim'") as caught:
        load(config_file, overrides)
    assert caught.value.hint == hint


def test_problem_of_an_override_names_the_override(problems, config_file: Path) -> None:
    assert problems(config_file, "train.epochs=many", "model.dropot=0.1") == [
        "override train.epochs=many: train.epochs: has to be a whole number, not 'many'",
        "override model.dropot=0.1: model.dropot: unknown key (did you mean dropout?)",
    ]


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        ("train.early_stopping=none", True),
        ("evaluate.max_ranking_users=None", True),
        ("train.early_stopping=never", False),
        ("train.epochs=none", False),
    ],
)
def test_none_as_text_suggests_null(problems, config_file: Path, text: str, advised: bool) -> None:
    (found,) = problems(config_file, text)
    assert found.endswith(f"not {text.partition('=')[2]!r}{'; write null' if advised else ''}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model=bert4rec", "; write model.name=bert4rec"),
        ("dataset=movielens-1m", "; write dataset.name=movielens-1m"),
        ("split=temporal", "; write split.method=temporal"),
        ("features.ops.1=Dropna", "; write features.ops.1.op=Dropna"),
        ("etl=polars", "not 'polars'"),
        ("model=3", "not 3"),
    ],
)
def test_name_in_place_of_a_section_suggests_its_key(problems, config_file: Path, text: str, line: str) -> None:
    (found,) = problems(config_file, text)
    assert found.startswith(f"override {text}: {text.partition('=')[0]}: has to be a mapping")
    assert found.endswith(line)


def test_hint_is_about_override_or_file(config_file: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key") as caught:
        load(config_file, ["train.epoch=3"])
    assert caught.value.hint == f"fix the override; `recsys config {config_file}` lists every key"
    change(config_file, "hidden_dims", "hiden")
    with pytest.raises(ConfigError, match="2 problems") as caught:
        load(config_file, ["train.epoch=3"])
    assert caught.value.hint == f"fix the config, then check it: recsys validate {config_file}"


def test_a_problem_of_a_section_names_its_overrides(config_file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(config_file, ["split.valid=0.6", "split.test=0.6"])
    assert "  override split.valid=0.6, split.test=0.6: split: valid + test is 1.2" in caught.value.message
    assert caught.value.hint == f"fix the override; `recsys config {config_file}` lists every key"


def test_dump_and_load_are_inverse(config_file: Path) -> None:
    overrides = ["train.learning_rate=1e-5", "model.embedding_dim={userId: 8}", "train.embedding_learning_rate=0.5"]
    config = load(config_file, overrides)
    again = Path("again.yaml")
    again.write_text(dump(config))
    assert load(again) == config
    assert "on: movieId" in again.read_text()


def test_dump_has_all_defaults(config_file: Path) -> None:
    text = dump(load(config_file))
    assert all(f"\n{section}:" in f"\n{text}" for section in RunConfig.model_fields if section not in SEARCHES)
    assert not any(section in text for section in ("tune", "protocol", "bench"))  # only where they are asked for
    assert "batch_size: 32768" in text


def test_model_config_type_names_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECSYS_TRUST", "my_models")
    with pytest.raises(
        ConfigError, match=r"cannot load 'my_models\.ncf\.config:Config': ModuleNotFoundError: No module"
    ):
        model_config_type("my_models.ncf")


@pytest.mark.parametrize(
    "cluster",
    [
        "local",
        "local_cuda",
        "tcp://10.0.0.7:8786",
        "tls://dask.here:1",
        "tcp://[::1]:8786",
        "dask://here:1",
        "ray",
        "ray://here:10001",
        "auto",
    ],
)
def test_load_takes_a_cluster(config_file: Path, cluster: str) -> None:
    assert load(config_file, [f"etl.cluster={cluster}"]).etl.cluster == cluster


@pytest.mark.parametrize(
    "cluster", ["tcp:/x", "tcp://10.0.0.7", "10.0.0.7:8786", "http://here:8786", "tcp://:8786", "locale"]
)
def test_load_rejects_an_unknown_cluster(problems, config_file: Path, cluster: str) -> None:
    (line,) = problems(config_file, f"etl.cluster={cluster}")
    assert "etl.cluster: has to be local, local_cuda, ray, auto, or an address: dask://HOST:8786," in line
    assert line.endswith(f"not {cluster!r}{' (did you mean local?)' if cluster == 'locale' else ''}")


def test_another_model_drops_the_options_of_the_previous_one(config_file: Path) -> None:
    changed = load(config_file, ["model.embedding.placement=device", "model.name=popularity"])
    assert changed.model.name == "popularity"
    assert changed.model.options == full("popularity")
    assert load(config_file, ["model.name=mlp"]).model.options == full("mlp", hidden_dims=[128, 128])
    both = load(config_file, ["model.dropout=0.5", "model.name=mlp"]).model.options
    assert both == full("mlp", hidden_dims=[128, 128], dropout=0.5)


@pytest.mark.parametrize(
    ("written", "method", "left"),
    [
        ("{method: random, valid: 0.3, test: 0.2, seed: 7}", "leave-last-out", {}),
        ("{method: random, valid: 0.3, test: 0.2, seed: 7}", "temporal", {"valid": 0.3, "test": 0.2}),
        ("{method: files, train: a.csv, valid: b.csv}", "temporal", {"valid": 0.2, "test": 0.1}),
        ("{method: random, seed: 7}", "random", {"valid": 0.2, "test": 0.1, "seed": 7}),
    ],
)
def test_another_split_drops_the_options_of_the_previous_one(
    config_file: Path, written: str, method: str, left: dict[str, object]
) -> None:
    change(config_file, "split: {method: random, valid: 0.2, seed: 42}", f"split: {written}")
    assert load(config_file, [f"split.method={method}", "features.timestamp=timestamp"]).split.model_dump() == {
        "method": method,
        **left,
    }


def test_unknown_split_option_stays_invalid(config_file: Path, problems) -> None:
    change(config_file, "split: {method: random, valid: 0.2, seed: 42}", "split: {method: random, valid: 0.3}")
    (found,) = problems(config_file, "split.valid=0.1", "split.method=leave-last-out")
    assert found.startswith("override split.valid=0.1: split.valid: unknown key")
    assert "unknown method 'temporl'" in problems(config_file, "split.method=temporl")[0]


def test_model_defaults_of_the_train_section(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_config_type("mlp"), "train_defaults", {"epochs": 7, "batch_size": 99}, raising=False)
    assert load(config_file).train.epochs == 1
    assert load(config_file).train.batch_size == 99
    assert load(config_file, ["train.batch_size=5"]).train.batch_size == 5


@pytest.mark.parametrize("named", ["model:\n  name: mlp\n  hidden_dims: [128, 128]\n", "  name: mlp\n"])
def test_default_model_has_its_train_defaults(config_file: Path, named: str) -> None:
    expected = load(config_file).train
    change(config_file, named, "")
    assert load(config_file).train == expected


@pytest.mark.parametrize(
    ("written", "sparse", "optimizer", "rate"),
    [
        ("train.sparse_embeddings=true", True, "adagrad", 0.1),
        ("train.learning_rate=0.5", True, "adagrad", 0.1),
        ("train.embedding_learning_rate=0.2", True, "adagrad", 0.2),
        ("train.embedding_optimizer=sgd", True, "sgd", None),
        ("train.sparse_embeddings=false", False, "adam", None),
        ("train.embedding_weight_decay=0.1", False, "adam", None),
    ],
)
def test_conflicting_train_defaults_are_dropped(
    config_file: Path, monkeypatch: pytest.MonkeyPatch, written: str, sparse: bool, optimizer: str, rate: float | None
) -> None:
    defaults = {"sparse_embeddings": True, "embedding_optimizer": "adagrad", "embedding_learning_rate": 0.1}
    monkeypatch.setattr(model_config_type("mlp"), "train_defaults", defaults, raising=False)
    found = load(config_file, [written]).train
    assert (found.sparse_embeddings, found.embedding_optimizer) == (sparse, optimizer)
    assert found.embedding_learning_rate == rate


@pytest.mark.parametrize(
    "name", ["logistic", "fm", "mlp", "dcn-v2", "deepfm", "dlrm", "neumf", "wide-deep", "mf", "two-tower"]
)
def test_models_of_rows_and_pairs_train_long_and_stop_early(name: str) -> None:
    """On data sets of 100,000 rows the best epoch was up to the 15th of 15."""
    defaults = train_defaults(model_config_type(name))
    assert defaults["epochs"] > 15 > defaults["early_stopping"]
