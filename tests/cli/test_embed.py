"""Texts of items to vectors, by encoders whose answers are computed here."""

import hashlib
import json
import socket

import numpy as np
import pyarrow.parquet as pq
import pytest

ITEMS = "code,id,title,note\nA1,7,Red dog,a dog runs\nB2,8,Blue cat,\nC3,9,,\nD4,10,zzz,\n"
WORDS = {"red": (1, 0, 0), "blue": (0, 1, 0), "dog": (0, 0, 1), "cat": (1, 1, 0), "runs": (0, 2, 0)}
COUNTS = {"red": 1, "dog": 2, "a": 1, "runs": 1, "blue": 1, "cat": 1, "zzz": 1}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def items(tmp_path):
    (tmp_path / "items.csv").write_text(ITEMS)
    return tmp_path


def word_file(folder, head="", rows=WORDS):
    (folder / "words").mkdir(exist_ok=True)
    lines = "".join(f"{word.title()} {' '.join(map(str, row))}\n" for word, row in rows.items())
    (folder / "words" / "small.vec").write_text(head + lines)


def unit(vector):
    return np.array(vector) / np.linalg.norm(vector)


def weighted(*words):
    total = sum(COUNTS.values())
    return unit(sum(np.array(WORDS[word]) * 1e-3 / (1e-3 + COUNTS[word] / total) for word in words))


@pytest.mark.parametrize("head", ["", "5 3\n"], ids=["glove", "word2vec"])
def test_word_vectors_are_weighted_means_with_rare_words_first(recsys, items, head):
    word_file(items, head)
    told = json.loads(recsys("--json", "embed", "items.csv", "--model", "words", "--item", "id").out)
    table = pq.read_table("items.vectors.parquet")
    assert table["id"].to_pylist() == [7, 8, 9, 10]
    found = table["vector"].to_pylist()
    np.testing.assert_allclose(found[0], weighted("red", "dog", "dog", "runs"), atol=1e-6)
    np.testing.assert_allclose(found[1], weighted("blue", "cat"), atol=1e-6)
    assert found[2:] == [None, None]  # without text, and without a known word
    assert told["columns"] == ["title", "note"]  # codes are no texts
    assert (told["items"], told["without_text"], told["dim"]) == (4, 1, 3)
    assert (told["words"], told["unknown_words"], told["unknown_share"]) == (7, 2, 0.25)
    digests = [hashlib.sha256((items / name).read_bytes()).hexdigest() for name in ("words/small.vec", "items.csv")]
    assert list(told["files"].values()) == digests
    facts = json.loads(table.schema.metadata[b"recsys"])
    assert facts == {name: value for name, value in told.items() if name not in {"output", "config"}}
    assert "on: id" in told["config"]


def test_the_file_is_replaced_only_with_force_and_whole(recsys, items):
    word_file(items)
    line = ["embed", "items.csv", "--model", "words", "--columns", "title", "--out", "v.parquet"]
    assert recsys(*line).code == 0
    before = (items / "v.parquet").read_bytes()
    assert "--force" in recsys(*line).err
    word_file(items, rows={"red": (1, 0, 0), "cat": (1, "nan", 0)})
    answer = recsys(*line, "--force")
    assert (answer.code, "line 2: cat" in answer.err) == (4, True)
    assert (items / "v.parquet").read_bytes() == before
    assert not list(items.glob(".v*"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--model", "nowhere"], "nowhere: 0 files of word vectors"),
        (["--model", "words", "--columns", "titel"], "no column titel"),
        (["--model", "words", "--item", "x"], "no column x"),
    ],
)
def test_wrong_names_are_refused_with_what_there_is(recsys, items, options, text):
    word_file(items)
    answer = recsys("embed", "items.csv", *options)
    assert answer.code == 2
    assert text in answer.err
    assert not (items / "items.vectors.parquet").exists()


def word_tokenizer(folder):
    tokenizers = pytest.importorskip("tokenizers")
    folder.mkdir()
    words = {"[UNK]": 0, **{word: place for place, word in enumerate(WORDS, 1)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = tokenizers.normalizers.Lowercase(), tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    return np.array([(9, 9, 9), *WORDS.values()], np.float32)


@pytest.mark.parametrize("first", [False, True], ids=["mean", "first token"])
def test_an_onnx_encoder_pools_the_states_of_real_tokens(recsys, items, first):
    onnx = pytest.importorskip("onnx")
    rows = word_tokenizer(items / "model")
    helper = onnx.helper
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["b", "t"])
              for name in ("input_ids", "attention_mask")]  # fmt: skip
    states = helper.make_tensor_value_info("states", onnx.TensorProto.FLOAT, ["b", "t", 3])
    node = helper.make_node("Gather", ["table", "input_ids"], ["states"])
    graph = helper.make_graph([node], "g", inputs, [states], [onnx.numpy_helper.from_array(rows, "table")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
              items / "model" / "model.onnx")  # fmt: skip
    if first:
        (items / "model" / "1_Pooling").mkdir()
        (items / "model" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    answer = recsys("embed", "items.csv", "--model", "model", "--item", "id", "--columns", "note,title")
    assert answer.code == 0, answer.err
    found = pq.read_table("items.vectors.parquet")["vector"].to_pylist()
    note = rows[[0, 3, 5, 1, 3]]  # a dog runs Red dog, longer than the others: padding counts for nothing
    np.testing.assert_allclose(found[0], unit(note[0] if first else note.sum(0)), atol=1e-6)
    np.testing.assert_allclose(found[1], unit(rows[2] if first else rows[2] + rows[4]), atol=1e-6)
    assert found[2] is None
