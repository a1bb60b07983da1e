"""Which peer has which of our models, and with which settings it is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RANKING = ("fm", "deepfm", "dcn-v2", "wide-deep")
"""Models that are measured on the fixed random split, by the AUC of its test rows; the others by lists of ten items."""
TOP_K = ("popularity", "item-knn", "ease", "slim", "ials", "mf", "lightgcn")
MODELS = (*TOP_K, *RANKING)


@dataclass(frozen=True)
class Setting:
    """How a peer is run.

    Attributes:
        options: What differs from its defaults.
        note: What the table says of it.
        epochs: The option that counts its epochs; None for a model without any.
        training: Of a sequence model: `epochs` and `patience` of its curve; what the library does itself is left out.
    """

    options: dict[str, Any] = field(default_factory=dict)
    note: str = "its defaults"
    epochs: str | None = None
    training: dict[str, Any] = field(default_factory=dict)


_STOPPED = Setting(
    note="its defaults: the best of up to 300 epochs by valid, stopped after 10 worse ones", epochs="epochs"
)
_NO_EPOCHS = Setting()

PEERS: dict[str, dict[str, Setting]] = {
    "recbole": {
        **dict.fromkeys(("popularity", "item-knn", "ease", "slim"), _NO_EPOCHS),
        **dict.fromkeys(("mf", "lightgcn", *RANKING), _STOPPED),
    },
    "lenskit": {
        **dict.fromkeys(("popularity", "ease", "slim"), _NO_EPOCHS),
        "item-knn": Setting(note="its defaults for rows without ratings"),
        "ials": Setting(epochs="epochs"),
        "mf": Setting(note="FlexMF, preset bpr", epochs="epochs"),
        "lightgcn": Setting(note="FlexMF, preset lightgcn", epochs="epochs"),
    },
    "rectools": {
        **dict.fromkeys(("popularity", "item-knn", "ease"), _NO_EPOCHS),
        "ials": Setting(epochs="iterations"),
        "mf": Setting(note="its defaults (implicit's BPR)", epochs="iterations"),
    },
}
"""Peer → model → setting."""

_PATIENT = Setting(
    note="its defaults; the best of up to 200 epochs by NDCG@10 on valid, stopped after 50 worse ones (its authors' benchmark)",
    training={"epochs": 200, "patience": 50},
)
_GUIDE = Setting(
    note="its defaults; the best of up to 100 epochs by NDCG@10 on valid, stopped after 5 worse ones (its training guide)",
    training={"epochs": 100, "patience": 5},
)
_ML1M = {
    "n_factors": 64, "n_blocks": 2, "n_heads": 1, "dropout_rate": 0.1, "session_max_len": 200, "loss": "sampled_softmax",
    "n_negatives": 256,
}  # fmt: skip
_SAMPLED = Setting(
    options=_ML1M,
    note="its authors' benchmark on ML-1M: 64 dims, 2 blocks, 1 head, dropout 0.1, 200 items, sampled softmax with 256 negatives; "
    "the best of up to 200 epochs by NDCG@10 on valid, stopped after 50 worse ones",
    training={"epochs": 200, "patience": 50},
)
_TUTORIAL = Setting(
    options=_ML1M
    | {
        "n_factors": 50, "dropout_rate": 0.2, "n_negatives": 128, "relative_time_attention": False,
        "lightning_module_kwargs": {"logits_t": 0.05},
    },
    note="its tutorial on ML-1M: 50 dims, 2 blocks, 1 head, dropout 0.2, 200 items, sampled softmax with 128 negatives; "
    "without relative time, which reads the time of the item to predict; the best of 100 epochs by NDCG@10 on valid",
    training={"epochs": 100, "patience": 100},
)  # fmt: skip
SEQUENCES: dict[str, dict[str, Setting]] = {
    "rectools": {
        "sasrec": _PATIENT, "sasrec-guide": _GUIDE, "sasrec-sampled": _SAMPLED,
        "bert4rec": _PATIENT, "hstu": _TUTORIAL,
    },
    "recbole": dict.fromkeys(("sasrec", "gru4rec", "bert4rec"), Setting(note=_STOPPED.note, training={"epochs": 300})),
}  # fmt: skip
"""Peer → sequence model, and what follows a dash → setting, for bench_sequence_peers.py."""
SEQUENCE_MODELS = ("sasrec", "gru4rec", "bert4rec", "hstu")
