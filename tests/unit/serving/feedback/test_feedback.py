"""The feedback log survives kills, full disks and torn writes, and forgets deleted users."""

from __future__ import annotations

import errno
import os
import threading
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.errors import ConfigError, DataError, LockedError, RecsysError
from recsys_cli.serving.feedback.log import (
    FeedbackLog,
    Tail,
    compacted_file,
    current_files,
    exclusive,
    replay,
    worker_file,
)
from recsys_cli.serving.feedback.state import COMMIT, Event, FeedbackState, lines_of, parse
from recsys_cli.serving.feedback.table import TableForm, compact, rewrite

VALUES = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
IDS = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)


def append(log: FeedbackLog, *events: Event) -> None:
    """Append events, and wait for the acknowledgment."""
    finished, errors = threading.Event(), []
    log.append(b"".join(event.line() for event in events), lambda error: (errors.append(error), finished.set()))
    assert finished.wait(10)
    if errors[0] is not None:
        raise errors[0]


def put(at: int, user: object = 1, item: object = 2, **values: float) -> Event:
    return Event("put", at, user, item, values.get("label", 1.0), values.get("time", 5.0))  # type: ignore[arg-type]


def upsert(at: int, item: object, **features: object) -> Event:
    return Event("upsert", at, item=item, features=features)  # type: ignore[arg-type]


@given(user=IDS, item=IDS, label=st.floats(allow_nan=False, allow_infinity=False))
def test_events_survive_their_line(user: int | str, item: int | str, label: float) -> None:
    event = put(7, user, item, label=label)
    line = event.line()
    assert line.count(b"\n") == 1
    assert list(lines_of(line)) == [event]


@given(features=st.dictionaries(st.text(max_size=5), VALUES | st.lists(VALUES, max_size=3)), title=st.text(max_size=9))
def test_upserts_survive_their_line(features: dict[str, object], title: str) -> None:
    event = Event("upsert", 7, item=1, title=title, features=features)
    assert list(lines_of(event.line())) == [event]


@given(data=st.data())
def test_a_changed_byte_damages_the_line(data: st.DataObject) -> None:
    line = bytearray(put(7).line()[:-1])
    place = data.draw(st.integers(0, len(line) - 1))
    line[place] ^= data.draw(st.integers(1, 255))
    assert parse(bytes(line)) is None


@given(data=st.data())
def test_the_order_of_arrival_does_not_matter(data: st.DataObject) -> None:
    events = [put(1), put(2, label=0.0), Event("delete", 3, 1), put(4, item=9), Event("delete", 5, 1, 9), put(6, 2),
              Event("hide", 7, item=4), Event("show", 8, item=4), Event("hide", 9, item="5"),
              upsert(10, 4, year=1), upsert(11, 4, year=2), upsert(12, 5), Event("upsert", 13, item=5)]  # fmt: skip
    state = FeedbackState()
    for event in data.draw(st.permutations(events)):
        state.apply(event)
    assert state.of_user("1") == []
    assert state.of_user("2") == [put(6, 2)]
    assert state.hidden == ("5",)
    assert state.upserts == {"4": upsert(11, 4, year=2)}
    assert state.num_upserts == 4


@given(events=st.permutations([put(3, item=1, time=50.0), put(1, item=2, time=70.0), put(2, item=3, time=60.0)]))
def test_the_feedback_of_a_user_is_ordered_by_its_times(events: list[Event]) -> None:
    state = FeedbackState()
    for event in events:
        state.apply(event)
    assert [event.item for event in state.of_user(1)] == [1, 3, 2]


def test_a_torn_tail_is_cut_on_open(tmp_path: Path) -> None:
    path = tmp_path / "000000.worker-0.jsonl"
    sound = put(1).line()
    path.write_bytes(sound + put(2, 2).line()[:-10])
    state = FeedbackState()
    log = FeedbackLog(path, fsync="always", state=state)
    append(log, put(3, 3))
    log.close()
    assert path.read_bytes() == sound + COMMIT + put(3, 3).line() + COMMIT
    assert state.of_user(1)
    assert not state.of_user(2)


def test_damage_before_the_tail_is_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "000000.worker-0.jsonl"
    path.write_bytes(put(1).line() + b"damaged\n" + put(2, 2).line())
    state = FeedbackState()
    log = FeedbackLog(path, fsync="never", state=state)
    log.close()
    assert (log.num_damaged, state.num_events) == (1, 2)


def test_complete_lines_stay_though_they_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "000000.worker-0.jsonl"
    content = put(1).line() + put(2, 2).line().replace(b"2", b"3", 1)
    path.write_bytes(content)
    log = FeedbackLog(path, fsync="never", state=FeedbackState())
    log.close()
    assert (log.num_damaged, path.read_bytes()) == (1, content + COMMIT)
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    with pytest.raises(DataError, match="all of its 2 lines are damaged"):
        FeedbackLog(path, fsync="never", state=FeedbackState())
    assert path.read_bytes() == content.replace(b"\n", b"\r\n")


def test_one_writer_per_file(tmp_path: Path) -> None:
    path = tmp_path / "000000.worker-0.jsonl"
    log = FeedbackLog(path, fsync="never", state=FeedbackState())
    with pytest.raises(LockedError):
        FeedbackLog(path, fsync="never", state=FeedbackState())
    log.close()


def test_concurrent_appends_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = []
    monkeypatch.setattr(os, "fdatasync", lambda file: (time.sleep(0.02), flushes.append(file)))
    log = FeedbackLog(tmp_path / "000000.worker-0.jsonl", fsync="always", state=FeedbackState())
    left = threading.Semaphore(0)
    for at in range(100):
        log.append(put(at, at).line(), lambda _: left.release())
    for _ in range(100):
        assert left.acquire(timeout=10)
    log.close()
    assert 1 <= len(flushes) < 50


def test_a_full_disk_refuses_the_event_and_keeps_the_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "000000.worker-0.jsonl"
    log = FeedbackLog(path, fsync="never", state=FeedbackState())
    append(log, put(1))
    write = os.write

    def half(file: int, content: bytes) -> int:
        if len(content) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content[:-10])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RecsysError, match="No space left"):
        append(log, put(2, 2))
    monkeypatch.undo()
    append(log, put(3, 3))
    log.close()
    assert path.read_bytes() == put(1).line() + COMMIT + put(3, 3).line() + COMMIT


def test_a_failed_flush_ends_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FeedbackLog(tmp_path / "000000.worker-0.jsonl", fsync="always", state=FeedbackState())

    def fail(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(RecsysError, match="Input/output"):
        append(log, put(1))
    monkeypatch.undo()
    with pytest.raises(RecsysError, match="Input/output"):
        append(log, put(2))
    log.close()


_PUT = '"kind":"put","user":1,"item":2,'


@pytest.mark.parametrize(
    "values",
    [
        _PUT + '"at":"1"', _PUT + '"at":true', _PUT + '"at":1.5', _PUT + '"at":-1', _PUT + '"at":1,"user":[1]',
        _PUT + '"at":1,"user":true',
        _PUT + '"at":1,"user":null', _PUT + '"at":1,"item":{}', _PUT + '"at":1,"label":"5"', _PUT + '"at":1,"label":NaN',
        _PUT + '"at":1,"time":"now"', _PUT + '"at":1,"time":1e999', _PUT + '"at":1,"time":1' + "0" * 400,
        _PUT + r'"at":1,"user":"\ud800"', _PUT + '"at":1,"kind":"other"', _PUT + '"at":1,"kind":["put"]',
        '"kind":"put","at":1,"item":2', '"kind":"put","at":1,"user":1', '"kind":"delete","at":1,"item":1',
        '"kind":"hide","at":1,"user":1', '"kind":"upsert","at":1,"item":1,"features":[1]',
        '"kind":"upsert","at":1,"item":1,"title":5',
        '"kind":"upsert","at":1,"item":1,"features":' + "[" * 100_000 + "]" * 100_000,
    ],
)  # fmt: skip
def test_lines_with_wrong_types_are_damaged_whatever_their_checksum(values: str, tmp_path: Path) -> None:
    plain = ("{" + values).encode()
    line = plain + b',"crc":"' + f'{zlib.crc32(plain):08x}"}}'.encode()
    path = worker_file(tmp_path, 0)
    path.write_bytes(put(1).line() + line + b"\n" + put(2, 2).line())
    done = compact(tmp_path)
    assert (done.rows, done.damaged) == (2, 1)


def test_a_tail_goes_on_with_the_other_files_after_a_failure(tmp_path: Path) -> None:
    own, gone, other = (worker_file(tmp_path, worker) for worker in range(3))
    for path in (own, gone, other):
        path.touch()
    state = FeedbackState()
    tail = Tail(tmp_path, own=own, state=state)
    gone.unlink()
    other.write_bytes(put(1).line() + COMMIT)
    with pytest.raises(FileNotFoundError):
        tail.poll()
    assert state.num_events == 1
    gone.write_bytes(put(2, 2).line() + COMMIT)
    assert tail.poll() == 1


def test_a_tail_reads_committed_lines_only(tmp_path: Path) -> None:
    own, other = worker_file(tmp_path, 0), worker_file(tmp_path, 1)
    for path in (own, other):
        path.touch()
    state = FeedbackState()
    tail = Tail(tmp_path, own=own, state=state)
    line = put(1).line()
    other.write_bytes(line + COMMIT + line + line[:10])
    assert tail.poll() == 1
    with other.open("ab") as file:
        file.write(line[10:])
    assert tail.poll() == 0
    with other.open("ab") as file:
        file.write(COMMIT)
    assert tail.poll() == 2
    assert tail.poll() == 0


@pytest.mark.parametrize("failing", ["write", "fdatasync"])
def test_other_workers_never_see_the_lines_of_a_failed_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path, state = worker_file(tmp_path, 1), FeedbackState()
    worker_file(tmp_path, 0).touch()
    log = FeedbackLog(path, fsync="always", state=FeedbackState())
    append(log, put(1))
    tail = Tail(tmp_path, own=worker_file(tmp_path, 0), state=state)
    assert tail.poll() == 1
    write, seen = os.write, []

    def half(file: int, content: bytes) -> int:
        if content == put(3, 3).line():
            seen.append(tail.poll())
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content[: len(put(2, 2).line())])

    def fail(file: int) -> None:
        seen.append(tail.poll())
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, failing, half if failing == "write" else fail)
    with pytest.raises(RecsysError):
        append(log, put(2, 2), put(3, 3))
    monkeypatch.undo()
    assert [*seen, tail.poll()] == [0, 0]
    if failing == "write":
        append(log, put(4, 4), put(5, 5))  # longer than what was cut
        assert tail.poll() == 2
        assert [event.user for user in (2, 3, 4, 5) for event in state.of_user(user)] == [4, 5]
    log.close()


def test_lines_of_an_earlier_writer_are_committed_when_the_file_is_opened(tmp_path: Path) -> None:
    write(path := worker_file(tmp_path, 1), put(1), put(2, 2))
    worker_file(tmp_path, 0).touch()
    tail = Tail(tmp_path, own=worker_file(tmp_path, 0), state=FeedbackState())
    FeedbackLog(path, fsync="never", state=FeedbackState()).close()
    assert tail.poll() == 2


def write(path: Path, *events: Event) -> None:
    path.write_bytes(b"".join(event.line() for event in events))


def test_compaction_forgets_deleted_users_in_all_files(tmp_path: Path) -> None:
    write(worker_file(tmp_path, 0), put(1, "secret"), put(2, "kept", time=20.7), put(3, "kept", label=5.0, time=30.0))
    write(worker_file(tmp_path, 1), put(4, "secret", 8), Event("delete", 5, "secret"), put(6, "other", 3, time=10.0))
    done = compact(tmp_path, TableForm(("userId", "movieId", "rating", "timestamp")))
    assert done.table.read_text() == "userId,movieId,rating,timestamp\nother,3,1,10\nkept,2,5,30\n"
    assert (done.rows, done.removed, done.damaged) == (2, 4, 0)
    assert current_files(tmp_path) == [compacted_file(tmp_path, 1)]
    assert not [path for path in tmp_path.iterdir() if b"secret" in path.read_bytes()]


def test_compaction_keeps_the_latest_upsert_and_the_table_has_none(tmp_path: Path) -> None:
    write(worker_file(tmp_path, 0), upsert(1, 7, year=1), upsert(4, 8, year=4), Event("upsert", 5, item=8))
    write(worker_file(tmp_path, 1), put(2), upsert(3, 7, year=3))
    done = compact(tmp_path)
    assert (done.rows, done.removed) == (1, 3)
    state = FeedbackState()
    replay(compacted_file(tmp_path, 1), state)
    assert state.upserts == {"7": upsert(3, 7, year=3)}


def test_a_killed_compaction_brings_nobody_back(tmp_path: Path) -> None:
    write(worker_file(tmp_path, 0), put(1, "secret"), put(2, "kept"), Event("delete", 3, "secret"))
    old = worker_file(tmp_path, 0).read_bytes()
    with exclusive(tmp_path):
        rewrite(tmp_path)
    (tmp_path / "000000.worker-0.jsonl").write_bytes(old)  # as if the kill came before its removal
    (tmp_path / ".000002.compacted.jsonl.partial").write_bytes(b"half")
    assert compact(tmp_path).rows == 1
    assert not (tmp_path / "000000.worker-0.jsonl").exists()


def test_a_running_server_keeps_its_log(tmp_path: Path) -> None:
    events = put(1), Event("delete", 2, 1), put(3, 2)
    worker_file(tmp_path, 0).write_bytes(b"".join(event.line() for event in events) + COMMIT)
    with exclusive(tmp_path):
        done = compact(tmp_path)
    assert (done.rows, done.removed) == (1, None)
    assert current_files(tmp_path) == [worker_file(tmp_path, 0)]


def test_likes_without_a_label_get_the_label_of_likes(tmp_path: Path) -> None:
    write(worker_file(tmp_path, 0), Event("put", 1, 1, 2, None, 5.0), put(2, 2, label=3.5), Event("delete", 3, 9))
    before = worker_file(tmp_path, 0).read_bytes()
    with pytest.raises(ConfigError, match="1 likes have no label for the column rating") as error:
        compact(tmp_path, TableForm(("user", "item", "rating", "time")))
    assert "--like 5" in str(error.value.hint)
    assert worker_file(tmp_path, 0).read_bytes() == before
    assert not (tmp_path / "interactions.csv").exists()
    table = compact(tmp_path, TableForm(("user", "item", "rating", "time"), like=5.0)).table
    assert table.read_text() == "user,item,rating,time\n1,2,5,5\n2,2,3.5,5\n"
    compact(tmp_path, TableForm(("user", "item", "", "")))
    assert table.read_text() == "user,item\n1,2\n2,2\n"


@pytest.mark.parametrize(
    ("unit", "time"), [("s", 1700000000), ("ms", 1700000000123), ("us", 1700000000123000), ("ns", 1700000000123000000)]
)
def test_times_are_in_the_unit_of_the_table(tmp_path: Path, unit: str, time: int) -> None:
    write(worker_file(tmp_path, 0), put(1, time=1_700_000_000.123))
    written = int(compact(tmp_path, TableForm(time_unit=unit)).table.read_text().rsplit(",", 1)[1])
    assert written == pytest.approx(time, abs=0 if unit in {"s", "ms"} else 10**-6 * time / 1.7e3)


@pytest.mark.parametrize(
    "columns",
    [
        ("user", "item", "label"),
        ("user", "user", "", ""),
        ("", "item", "label", "time"),
        ("user", "item", "", "time", "item"),
    ],
)
def test_invalid_columns_are_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="not the columns"):
        TableForm(columns)


def test_a_like_needs_a_finite_label() -> None:
    with pytest.raises(ConfigError, match="--like nan"):
        TableForm(like=float("nan"))


def purchase(at: int, time: float, event: str | None = "purchase", *, item: int = 2) -> Event:
    return Event("put", at, 1, item, time=time, event=event)


SHOP = ("visitor", "product", "", "when", "action")


def test_events_of_a_kind_count_each_time_and_likes_once(tmp_path: Path) -> None:
    write(worker_file(tmp_path, 0), purchase(1, 10.0), purchase(2, 20.0), purchase(3, 20.0), purchase(4, 20.0, "view"))
    write(worker_file(tmp_path, 1), purchase(5, 5.0, None), purchase(6, 30.0, None))
    done = compact(tmp_path, TableForm(SHOP, like="cart", time_unit="iso"))
    assert done.table.read_text().splitlines() == [
        "visitor,product,when,action",
        "1,2,1970-01-01 00:00:10,purchase",
        "1,2,1970-01-01 00:00:20,purchase",
        "1,2,1970-01-01 00:00:20,view",
        "1,2,1970-01-01 00:00:30,cart",
    ]
    assert (done.rows, done.removed) == (4, 2)


@given(data=st.data())
def test_a_deletion_of_an_item_deletes_all_its_events(data: st.DataObject) -> None:
    events = [purchase(1, 10.0), purchase(2, 20.0), purchase(3, 20.0, None), Event("delete", 4, 1, 2), purchase(5, 20.0),
              purchase(6, 20.0, item=3)]  # fmt: skip
    state = FeedbackState()
    for event in data.draw(st.permutations(events)):
        state.apply(event)
    assert state.of_user(1) == [purchase(5, 20.0), purchase(6, 20.0, item=3)]


def test_times_are_in_the_format_of_the_table(tmp_path: Path) -> None:
    write(worker_file(tmp_path, 0), put(1, time=1_700_000_000.75))
    form = TableForm(("user", "item", "", "time"), time_unit="%d.%m.%Y %H:%M:%S.%f")
    assert compact(tmp_path, form).table.read_text() == "user,item,time\n1,2,14.11.2023 22:13:20.750000\n"


@pytest.mark.parametrize(
    ("form", "problem"),
    [(("user", "item", "", "time"), "2 rows have an event, and --columns has no column"),
     (("user", "item", "", "time", "event"), "1 likes have no event for the column event")],
)  # fmt: skip
def test_columns_that_lose_events_are_refused(tmp_path: Path, form: tuple[str, ...], problem: str) -> None:
    write(worker_file(tmp_path, 0), purchase(1, 10.0), purchase(2, 20.0), purchase(3, 20.0, None))
    with pytest.raises(ConfigError, match=problem):
        compact(tmp_path, TableForm(form))
    assert compact(tmp_path, TableForm(("user", "item", "", "time", ""))).rows == 3


@pytest.mark.parametrize("unit", ["hours", "", "S"])
def test_an_unknown_unit_is_refused(unit: str) -> None:
    with pytest.raises(ConfigError, match="--time-unit"):
        TableForm(time_unit=unit)


def test_a_like_of_a_table_with_labels_is_a_number() -> None:
    with pytest.raises(ConfigError, match="--like view"):
        TableForm(like="view")


def test_beside_a_server_only_committed_lines_count(tmp_path: Path) -> None:
    path = worker_file(tmp_path, 0)
    path.write_bytes(put(1).line() + COMMIT + put(2, 7).line())
    with exclusive(tmp_path):
        assert compact(tmp_path, TableForm(like=1)).rows == 1
    assert compact(tmp_path, TableForm(like=1)).rows == 2
