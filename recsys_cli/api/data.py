"""Prepared data with loaders for custom training loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recsys_cli import workspace

if TYPE_CHECKING:
    from recsys_cli.loader import Loader


class PreparedData(workspace.PreparedData):
    """Encoded splits, dimension tables and vocabularies on disk, described by `schema`."""

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
            DataError: A file is damaged, or the split has no rows.
        """
        from recsys_cli.loader import Loader

        shuffled = split == "train" if shuffle is None else shuffle
        return Loader(self, split, batch_size=batch_size, shuffle=shuffled, seed=seed, device=device)
