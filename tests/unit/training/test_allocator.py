from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from recsys_cli.training.hardware import keep_freed_memory

PROGRAM = """
import resource, sys
import torch
from recsys_cli.training.hardware import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(sorted(faults() for _ in range(21))[10])
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_a_tensor_takes_the_pages_of_those_before_it() -> None:
    """64 MiB are 16,384 pages, or fewer faults where the kernel gives large pages.

    The first tensors need new pages, and so does a later one whose place something small has taken; so the median is looked at.
    """
    assert faults("keep") < 16
    assert faults("leave") >= 32


@pytest.mark.parametrize("error", [None, OSError, TypeError])
def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None) -> None:
    loaded: list[object] = []

    def load(name: object) -> object:
        loaded.append(name)
        if error is not None:
            raise error
        return object()

    monkeypatch.setattr(ctypes, "CDLL", load)
    keep_freed_memory()
    assert loaded == [None]  # the library of the process, without mallopt
