"""Prepared data with loaders for custom training loops."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

from recsys_cli import workspace
from recsys_cli.api.arguments import check
from recsys_cli.api.hints import python_hints
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from recsys_cli.loader import Loader


class PreparedData(workspace.PreparedData):
    """Encoded splits, dimension tables and vocabularies on disk, described by `schema`."""

    @python_hints()
    def loader(
        self,
        split: str = "train",
        *,
        batch_size: int = 1_024,
        shuffle: bool | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> Loader:
        """Return a loader of batches. One iteration is one epoch; `set_epoch` reshuffles.

        Args:
            split: `train`, `valid` or `test`.
            batch_size: Rows per batch.
            shuffle: Whether to shuffle rows; None shuffles train only.
            seed: Seed of the shuffle.
            device: Device of the batches.

        Raises:
            ConfigError: `batch_size` is below 1.
            DataError: A file is damaged, or the split has no rows.
        """
        from recsys_cli.loader import Loader

        check(split=(split, str), batch_size=(batch_size, Integral), seed=(seed, Integral))
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}, but has to be 1 or more")
        shuffled = split == "train" if shuffle is None else shuffle
        return Loader(self, split, batch_size=batch_size, shuffle=shuffled, seed=seed, device=device)
