"""What an engine in one process writes: what a command or a round has changed, however much state there is; and what a
start finds then."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from control_kit import Server

from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError
from penstock.runtime.live import state_folder
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage, SystemCalls
from penstock.testing.faults import FailingCalls

STREAM = "CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND{};"
OTHER = "CREATE STREAM t (k BIGINT, ts BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
RELATION = (
    "CREATE RELATION s (k BIGINT, v BIGINT, ts BIGINT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
)
#: What keeps rows, each by the declarations and a query.
KEEPERS = {
    "a window of time": (
        STREAM.format("") + OTHER,
        "SELECT s.v FROM s [RANGE 100000 SECONDS], t [RANGE 9 SECONDS] WHERE s.k = t.k",
    ),
    "a window of rows": (STREAM.format(""), "SELECT AVG(v) AS a FROM s [ROWS 1000000]"),
    "retained elements": (STREAM.format(" RETAIN 100000 SECONDS"), "SELECT COUNT(*) AS n FROM s [NOW]"),
    "answers": (STREAM.format(""), "SELECT k, v FROM s"),
    "the content of an answer": (STREAM.format(""), "SELECT k, v FROM s [RANGE UNBOUNDED]"),
}
FEW, MANY = 100, 50_000


class CountedCalls(SystemCalls):
    """System calls that count what is written."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, handle: int, data: memoryview) -> int:
        self.written += data.nbytes
        return super().write(handle, data)


@pytest.fixture
def calls() -> Iterator[CountedCalls]:
    made = CountedCalls()
    with replaced_storage(LocalStorage(made)):
        yield made


def post(system: Server, first: int, count: int, tick: int) -> None:
    insert(system, first, count, tick)
    system.engine.round()


def insert(system: Server, first: int, count: int, tick: int) -> None:
    keys = np.arange(first, first + count, dtype=np.int64)
    rows = pa.table({"k": keys, "v": keys * 7 % 1000, "ts": np.full(count, tick)})
    system.control.insert("s", rows)


def written_by_each(system: Server, calls: CountedCalls) -> dict[str, int]:
    """Return the bytes that commands and rounds write."""
    found: dict[str, int] = {}

    def count(name: str, action: Callable[[], object]) -> None:
        before = calls.written
        action()
        found[name] = calls.written - before

    for number in range(3):  # the last ones count: by then what was put together has been
        tick = 100 + 2 * number
        query = f"c{number} AS SELECT SUM(v) AS a FROM s [RANGE 7 SECONDS];"
        count("CREATE", lambda query=query: system.done(f"CREATE QUERY {query}"))  # type: ignore[misc]
        count("round", lambda tick=tick: post(system, tick, 1, tick))  # type: ignore[misc]
        count("PAUSE", lambda: system.done("ALTER QUERY w PAUSE WITH STATE;"))
        count("round while paused", lambda tick=tick: post(system, tick, 1, tick + 1))  # type: ignore[misc]
        count("RESUME", lambda: system.done("ALTER QUERY w RESUME;"))
        count("DROP", lambda number=number: system.done(f"DROP QUERY c{number};"))  # type: ignore[misc]
    return found


@pytest.mark.parametrize("kind", KEEPERS)
def test_what_is_written_does_not_grow_with_the_state(kind: str, tmp_path: Path, calls: CountedCalls) -> None:
    declared, query = KEEPERS[kind]
    found = []
    for size in (FEW, MANY):
        system = Server(tmp_path / str(size))
        system.done(f"{declared} CREATE QUERY w AS {query};")
        post(system, 0, size, 1)
        post(system, 1, 1, 2)
        found.append(written_by_each(system, calls))
        system.control.close()
    few, many = found
    assert many["CREATE"] > 0
    for name, size in many.items():
        assert size < few[name] + 20_000, (name, size, few[name])


def test_queries_that_come_and_go_are_in_pages_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are made, filled, emptied and left again; after each restart all goes on in its order."""
    monkeypatch.setattr(state_folder, "PAGE", 4)
    draw, declared = random.Random(5), list[int]()
    system = Server(tmp_path)
    system.done(STREAM.format(""))
    for number in range(80):
        if number < 30 or (number < 50 and draw.random() < 0.5) or not declared:
            system.done(f"CREATE QUERY q{number} AS SELECT SUM(v) AS a FROM s [RANGE {number + 1} SECONDS];")
            declared.append(number)
        else:
            gone = declared.pop(draw.randrange(len(declared)))
            system.done(f"DROP QUERY q{gone};")
        post(system, number, 1, number)
        if number % 7 == 6:
            before = {name: system.answers(f"q{name}") for name in declared}
            system.control.close()
            system = Server(tmp_path)
            assert {name: system.answers(f"q{name}") for name in declared} == before
            assert [one.stored.name for one in system.control.queries()] == [f"q{name}" for name in declared]
    post(system, 0, 1, 100)
    assert all(system.answers(f"q{name}")[-1]["ts"] for name in declared)
    system.control.close()


@pytest.mark.parametrize("declared", [STREAM.format(""), STREAM.format(" RETAIN 100000 SECONDS"), RELATION])
def test_what_is_written_does_not_grow_with_the_posts(declared: str, tmp_path: Path, calls: CountedCalls) -> None:
    system = Server(tmp_path)
    system.done(
        f"{declared} CREATE QUERY w AS SELECT COUNT(*) AS n FROM s{'' if 'RELATION' in declared else ' [NOW]'};"
    )
    each = []
    for number in range(300):
        before = calls.written
        post(system, number, 1, number)
        each.append(calls.written - before)
    system.control.close()
    assert sorted(each[-50:])[25] < 1.5 * sorted(each[20:70])[25]
    files = list((tmp_path / "engine").iterdir())
    assert len(files) < 60


def test_what_a_command_writes_does_not_grow_with_the_queries(tmp_path: Path, calls: CountedCalls) -> None:
    written = []
    for count in (20, 300):
        system = Server(tmp_path / str(count))
        queries = (f"CREATE QUERY q{i} AS SELECT SUM(v) AS a FROM s [RANGE {60 + i} SECONDS];" for i in range(count))
        system.done(STREAM.format("") + "".join(queries))
        post(system, 0, 5, 1)
        post(system, 5, 5, 2)
        found = []
        for number in range(5):
            before = calls.written
            system.done(f"CREATE QUERY c{number} AS SELECT SUM(v) AS a FROM s [RANGE 7 SECONDS];")
            system.done(f"DROP QUERY c{number};")
            found.append(calls.written - before)
        written.append(sorted(found)[2])
        system.control.close()
    few, many = written
    # Of each mapping by query a page, and what differs from the base of the manifest.
    assert many < few + 50_000


@pytest.mark.parametrize("page", [state_folder.PAGE, 1])
@pytest.mark.parametrize("kind", KEEPERS)
def test_a_start_goes_on_with_all_of_it(kind: str, page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one that was never ended, and with a step that failed at its end."""
    monkeypatch.setattr(state_folder, "PAGE", page)
    declared, query = KEEPERS[kind]
    found = []
    for restarts in (False, True):
        folder = tmp_path / str(restarts)
        system = Server(folder)
        system.done(f"{declared} CREATE QUERY w AS {query};")
        for number in range(40):
            insert(system, 10 * number, 3, number)
            if restarts and number % 5 == 3:
                failed_round(system, number // 5)
            elif restarts and number % 9 == 5:
                system.control.close()
                system = Server(folder)
            system.engine.round()
            if number == 20:
                system.done("ALTER QUERY w PAUSE WITH STATE;")
            if number == 25:
                start = "WARM" if "RETAIN" in declared else "NOW"
                system.done(f"CREATE QUERY x START {start} AS SELECT MAX(v) AS m FROM s [RANGE 1 SECOND];")
                system.done("ALTER QUERY w RESUME;")
        if "t (" in declared:
            system.control.insert("t", pa.table({"k": [12, 30], "ts": [40, 40]}))
            system.control.insert("t", pa.table({"k": [12], "ts": [60]}))
            post(system, 1, 1, 61)
        found.append((system.answers("w"), system.answers("x"), system.engine.version().number))
        system.control.close()
    assert found[0][0] and found[0] == found[1]


#: Calls of a step that fail, by kind and number.
FAILURES = (("open", 1), ("write", 1), ("fsync", 1), ("fsync", 2), ("fsync", 3), ("rename", 1), ("unlink", 1))


def failed_round(system: Server, number: int) -> None:
    """Run a round whose state cannot be written."""
    failing = FailingCalls(*FAILURES[number % len(FAILURES)])
    with replaced_storage(LocalStorage(failing)), pytest.raises((PenstockError, OSError)):
        system.engine.round()
    assert failing.failed


def test_a_second_server_removes_nothing_of_the_first(tmp_path: Path) -> None:
    """It reads the state before it finds the checkpoint in use."""
    system = Server(tmp_path)
    system.done(STREAM.format("") + "CREATE QUERY w AS SELECT k, v FROM s;")
    post(system, 1, 5, 1)
    post(system, 9, 1, 2)
    left = tmp_path / "engine" / "000000099-unfinished.arrow"
    left.write_bytes(b"of a step that is being written")
    with pytest.raises(PenstockError, match="in use"):
        Server(tmp_path)
    assert left.exists()
    system.control.close()
    InProcessEngine(tmp_path / "engine").close()
    assert left.exists()
    again = Server(tmp_path)
    assert not left.exists(), "who goes on has the checkpoint to itself"
    assert len(again.answers("w")) == 5
    again.control.close()


def test_a_server_that_has_read_an_older_state_writes_nothing(tmp_path: Path) -> None:
    """The first one went on and ended between the other's look at the state and at the lock."""
    first = Server(tmp_path)
    first.done(STREAM.format("") + "CREATE QUERY w AS SELECT k, v FROM s;")
    second = InProcessEngine(tmp_path / "engine")
    post(first, 1, 5, 1)
    post(first, 9, 1, 2)
    first.control.close()
    with pytest.raises(PenstockError, match="since this one has read it") as caught:
        Server(tmp_path, second)
    assert caught.value.code == "P0609"
    again = Server(tmp_path)
    assert len(again.answers("w")) == 5
    again.control.close()
