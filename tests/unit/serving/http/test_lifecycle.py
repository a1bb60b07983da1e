"""Kills, saturation, drain, swap, workers and tokens, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from recsys_cli.serving.feedback.log import worker_file
from recsys_cli.serving.feedback.state import Event
from recsys_cli.serving.feedback.table import TableForm, compact
from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.http.service import Service
from recsys_cli.serving.http.settings import Settings
from tests.servers import RECSYS, Running, running, until

BundleOf = Callable[[str], Path]
TOKEN = "a-token-of-enough-length"


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_a_kill_loses_nothing_acknowledged(tmp_path: Path, bundle_of: BundleOf, fsync: str) -> None:
    acknowledged: set[tuple[int, int]] = set()
    rounds = 3 if fsync == "always" else 1
    for number in range(rounds + 1):
        with running(tmp_path, str(bundle_of("ease")), "--fsync", fsync) as server:
            for user in range(4):
                found = {one["item"] for one in server.get(f"/users/{8_000 + user}?k=1000")["history"]}
                assert {item for name, item in acknowledged if name == user} <= found
            if number < rounds:
                _write_until_killed(server, number, acknowledged)
    assert len(acknowledged) > 4
    assert compact(tmp_path / "feedback", TableForm(like=1.0)).rows >= len(acknowledged)


def _write_until_killed(server: Running, number: int, acknowledged: set[tuple[int, int]]) -> None:
    def write(user: int) -> None:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            for count in range(200):
                item = number * 1_000 + count
                try:
                    event = {"user": 8_000 + user, "item": item}
                    done = client.post("/feedback", json={"events": [event]}).status_code == 200
                except httpx.HTTPError:
                    return
                if done:
                    acknowledged.add((user, item))

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, user) for user in range(4)]
        before = len(acknowledged)
        until(lambda: len(acknowledged) > before + 20)
        time.sleep(random.Random(number).random() / 5)
        server.process.kill()
        server.process.wait()
        for writer in writers:
            writer.result()


def _connected(server: Running) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_request_under_way_is_finished_at_sigterm(tmp_path: Path, bundle_of: BundleOf) -> None:
    with running(tmp_path, str(bundle_of("ease"))) as server:
        with _connected(server) as slow:
            body = json.dumps({"user": 1}).encode()
            slow.sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{" % len(body))
            server.get("/v2/health/ready")
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            with pytest.raises(httpx.ConnectError):
                server.get("/v2/health/ready")
            slow.sendall(body[1:])
            assert slow.recv(1_000).startswith(b"HTTP/1.1 200")
        assert server.process.wait(30) == 0


def test_a_swap_under_load_fails_no_request(tmp_path: Path, bundle_of: BundleOf) -> None:
    link = tmp_path / "current"
    link.symlink_to(bundle_of("mf"))
    with running(tmp_path, f"main={link}") as server:
        seen: Counter[tuple[int, str]] = Counter()
        ended = threading.Event()

        def load() -> None:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not ended.is_set():
                    response = client.post("/recommend", json={"user": 1})
                    seen[response.status_code, response.json().get("version", "")] += 1

        with ThreadPoolExecutor(4) as pool:
            users = [pool.submit(load) for _ in range(4)]
            versions = [server.get("/bundles")["bundles"][0]["version"]]
            until(lambda: bool(seen))
            for model in ("ease", "mf"):
                other = tmp_path / "next"
                other.symlink_to(bundle_of(model))
                other.replace(link)
                server.process.send_signal(signal.SIGHUP)
                until(lambda: server.get("/bundles")["bundles"][0]["version"] != versions[-1])
                versions.append(server.get("/bundles")["bundles"][0]["version"])
            time.sleep(1.5)  # the old thread has ended
            ended.set()
            for user in users:
                user.result()
        assert set(seen) == {(200, version) for version in versions}
        _stays_after_damage(server, link, tmp_path)


def test_a_load_that_does_not_end_holds_up_no_later_swap(tmp_path: Path, bundle_of: BundleOf) -> None:
    link = tmp_path / "current"
    link.symlink_to(bundle_of("mf"))
    service = Service(Settings({"main": link}, {"main": 1.0}, feedback=tmp_path / "feedback"), 0)
    fleet, load, ends = service.fleet, service.fleet._load, threading.Event()

    def hangs(name: str, folder: Path) -> Deployment:
        ends.wait()
        return load(name, folder)

    async def swapped() -> None:
        link.unlink()
        link.symlink_to(bundle_of("ease"))
        fleet._load = hangs  # type: ignore[method-assign]
        first = asyncio.create_task(fleet.reload())
        await asyncio.sleep(0.1)
        fleet._load = load  # type: ignore[method-assign]
        await asyncio.wait_for(fleet.reload(), 30)
        assert first.cancelled()
        assert fleet.default.about["model"] == "ease"
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "load"] == [True]
        ends.set()
        await service.close()

    asyncio.run(swapped())


@pytest.mark.parametrize("name", ["manifest.json", "model.json", "weights.safetensors"])
def test_a_swap_to_a_pipe_or_device_is_refused_and_the_next_one_goes_on(
    name: str, tmp_path: Path, bundle_of: BundleOf
) -> None:
    hostile = shutil.copytree(bundle_of("ease"), tmp_path / "hostile")
    (hostile / name).unlink()
    os.mkfifo(hostile / name)
    link = tmp_path / "current"
    link.symlink_to(bundle_of("mf"))
    with running(tmp_path, f"main={link}") as server:
        for folder in (hostile, bundle_of("ease")):
            other = tmp_path / "next"
            other.symlink_to(folder)
            other.replace(link)
            server.process.send_signal(signal.SIGHUP)
            if folder is hostile:
                until(lambda: "is no plain file" in (tmp_path / "stderr.txt").read_text())
        until(lambda: server.get("/bundles")["bundles"][0]["model"] == "ease")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def _swap(server: Running, link: Path, folder: Path) -> None:
    other = link.with_name("next")
    other.symlink_to(folder)
    other.replace(link)
    server.process.send_signal(signal.SIGHUP)


@pytest.mark.slow
def test_killed_workers_start_again_from_the_bundle_loaded_last(tmp_path: Path, bundle_of: BundleOf) -> None:
    """The manifests of the damaged bundles are those of the loaded one."""
    link = tmp_path / "current"
    link.symlink_to(bundle_of("mf"))

    def errors() -> str:
        return (tmp_path / "stderr.txt").read_text()

    def workers() -> set[int]:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        return {int(child) for child in children if _is_worker(int(child))}

    def kill() -> None:
        killed = workers()
        for worker in killed:
            os.kill(worker, signal.SIGKILL)
        until(lambda: len(workers() - killed) == 2)

    with running(tmp_path, f"main={link}", "--workers", "2") as server:
        for name in ("weights.safetensors", "model.json"):
            damaged = shutil.copytree(bundle_of("mf"), tmp_path / name)
            os.truncate(damaged / name, (damaged / name).stat().st_size // 2)
            _swap(server, link, damaged)
            until(lambda name=name: errors().count(f"{name} is damaged: it has ") == 2)  # type: ignore[misc]
        kill()
        assert server.get("/bundles")["bundles"][0]["model"] == "mf"
        kill()
        _swap(server, link, bundle_of("ease"))  # before the workers can reload
        until(lambda: {server.get("/bundles")["bundles"][0]["model"] for _ in range(20)} == {"ease"}, seconds=120)
    assert errors().count("worker ") == errors().count("ended with -9; it is started again") == 4
    assert "Traceback" not in errors()


def _stays_after_damage(server: Running, link: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    link.unlink()
    link.symlink_to(tmp_path / "empty")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: 'result="failed"' in server.ask("GET", "/metrics").text)
    errors = (tmp_path / "stderr.txt").read_text()
    assert "was not reloaded, the old one stays in place: " in errors
    assert "Traceback" not in errors
    assert server.post("/recommend", {"user": 1})["items"]


@pytest.mark.slow
def test_workers_share_feedback_and_end_with_their_parent(tmp_path: Path, bundle_of: BundleOf) -> None:
    with running(tmp_path, str(bundle_of("ease")), "--workers", "2") as server:
        for number in range(5):
            server.post("/feedback", {"events": [{"user": 9004, "item": 10_000 + number}]})
            _seen_by_all(server, number + 1)
        with ThreadPoolExecutor(8) as pool:
            for item in range(10):
                bodies = [{"events": [{"user": 9005, "item": item}]}] * 8
                assert sum(one["written"] for one in pool.map(lambda body: server.post("/feedback", body), bodies)) == 1
        assert len(list((tmp_path / "feedback").glob("*.worker-*.jsonl"))) == 2
        assert "recsys_requests_total" in server.ask("GET", "/metrics").text
        server.ask("DELETE", "/feedback?user=9004")
        _seen_by_all(server, 0)
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        server.process.kill()
        server.process.wait()
        until(lambda: not any(_is_worker(int(child)) for child in children))
    with running(tmp_path, str(bundle_of("ease")), "--workers", "2") as server:
        assert server.get("/users/9004")["num_interactions"] == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def _seen_by_all(server: Running, number: int) -> None:
    """Check that new connections, which reach any worker, see the acknowledged events at once."""
    assert {server.get("/users/9004")["num_interactions"] for _ in range(20)} == {number}


def test_the_log_of_a_killed_worker_that_starts_no_more_is_read_to_its_last_line(
    tmp_path: Path, bundle_of: BundleOf
) -> None:
    (folder := tmp_path / "feedback").mkdir()
    line = Event("put", 1, 9500, 3, 1.0, 5.0).line()
    (folder / "000000.worker-7.jsonl").write_bytes(line + line[:9])
    with running(tmp_path, str(bundle_of("mf"))) as server:
        assert [one["item"] for one in server.get("/users/9500")["history"]] == [3]


@pytest.mark.slow
def test_a_worker_that_cannot_follow_the_others_says_so_and_goes_on(tmp_path: Path, bundle_of: BundleOf) -> None:
    with running(tmp_path, str(bundle_of("ease")), "--workers", "2") as server:
        log = tmp_path / "feedback" / "000000.worker-0.jsonl"
        away = log.rename(tmp_path / "away")
        until(lambda: server.ask("GET", "/v2/health/ready").status_code == 503)
        assert server.post("/recommend", {"user": 1})["items"]
        time.sleep(0.3)
        away.rename(log)
        until(lambda: all(server.ask("GET", "/v2/health/ready").status_code == 200 for _ in range(20)))
        for number in range(5):
            server.post("/feedback", {"events": [{"user": 9004, "item": 10_000 + number}]})
            _seen_by_all(server, number + 1)
    errors = (tmp_path / "stderr.txt").read_text()
    assert errors.count("the feedback of other workers cannot be read") == 1
    assert errors.count("the feedback of other workers is read again") == 1


@pytest.mark.slow
def test_the_next_server_removes_the_metrics_of_killed_ones(tmp_path: Path, bundle_of: BundleOf) -> None:
    (tmp_path / "tmp").mkdir()
    line, env = (str(bundle_of("ease")), "--workers", "2"), {"TMPDIR": str(tmp_path / "tmp")}
    with running(tmp_path, *line, env=env) as server:
        server.process.kill()
        server.process.wait()
    left = list((tmp_path / "tmp").glob("recsys-metrics-*"))
    assert len(left) == 1
    with running(tmp_path, *line, env=env), running(tmp_path / "other", *line, env=env) as server:
        assert not left[0].exists()
        assert len(list((tmp_path / "tmp").glob("recsys-metrics-*"))) == 2
        assert "recsys_requests_under_way" in server.ask("GET", "/metrics").text
    assert not list((tmp_path / "tmp").glob("recsys-metrics-*"))


def test_a_full_disk_stops_feedback_and_no_answer(tmp_path: Path, bundle_of: BundleOf) -> None:
    """A limit of file sizes is the full disk, also for the compaction at the start."""
    feedback = tmp_path / "feedback"
    feedback.mkdir()
    events = [Event("put", 1, 9004, 1), Event("put", 2, 9004, 2), Event("delete", 3, 9004, 1)]
    worker_file(feedback, 0).write_bytes(b"".join(event.line() for event in events))
    command = f"ulimit -f 0; exec {RECSYS} serve {bundle_of('ease')} --port 0 --feedback {feedback} -w {tmp_path}"
    line = ["bash", "-c", command]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        assert first.startswith("http://"), process.stderr.read()
        server = Running(process, first.split()[0], feedback)
        assert server.get("/users/9004")["num_interactions"] == 1
        refused = server.ask("POST", "/feedback", {"events": [{"user": 9004, "item": 3}]})
        assert refused.status_code == 503
        assert str(tmp_path) not in refused.text
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert "the feedback log was not compacted: " in process.stderr.read()


def _is_worker(child: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False


def test_token(tmp_path: Path, bundle_of: BundleOf) -> None:
    line = (str(bundle_of("ease")), "--host", "0.0.0.0")
    with running(tmp_path, *line, env={"RECSYS_TOKEN": TOKEN}, installed=True) as server:
        server.url = server.url.replace("0.0.0.0", "127.0.0.1")
        arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert TOKEN.encode() not in arguments
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer"}):
            assert server.ask("POST", "/recommend", {}, headers=headers).status_code == 401
            assert server.ask("GET", "/metrics", headers=headers).status_code == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert server.ask("POST", "/recommend", {}, headers=headers).status_code == 200
        assert server.ask("GET", "/v2/health/ready").status_code == 200
        assert server.ask("GET", "/").status_code == 200
        document = server.ask("GET", "/openapi.json").json()
        assert document["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}


def test_the_log_has_one_server(tmp_path: Path, bundle_of: BundleOf) -> None:
    line = str(bundle_of("ease"))
    in_use = pytest.raises(AssertionError, match="in use by a running server")
    with running(tmp_path, line), in_use, running(tmp_path, line):
        pass
