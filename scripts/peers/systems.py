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
