"""`recsys serve`: bundles behind HTTP; and the compaction of the feedback log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recsys_cli.errors import ConfigError, MissingArtifactError, MissingExtraError
from recsys_cli.workspace import Bundle

if TYPE_CHECKING:
    from recsys_cli.serving.http.settings import Settings

TOKEN = "RECSYS_TOKEN"  # noqa: S105 - the name of a variable
_LEAST_TOKEN = 16
_PACKAGES = ("fastapi", "uvicorn", "orjson", "prometheus_client")


def serve(settings: Settings, started: Callable[[str], None], *, insecure: bool = False) -> None:
    """Serve bundles until SIGTERM or SIGINT.

    Args:
        settings: The settings.
        started: Receives the URL once the server takes connections.
        insecure: Allow other machines without a token.

    Raises:
        MissingExtraError: The extra is not installed.
        ConfigError: Other machines would reach the server without a token, or the address is in use.
        MissingArtifactError: A folder is no bundle.
        LockedError: Another server writes the feedback log.
    """
    check_extra()
    if not settings.is_local and settings.token is None and not insecure:
        raise ConfigError(
            f"--host {settings.host} lets other machines in without a token",
            hint=f"set a token in {TOKEN} or with --token-file, or allow everybody with --insecure",
        )
    for folder in settings.bundles.values():
        if not Bundle(folder).exists:
            raise MissingArtifactError(f"{folder} is no bundle: it has no manifest.json", hint="recsys export RUN")
    from recsys_cli.serving.http.server import serve as run

    run(settings, started)


def check_extra() -> None:
    """Check the packages of the extra `serve`.

    Raises:
        MissingExtraError: One is not installed.
    """
    try:
        for package in _PACKAGES:
            __import__(package)
    except ImportError as error:
        raise MissingExtraError.for_extra("serve", what="recsys serve") from error


def named_bundles(given: Sequence[str]) -> dict[str, Path]:
    """Return folders by name, of arguments such as `bundles/mf` or `main=bundles/current`.

    Raises:
        ConfigError: Two bundles have one name.
    """
    bundles: dict[str, Path] = {}
    for one in given:
        name, found, path = one.partition("=")
        folder = Path(path if found else one)
        name = name if found else folder.name or folder.resolve().name
        if not name or "/" in name:
            raise ConfigError(f"{one}: invalid name {name!r}", hint="NAME=FOLDER, such as main=bundles/current")
        if name in bundles:
            raise ConfigError(f"two bundles are named {name}", hint=f"name one of them: other={folder}")
        bundles[name] = folder.absolute()
    return bundles


def shares_of(given: Sequence[str], bundles: Mapping[str, Path], shadow: Sequence[str]) -> dict[str, float]:
    """Return the share of the users by bundle, of arguments such as `a=0.9` or `a=0.9,b=0.1`; equal ones by default.

    Raises:
        ConfigError: A name is unknown, a share is no number from 0 to 1, or the sum is not 1.
    """
    for name in shadow:
        _check_name(name, bundles, "--shadow")
    takers = [name for name in bundles if name not in shadow]
    if not takers:
        raise ConfigError("all bundles are shadows", hint="leave one bundle out of --shadow")
    if not given:
        return dict.fromkeys(takers, 1 / len(takers))
    shares: dict[str, float] = {}
    for part in ",".join(given).split(","):
        name, _, share = part.partition("=")
        _check_name(name, bundles, "--share")
        try:
            shares[name] = float(share)
        except ValueError:
            raise ConfigError(f"--share {part}: no number", hint="--share a=0.9,b=0.1") from None
        if name in shadow or not 0 <= shares[name] <= 1:
            raise ConfigError(f"--share {part}: from 0 to 1, for no shadow", hint="--share a=0.9,b=0.1")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ConfigError(f"the shares add up to {sum(shares.values()):g}", hint="--share a=0.9,b=0.1")
    return shares


def _check_name(name: str, bundles: Mapping[str, Path], option: str) -> None:
    if name not in bundles:
        raise ConfigError(f"{option} {name}: no such bundle", hint=f"the bundles are {', '.join(bundles)}")


def origins_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return checked origins, as browsers send them.

    Raises:
        ConfigError: A text is no origin.
    """
    for one in given:
        if not re.fullmatch(r"https?://[a-z0-9.:\[\]-]+", one):
            raise ConfigError(
                f"--cors {one}: no origin", hint="scheme, host and port in lower case: https://shop.example"
            )
    return tuple(given)


def read_token(path: Path | None) -> str | None:
    """Return the token of a file, or of the environment; None without one.

    Raises:
        ConfigError: The file cannot be read, or the token is short.
    """
    try:
        token = (path.read_text(encoding="utf-8") if path is not None else os.environ.get(TOKEN, "")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {path}: {error}", hint="name a readable file with a token") from error
    if not token and path is None:
        return None
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token needs {_LEAST_TOKEN} or more ASCII characters", hint="openssl rand -hex 32 makes one"
        )
    return token
