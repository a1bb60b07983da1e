"""Seconds per training step of the Merlin notebook's network in plain torch, CPU: what a user would write without recsys.

usage: torch_train.py PREPARED STEPS

PREPARED is a folder that `recsys etl` wrote. The same layers, table widths and batches as recsys trains, its loader included,
and dense gradients with torch.optim.Adam at its defaults. The first step is not counted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import Schema
from recsys_cli.loader import Loader
from recsys_cli.models.embedding import default_dim
from recsys_cli.workspace import PreparedData

BATCH = 32_768


class Network(nn.Module):
    """Embeddings, summed where a row has several, concatenated, through three layers of 128 with ReLU and BatchNorm."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.columns = {column.name: column.ragged for column in schema.categorical}
        self.tables = nn.ModuleDict()
        width = 0
        for column in schema.categorical:
            size, dim = column.cardinality or 0, default_dim(column.cardinality or 0)
            kind = (
                nn.EmbeddingBag(size, dim, mode="sum", include_last_offset=True)
                if column.ragged
                else nn.Embedding(size, dim)
            )
            self.tables[column.name] = kind
            width += dim
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Linear(width, 128), nn.ReLU(), nn.BatchNorm1d(128)]
            width = 128
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, batch: Batch) -> Tensor:
        """Return one logit a row; shape (B,)."""
        found = []
        for name, table in self.tables.items():
            feature = batch.features[name]
            found.append(table(feature.values, feature.offsets) if isinstance(feature, Ragged) else table(feature))
        logits: Tensor = self.layers(torch.cat(found, dim=1))
        return logits.squeeze(1)


def main() -> None:
    """Train for some steps and print what one took."""
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    data = PreparedData(folder)
    network, loss_function = Network(data.schema), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    batches = iter(Loader(data, "train", batch_size=BATCH, shuffle=True))
    started = waiting = 0.0
    for step in range(steps):
        before = time.perf_counter()
        batch = next(batches)
        if step == 1:
            started, waiting = before, 0.0
        waiting += time.perf_counter() - before
        loss = loss_function(network(batch), batch.labels["label"].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = (time.perf_counter() - started) / (steps - 1)
    print(
        f"{seconds:.3f} s a step, of which {waiting / (steps - 1):.3f} s waiting for the loader; last loss {loss.item():.4f}"
    )


if __name__ == "__main__":
    main()
