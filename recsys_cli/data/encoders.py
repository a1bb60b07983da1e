"""Local text encoders: word vectors and ONNX sentence encoders. Nothing is fetched, no code of a folder is run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsys_cli.errors import ConfigError, DataError, MissingExtraError, RecsysError
from recsys_cli.packages import np

Encode = Callable[[Sequence[str]], Any]  # to vectors (N, D) of any length, zero without known words
_COMMON, _MAX_TOKENS, _BATCH = 1e-3, 512, 32


def words(text: str) -> list[str]:
    """Return the lower-case words of a text."""
    return re.findall(r"\w+", text.lower())


def word_encoder(path: Path, counts: Mapping[str, int]) -> tuple[Encode, dict[str, Any]]:
    """Return sums of vectors in text form (GloVe, word2vec, fastText) with weights of smooth inverse frequency; and counts.

    A word with share p of all words has weight a / (a + p), a = .001 (Arora et al., "A simple but tough-to-beat baseline for
    sentence embeddings", 2017). `counts` are those of the words of all texts; memory holds these alone.
    """
    total, rows = sum(counts.values()), dict[str, Any]()
    with path.open("rb") as file:
        head = file.readline().split()
        dim = int(head[1]) if len(head) == 2 else len(head) - 1
        file.seek(0)
        for number, line in enumerate(file, 1):
            first, _, rest = line.partition(b" ")
            word = first.decode("utf-8", "replace").lower()
            if word not in counts or word in rows:  # the first spelling counts: files are sorted by frequency
                continue
            row = np.array(rest.split(), np.float32)
            if len(row) == dim and np.isfinite(row).all():
                rows[word] = row * (_COMMON / (_COMMON + counts[word] / total))
            elif len(row) <= dim and number > 1:
                raise DataError(f"{path}, line {number}: {word} has no vector of {dim} numbers")
    if not rows:
        raise DataError(f"{path}: no word of the texts has a vector", hint="name a file of their language")
    zero, unknown = np.zeros(dim, np.float32), counts.keys() - rows.keys()
    share = round(sum(counts[word] for word in unknown) / total, 4)
    facts = {"words": len(counts), "unknown_words": len(unknown), "unknown_share": share}
    return lambda texts: np.stack([sum((rows.get(one, zero) for one in words(text)), zero) for text in texts]), facts


def sentence_encoder(model: Path, folder: Path) -> Encode:
    """Return means of the token states of an ONNX model, or the first states where `1_Pooling/config.json` has these."""
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = InferenceSession(str(model), providers=["CPUExecutionProvider"])
    tokenizer.enable_padding(**(tokenizer.padding or {}) | {"length": None})
    if tokenizer.truncation is None:
        tokenizer.enable_truncation(_MAX_TOKENS)
    pooling = [*folder.glob("1_Pooling/config.json")]
    is_first = any(json.loads(one.read_bytes()).get("pooling_mode_cls_token") for one in pooling)

    def encode_batch(texts: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch(list(texts))
        ids, mask = (np.array([getattr(one, name) for one in encoded], np.int64) for name in ("ids", "attention_mask"))
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
        states = session.run(None, {one.name: given[one.name] for one in session.get_inputs()})[0]
        pooled = states if states.ndim == 2 else states[:, 0] if is_first else (states * mask[:, :, None]).sum(axis=1)
        return pooled * np.array([bool(text) for text in texts])[:, None]

    return lambda texts: np.concatenate([encode_batch(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)])


@contextmanager
def encoder(path: Path, counts: Mapping[str, int]) -> Iterator[tuple[Encode, dict[str, Any]]]:
    """Yield the encoder of a local folder or file, for texts with counts of words, and facts for the manifest.

    A folder without one is a `ConfigError`, a damaged file a `DataError`, a missing package a `MissingExtraError`.
    """
    models = [*path.glob("model.onnx"), *path.glob("onnx/model.onnx")]
    files = [path] if path.is_file() else [*path.glob("*.vec"), *path.glob("*.txt")]
    if not models and len(files) != 1:
        hint = "name one file of word vectors as text, or a folder with model.onnx and tokenizer.json"
        raise ConfigError(f"{path}: {len(files)} files of word vectors", hint=hint)
    try:
        yield (sentence_encoder(models[0], path), {}) if models else word_encoder(files[0], counts)
    except RecsysError:
        raise
    except ImportError as error:
        raise MissingExtraError.for_extra("embed", what=str(path)) from error
    except Exception as error:  # the packages have no common class
        raise DataError(f"{path}: no readable encoder of texts: {error}") from error
