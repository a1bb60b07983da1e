"""Required releases of TorchRec and FBGEMM, from package metadata, without their import."""

from __future__ import annotations

from importlib import metadata
from typing import Literal

from recsys_cli.errors import ConfigError, MissingExtraError
from recsys_cli.packages import installed

DeviceType = Literal["cpu", "cuda"]
_INSTALL = "pip install 'recsys-cli[{extra}]' && pip install --no-deps 'torchrec==1.{minor}.*'"
_EXTRA = {"cpu": "torchrec", "cuda": "torchrec-gpu"}
_FBGEMM = {"cpu": "fbgemm-gpu-cpu", "cuda": "fbgemm-gpu"}


def require_torchrec(rule: str, device: str) -> None:
    """Check the requirements of sharded embedding tables.

    Raises:
        MissingExtraError: TorchRec is not installed, or for another torch; the hint has the install command.
        ConfigError: FBGEMM has no such optimizer for this device.
    """
    if rule == "adam" and device == "cpu":
        raise ConfigError(
            "model.embedding.placement=sharded has no Adam on CPUs: FBGEMM fuses it into the backward pass on GPUs only",
            hint="set train.embedding_optimizer=adagrad or sgd, or model.embedding.placement=host",
        )
    minor = minor_for_torch()
    hint = _INSTALL.format(extra=_EXTRA[device], minor=minor)
    versions = torchrec_versions()
    for name in ("torchrec", _FBGEMM[device]):
        version = versions[name]
        if version is None:
            raise MissingExtraError(
                f"model.embedding.placement=sharded needs {name}, which is not installed", hint=hint
            )
        if not version.startswith(f"1.{minor}."):
            raise MissingExtraError(
                f"{name} {version} does not go with torch {metadata.version('torch')}; it needs 1.{minor}", hint=hint
            )


def minor_for_torch() -> int:
    """Return X of FBGEMM 1.X and TorchRec 1.X for the installed torch 2.(X + 5); other combinations may crash."""
    return int(metadata.version("torch").split(".")[1]) - 5


def torchrec_versions() -> dict[str, str | None]:
    """Return the version of each package required by sharding; None if not installed."""
    return {name: installed(name) for name in ("torchrec", *_FBGEMM.values(), "tensordict", "pyre-extensions")}
