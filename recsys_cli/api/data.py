"""Prepared data with loaders for custom training loops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recsys_cli import workspace
from recsys_cli.api.boundary import Count, public
from recsys_cli.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import tensorflow as tf

    from recsys_cli.loader import Loader


Split = Literal["train", "valid", "test"]


class PreparedData(workspace.PreparedData):
    """Encoded splits, dimension tables and vocabularies on disk, described by `schema`."""

    @public
    def loader(
        self,
        split: Split = "train",
        *,
        batch_size: Count = 1_024,
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

        shuffled = split == "train" if shuffle is None else shuffle
        return Loader(self, split, batch_size=batch_size, shuffle=shuffled, seed=seed, device=device)

    @public
    def tf_dataset(
        self,
        split: Split = "train",
        *,
        batch_size: Count = 1_024,
        epochs: Count = 1,
        shuffle: bool | None = None,
        seed: int = 0,
    ) -> tf.data.Dataset:
        """Return the batches of `loader` as a dataset of (features, label) or (features, label, weight).

        Features are a dict by column; lists are ragged tensors, and several labels a dict.

        Args:
            split: `train`, `valid` or `test`.
            batch_size: Rows per batch.
            epochs: Epochs of one iteration, each with an order of its own.
            shuffle: Whether to shuffle rows; None shuffles train only.
            seed: Seed of the shuffle.

        Raises:
            ConfigError: `batch_size` or `epochs` is below 1.
            DataError: A file is damaged, or the split has no rows.
            MissingExtraError: TensorFlow is not installed.
        """
        from recsys_cli.loader.tf_data import dataset_of

        loader = self.loader(split, batch_size=batch_size, shuffle=shuffle, seed=seed)
        return dataset_of(loader, self.schema, epochs=epochs)

    @public
    def tf_export(self, model: Any, folder: str | Path) -> Path:
        """Write a TensorFlow model of the features as a SavedModel of raw rows, and signature.json; return the folder.

        Args:
            model: Keras model, or another trackable function of the features of `tf_dataset`.
            folder: An empty or new folder.

        Raises:
            ConfigError: The folder is not empty; or the model is none, has untrained weights, or gives no score per row.
            MissingExtraError: TensorFlow is not installed.
        """
        target = Path(folder)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"{target} is not empty", hint="name another folder")
        try:
            from recsys_cli.serving.export.saved_model import write_saved_model
        except ModuleNotFoundError as error:
            raise MissingExtraError.for_extra("tensorflow", what="tf_export") from error
        write_saved_model(self, model, target)
        return target
