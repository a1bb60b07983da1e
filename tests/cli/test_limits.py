"""Invalid sizes and paths: an error names them before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_cli.cli.boundary import explain
from recsys_cli.cpu import cores
from recsys_cli.errors import ConfigError
from recsys_cli.training.distributed.environment import Member
from recsys_cli.training.hardware import device
from tests.cli.conftest import Recsys

DEMO = str(Path(__file__).resolve().parents[2] / "configs" / "demo.yaml")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("evaluate.k=[999999999999]", "evaluate.k"),
        ("train.monitor=ndcg@999999999", "ndcg@999999999"),
        ("tune.space={train.learning_rate: {low: 1e-5, high: 1, step: 1e-300}}", "step 1e-300"),
    ],
)
def test_invalid_size_is_a_config_error(recsys: Recsys, override: str, named: str) -> None:
    answer = recsys("validate", DEMO, override)
    assert answer.code == 2
    assert named in answer.err


def test_processes_are_bounded_by_the_cores() -> None:
    most = max(8, 4 * cores())
    assert device("cpu", Member(0, most, 0, most)).type == "cpu"
    with pytest.raises(ConfigError, match=f"{most + 1} processes on a machine with {cores()} cores"):
        device("cpu", Member(0, most + 1, 0, most + 1))


@pytest.mark.parametrize(
    "error",
    [MemoryError("Unable to allocate 513. TiB"), RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0")],
    ids=["numpy", "torch"],
)
def test_too_little_memory_is_said(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(error, [], None) == 6
    shown = capsys.readouterr().err
    assert shown.startswith("error: not enough memory: ")
    assert "recsys train --plan" in shown


def test_invalid_workspace_is_reported(recsys: Recsys, tmp_path: Path) -> None:
    taken, dangling = tmp_path / "file", tmp_path / "link"
    taken.write_text("here is no workspace")
    dangling.symlink_to(tmp_path / "nowhere")
    for path, reason in ((taken, "not a folder"), (dangling, "broken link"), ("x" * 300, "too long")):
        for command in ("status", "etl"):
            answer = recsys(command, "--workspace", str(path))
            assert answer.code == 2
            assert reason in answer.err
    assert recsys("status", "--workspace", str(tmp_path / "new")).code == 0


def test_unreadable_header_is_reported(recsys: Recsys) -> None:
    Path("long.csv").write_text("user,item,rating,time," + "x" * 200_000 + "\n1,2,3,4,5\n")
    ops = "[{op: Categorify, columns: [user, item]}]"
    Path("long.yaml").write_text(
        "dataset: {name: files, interactions: long.csv}\n"
        f"features: {{user: user, item: item, label: rating, ops: {ops}}}\n"
    )
    answer = recsys("etl", "long.yaml")
    assert answer.code == 4
    assert "long.csv:1: " in answer.err
