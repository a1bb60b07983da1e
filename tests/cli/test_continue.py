"""`recsys train --continue RUN` on a command line: more table rows, without loss of the weights."""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import load_file

from tests.cli.conftest import Recsys


def test_run_continues_on_a_grown_table(recsys: Recsys, ratings: Path, tmp_path: Path) -> None:
    recsys("-q", "init", ratings, "--task", "label")
    recsys("-q", "etl", "ratings.yaml")
    first = recsys("--json", "train", "train.epochs=2", "train.device=cpu").json["run"]
    new = [f"n{row % 7},i{row % 20},{5 if row % 2 else 2},{2_000 + row},x" for row in range(400)]
    ratings.write_text(ratings.read_text() + "\n".join(new) + "\n")
    assert recsys("-q", "etl").code == 0
    answer = recsys("train", "--continue", first[:15])
    assert answer.code == 0
    told = " ".join((answer.out + answer.err).split())
    assert f"continuing {first}: " in told
    assert "user_id keeps 33 rows and gets 7 new ones" in told
    assert recsys("train", "--continue", first).out.count("up to date") == 1
    second = recsys("--json", "evaluate").json["run"]  # the config that was used last is that of the new run
    assert second != first
    tables = [
        load_file(tmp_path / "workspace" / "runs" / run / "checkpoints" / "best.safetensors")[
            "model.embeddings.tables.of_user_id.weight"
        ]
        for run in (first, second)
    ]
    assert [len(table) for table in tables] == [33, 40]


def test_missing_run_lists_the_existing_ones(recsys: Recsys, ratings: Path) -> None:
    recsys("-q", "init", ratings, "--task", "label")
    recsys("-q", "etl", "ratings.yaml")
    answer = recsys("train", "--continue", "nope")
    assert answer.code == 3
    assert "no run 'nope' in workspace; there are: none yet" in " ".join(answer.err.split())
