"""Job files: against the published schemas, with hostile names, and on a real Slurm."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from recsys_cli.workspace import Workspace
from tests import slurm
from tests.checkerboard import losses_of, same_weights
from tests.cli.conftest import copied
from tests.cli.test_gang import variables_of
from tests.servers import until

HOSTILE = """a "b" 'c' $(touch pwned) `touch pwned` $(HOME) on # x: y\n#SBATCH --comment=x"""
"""Name of a folder."""

_AMOUNTS = {"cpu": int, "nvidia.com/gpu": int}
_RESOURCES = {"limits": _AMOUNTS, "requests": _AMOUNTS}
_CONTAINER = {
    "name!": str, "image": str, "workingDir": str, "command": [str], "args": [str], "resources": _RESOURCES,
    "env": [{"name!": str, "value": str}], "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
}  # fmt: skip
_POD = {
    "restartPolicy": str, "containers!": [_CONTAINER],
    "volumes": [{"name!": str, "persistentVolumeClaim": {"claimName!": str, "readOnly": bool}}],
}  # fmt: skip
_META = {"name": str, "labels": dict, "annotations": dict}
_TEMPLATE = {"metadata": _META, "spec": _POD}
_OBJECT = {"apiVersion!": str, "kind!": str, "metadata!": _META}
_REPLICATED = {
    "name!": str, "groupName": str, "replicas": int,
    "template!": {"metadata": _META, "spec": {
        "activeDeadlineSeconds": int, "backoffLimit": int, "completions": int, "parallelism": int, "template!": _TEMPLATE,
    }},
}  # fmt: skip
_RULE = {"action!": str, "onJobFailureReasons": [str], "name": str, "targetReplicatedJobs": [str]}
_JOB_SET = {
    "failurePolicy": {"maxRestarts": int, "restartStrategy": str, "rules": [_RULE]}, "replicatedJobs": [_REPLICATED],
}  # fmt: skip
_TRAINER = {
    "image": str, "command": [str], "args": [str], "env": [dict], "numNodes": int, "numProcPerNode": int,
    "resourcesPerNode": _RESOURCES,
}  # fmt: skip
_GROUP = {"rayStartParams!": dict, "template!": _TEMPLATE}
_WORKERS = {"groupName!": str, "replicas": int, "minReplicas!": int, "maxReplicas!": int, "numOfHosts": int, **_GROUP}
SCHEMAS: dict[str, Any] = {
    "TrainingRuntime": {**_OBJECT, "spec": {
        "mlPolicy": {"numNodes": int, "torch": {}}, "podGroupPolicy": dict, "template": {"metadata": _META, "spec": _JOB_SET},
    }},
    "TrainJob": {**_OBJECT, "spec": {
        "runtimeRef!": {"name!": str, "apiGroup": str, "kind": str}, "trainer": _TRAINER, "suspend": bool, "managedBy": str,
    }},
    "RayJob": {**_OBJECT, "spec": {
        "entrypoint": str, "backoffLimit": int, "activeDeadlineSeconds": int, "shutdownAfterJobFinishes": bool,
        "submissionMode": str, "runtimeEnvYAML": str, "ttlSecondsAfterFinished": int, "suspend": bool,
        "rayClusterSpec": {"rayVersion": str, "headGroupSpec!": _GROUP, "workerGroupSpecs": [_WORKERS]},
    }},
}  # fmt: skip
"""Fields with their types, of the custom resources of kubeflow/trainer (2.3; volumes of TrainJobs differ by release), jobset
and kuberay (1.4), without those of pods that nobody needs here; `!` marks a required one."""


def mistakes(value: Any, schema: Any, path: str = "") -> list[str]:
    """Return unknown, missing and mistyped fields."""
    if isinstance(schema, list):
        wrong = [] if isinstance(value, list) else [f"{path} is no list"]
        return wrong or [one for item in value for one in mistakes(item, schema[0], f"{path}[]")]
    if isinstance(schema, type):
        fits = isinstance(value, schema) and (schema is bool or not isinstance(value, bool))
        return [] if fits else [f"{path} is no {schema.__name__}: {value!r}"]
    if not isinstance(value, dict):
        return [f"{path} is no object"]
    known = {name.rstrip("!"): inner for name, inner in schema.items()}
    wrong = [f"{path}.{name} is missing" for name in schema if name.endswith("!") and name[:-1] not in value]
    wrong += [f"{path}.{name} is unknown" for name in value.keys() - known.keys()]
    return wrong + [
        one for name in value.keys() & known.keys() for one in mistakes(value[name], known[name], f"{path}.{name}")
    ]


@pytest.mark.parametrize("size", [[], ["--nodes", 2, "--gpus", 4, "--minutes", 90], ["--nodes", 3, "--processes", 2]])
@pytest.mark.parametrize("scheduler", ["kubernetes", "ray"])
def test_a_job_of_pods_fits_the_published_schema(recsys, prepared, scheduler, size):
    answer = recsys("submit", "ratings.yaml", f"--{scheduler}", "--image", "example.org/recsys:1", *size)
    assert answer.code == 0, answer.err
    text = Path(f"ratings.{scheduler}").read_text()
    assert text in answer.out
    documents = list(yaml.safe_load_all(text))
    assert [one["kind"] for one in documents] == (
        ["TrainingRuntime", "TrainJob"] if scheduler == "kubernetes" else ["RayJob"]
    )
    for one in documents:
        assert mistakes(one, SCHEMAS[one["kind"]]) == []
        assert one["metadata"]["name"] == "recsys-ratings"
    broken = {**documents[-1], "spec": {"trainers": 1, "entrypoint": 1}}
    assert len(mistakes(broken, SCHEMAS[broken["kind"]])) > 1


def test_hostile_names_are_arguments_and_nothing_else(recsys, prepared, tmp_path, monkeypatch):
    """Kubernetes replaces $(HOME) in commands, and $$( by $(."""
    folder = copied(tmp_path, tmp_path / HOSTILE)
    monkeypatch.chdir(folder)
    name = "x y;touch pwned.yaml"
    Path("ratings.yaml").rename(name)
    override = "model.name=fm"
    for scheduler in ("kubernetes", "ray", "slurm"):
        answer = recsys("submit", name, override, f"--{scheduler}", "--image", "a'b", "--out", scheduler, "--nodes", 2)
        assert answer.code == 0, answer.err
    expected = ["-m", "recsys_cli", "-w", "workspace", "train", "--", name, override]
    runtime, job = yaml.safe_load_all(Path("kubernetes").read_text())
    assert mistakes(runtime, SCHEMAS["TrainingRuntime"]) + mistakes(job, SCHEMAS["TrainJob"]) == []
    container = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert unexpanded(container["workingDir"]) == str(folder)
    assert [unexpanded(text) for text in job["spec"]["trainer"]["command"]][-len(expected) :] == expected
    spec = yaml.safe_load(Path("ray").read_text())["spec"]
    assert spec["entrypoint"] == "python -m recsys_cli.executors.ray_gang"
    (variable,) = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert json.loads(unexpanded(variable["value"]))["torchrun"][-len(expected) :] == expected
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool, does in (("scontrol", "echo node1"), ("srun", 'printf "%s\\0" "$PWD" "$@" > "$SEEN"')):
        (tools / tool).write_text(f"#!/bin/bash\n{does}\n")
        (tools / tool).chmod(0o755)
    facts = {
        "SLURM_JOB_NODELIST": "node1",
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "1",
        "SEEN": str(tmp_path / "seen"),
    }
    environment = {**os.environ, **facts, "PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run(["bash", str(Path("slurm").absolute())], cwd=tmp_path, env=environment, check=True)
    seen = (tmp_path / "seen").read_text().split("\0")[:-1]
    assert seen[0] == str(folder)
    assert seen[-len(expected) :] == expected
    assert sys.executable in seen
    assert not list(tmp_path.rglob("pwned"))


def unexpanded(text: str) -> str:
    """Undo what Kubernetes undoes; a reference is an error."""
    assert "$(" not in text.replace("$$(", "")
    return text.replace("$$(", "$(")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (["ratings.yaml"], 2, "name one scheduler"),
        (["ratings.yaml", "--slurm", "--ray"], 2, "name one scheduler"),
        (["ratings.yaml", "--ray"], 2, "--ray needs an --image"),
        (
            ["ratings.yaml", "--ray", "--image", "x", "-w", "s3://bucket/shop"],
            2,
            "needs config and workspace in one folder",
        ),
        (["ratings.yaml", "--slurm", "--nodes", "2", "-w", "s3://bucket/shop"], 2, "share one mirror of the workspace"),
        (["ratings.yaml", "model.name=ease", "--slurm", "--nodes", "2"], 2, "ease trains in one process"),
        (["ratings.yaml", "model.name=auto", "--slurm", "--gpus", "2"], 2, "auto trains in one process"),
        (["ratings.yaml", "split.valid=0.3", "--slurm"], 3, "is not prepared"),
        (["ratings.yaml", "--kubernetes", "--image", "x", "--run"], 2, "kubectl is not installed here"),
    ],
)
def test_a_job_that_would_fail_is_refused(recsys, prepared, monkeypatch, line, code, said):
    monkeypatch.setenv("PATH", "/nowhere")
    answer = recsys("submit", *line)
    assert (answer.code, said in answer.err) == (code, True), answer.err


def test_an_edited_job_file_is_kept(recsys, prepared):
    for _ in range(2):  # an equal file is no conflict
        assert recsys("submit", "ratings.yaml", "--slurm").code == 0
    Path("ratings.slurm").write_text("#!/bin/bash\n")
    answer = recsys("submit", "ratings.yaml", "--slurm")
    assert (answer.code, "ratings.slurm already exists" in answer.err) == (2, True)
    assert recsys("submit", "ratings.yaml", "--slurm", "--force").code == 0
    assert (
        json.loads(recsys("submit", "ratings.yaml", "--slurm", "--json").out)["next"]
        == "sbatch --parsable ratings.slurm"
    )


@pytest.mark.slow
def test_slurm_finishes_a_training_whose_rank_is_killed_and_whose_job_is_requeued(
    recsys, stations, tmp_path, tmp_path_factory, monkeypatch
):
    """Three jobs in folders with hostile names: undisturbed, with the death of a rank, and requeued, as after that of a node."""
    runs = {}
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        for what in ("whole", "rank", "requeue"):
            folder = copied(stations["prepared"], tmp_path / what / HOSTILE)
            monkeypatch.chdir(folder)
            options = ["train.epochs=15", "train.early_stopping=null", "train.checkpoint_steps=5"]
            line = ["--json", "submit", "ratings.yaml", *options, "--slurm", "--processes", 2, "--minutes", 5, "--run"]
            answer = recsys(*line, **cluster.environment)
            assert answer.code == 0, answer.err
            job = answer.json["submitted"]
            if what != "whole":
                until(partial(_has_steps, folder), seconds=120, said=lambda folder=folder: str(folder))
            if what == "rank":
                wanted = {"SLURM_JOB_ID": job, "RANK": "1"}.items()
                (rank,) = [one for one in psutil.process_iter() if wanted <= variables_of(one).items()]
                rank.kill()
            if what == "requeue":
                cluster.call("scontrol", "requeue", job)
                cluster.wait(job, "PENDING")
                cluster.call("scontrol", "update", f"job={job}", "StartTime=now")  # by default after two minutes
            cluster.wait(job, "COMPLETED", "FAILED")
            log = (folder / f"slurm-{job}.out").read_text()
            assert cluster.state(job) == "COMPLETED", log
            assert ("resuming" in log) == (what != "whole")
            (runs[what],) = Workspace(folder / "workspace").runs()
            assert runs[what].exists
    for what in ("rank", "requeue"):
        assert losses_of(runs[what]) == losses_of(runs["whole"])
        assert same_weights(runs[what], runs["whole"])
        assert same_weights(runs[what], runs["whole"], "best")
    assert not list(tmp_path.rglob("pwned"))


def test_a_job_that_slurm_refuses_is_an_error(recsys, prepared, tmp_path_factory):
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        answer = recsys("submit", "ratings.yaml", "--slurm", "--minutes", 100, "--run", **cluster.environment)
    assert (answer.code, "sbatch: " in answer.err) == (1, True), answer.err


def _has_steps(folder: Path) -> bool:
    return any(path.read_bytes().count(b"\n") > 20 for path in folder.glob("workspace/runs/*/metrics.jsonl"))
