"""Every error a user can meet. The class decides the exit code; the hint says what to run next."""

from __future__ import annotations


class RecsysError(Exception):
    """Anything that is the user's to mend; the command line shows it as one message without a traceback.

    Args:
        message: What is wrong and where (file, line, key).
        hint: What to do or run next, as a sentence or a command.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(RecsysError):
    """The config file, an override or a command line argument is wrong."""

    exit_code = 2


class MissingArtifactError(RecsysError):
    """A stage needs something that an earlier stage has not made yet."""

    exit_code = 3


class DataError(RecsysError):
    """A download or a data file is not what it should be."""

    exit_code = 4


class MissingExtraError(RecsysError):
    """An optional dependency is needed and not installed."""

    exit_code = 5

    @classmethod
    def for_extra(cls, extra: str, *, what: str) -> MissingExtraError:
        """Name the exact install command of `extra`, which `what` needs."""
        return cls(
            f"{what} needs the '{extra}' extra, which is not installed", hint=f"pip install 'recsys-cli[{extra}]'"
        )


class TrainingError(RecsysError):
    """Training cannot go on: the loss is not finite, or a checkpoint does not fit."""

    exit_code = 6


class LockedError(RecsysError):
    """Another process works on what a command needs; the message names it."""

    exit_code = 2


class DiskFullError(RecsysError):
    """There is no space for what is to be written; the message names the path and the free space."""
