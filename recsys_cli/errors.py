"""Errors for the user. The class sets the exit code; the hint names the next step."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

_LISTED = 30
_UNUSABLE = {
    errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.EBUSY,
}  # fmt: skip


def listed(names: Iterable[str], *, shown: Callable[[str], str] = str) -> str:
    """Return names for a message: the first ones, and the number of the others."""
    names = list(names)
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(map(shown, names[:_LISTED])) + more


class RecsysError(Exception):
    """An error for the user to fix, shown without a traceback; the hint is the next step."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @staticmethod
    def of_system(error: OSError) -> RecsysError:
        """Return the error for one of the system; a path that cannot be used is a wrong argument."""
        kind = ConfigError if error.errno in _UNUSABLE else RecsysError
        path = f"{str(error.filename)[:200]}: " if error.filename else ""
        return kind(f"{path}{error.strerror}", hint="check the path, its permissions and the free disk space")


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: of Slurm, Kubernetes and `docker stop`.

    Attributes:
        received: Whether the signal came: in native code, libraries raise a `KeyboardInterrupt` of their own.
    """

    received = False


def interrupt_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of an interrupt: 143 after SIGTERM, else 130."""
    return 143 if Terminated.received or isinstance(error, Terminated) else 130


class ConfigError(RecsysError):
    """Invalid config file, override or command-line argument."""

    exit_code = 2


class UnknownNameError(ConfigError, KeyError):
    """Unknown name in a mapping of results; also a KeyError, as of any mapping."""

    __str__ = Exception.__str__  # KeyError shows the quoted form


class MissingArtifactError(RecsysError):
    """Missing output of an earlier stage."""

    exit_code = 3


class DataError(RecsysError):
    """Invalid or corrupt download or data file."""

    exit_code = 4


class MissingExtraError(RecsysError):
    """Missing optional dependency."""

    exit_code = 5

    @classmethod
    def for_extra(cls, extra: str, *, what: str) -> MissingExtraError:
        """Return the error for a feature's missing extra, with its install command."""
        return cls(f"{what} needs the '{extra}' extra (not installed)", hint=f"pip install 'recsys-cli[{extra}]'")


class TrainingError(RecsysError):
    """Failed training: a non-finite loss, or an incompatible checkpoint."""

    exit_code = 6


class LockedError(RecsysError):
    """An artifact is locked by another process; the message names the process."""

    exit_code = 2


class DiskFullError(RecsysError):
    """The disk is full; the message has the path and the free space."""

    exit_code = 7
