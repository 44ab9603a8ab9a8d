"""What one command costs the driver beside many standing queries: python -m benchmarks.registration

The engine of a server on Spark without Spark (`tests/runtime/inline_engine.py`), so that the machine matters little:
figures are CPU time, of the thread for the change of the run (`begin_change`) and of the process for the whole command,
from its text to its outcome. Standing are sums over one stream, of 36 windows and a condition each, registered a
hundred at a time and then one by one.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks.records import save
from penstock.runtime.spark import live_change

TESTS = Path(__file__).parent.parent / "tests"
sys.path += [str(TESTS / "runtime"), str(TESTS)]
import inline_engine  # noqa: E402

STREAMS = "".join(
    f"CREATE STREAM {name} (ts BIGINT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 100 SECONDS;"
    for name in ("S", "T")
)
#: Queries of one script.
SCRIPT = 100
#: The kinds of commands, each the text of number i beside n standing sums.
KINDS: dict[str, Callable[[int, int], str]] = {
    "a sum with a condition of its own": lambda i, n: create(
        f"a{i}", f"SELECT SUM(v) AS s FROM S [RANGE 7 SECONDS] WHERE v > {n + i}"
    ),
    "a standing sum with another window": lambda i, n: create(
        f"b{i}", f"SELECT SUM(v) AS s FROM S [RANGE {50 + i} SECONDS] WHERE v > {i}"
    ),
    "a standing sum again": lambda i, n: create(f"c{i}", sum_of(i)),
    "a sum over ROWS": lambda i, n: create(f"d{i}", f"SELECT SUM(v) AS s FROM S [ROWS {5 + i}] WHERE v > {i}"),
    "a join": lambda i, n: create(
        f"e{i}", f"SELECT S.v FROM S [RANGE {5 + i} SECONDS], T [RANGE 9 SECONDS] WHERE S.v = T.v AND S.v > {i}"
    ),
    "a sum over a stream of its own": lambda i, n: (
        f"CREATE STREAM N{i} (ts BIGINT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        + create(f"f{i}", f"SELECT SUM(v) AS s FROM N{i} [RANGE 7 SECONDS]")
    ),
    "PAUSE": lambda i, n: f"ALTER QUERY q{7 * i} PAUSE;",
    "DROP": lambda i, n: f"DROP QUERY q{7 * i + 1};",
}


def create(name: str, text: str) -> str:
    return f"CREATE QUERY {name} INTO RESULTS () AS {text};"


def sum_of(number: int) -> str:
    return f"SELECT SUM(v) AS s FROM S [RANGE {5 + number % 36} SECONDS] WHERE v > {number}"


@contextmanager
def timed_changes() -> Iterator[list[float]]:
    """Give a list to which the CPU time of each change of a run is added, in milliseconds."""
    taken: list[float] = []
    begin = live_change.begin_change

    def timed(*arguments: Any) -> Any:
        began = time.thread_time()
        try:
            return begin(*arguments)
        finally:
            taken.append(1000 * (time.thread_time() - began))

    with patch.object(live_change, "begin_change", timed):
        yield taken


def register(server: Any, count: int) -> None:
    """Register sums, most of them a hundred at a time and the last ones one by one."""
    single = min(count // 10, SCRIPT)
    for first in range(0, count - single, SCRIPT):
        numbers = range(first, min(first + SCRIPT, count - single))
        server.post("BEGIN;" + "".join(create(f"q{i}", sum_of(i)) for i in numbers) + "COMMIT;")
    for number in range(count - single, count):
        server.post(create(f"q{number}", sum_of(number)))


def measure(server: Any, kind: str, standing: int, commands: int) -> dict[str, Any]:
    """Return what commands of a kind cost, in milliseconds of CPU; and the round after each, in which nothing is read:
    its executors, which are in this process too, take over the plan."""
    whole, rounds = [], []
    with timed_changes() as changes:
        for number in range(commands):
            text = KINDS[kind](number, standing)
            began = time.process_time()
            server.control.submit(text)
            whole.append(1000 * (time.process_time() - began))
            began = time.process_time()
            server.run.round()
            rounds.append(1000 * (time.process_time() - began))
    assert len(changes) >= commands, "each command changes the run"
    return {
        "figure": kind,
        "standing": standing,
        "commands": commands,
        "change": round(median(changes), 1),
        "least": round(min(changes), 1),
        "most": round(max(changes), 1),
        "command": round(median(whole), 1),
        "next_round": round(median(rounds), 1),
    }


def asynchronous(count: int) -> dict[str, Any]:
    """Return the CPU time of `count` registrations one by one that nobody waits for, in seconds."""
    with fresh_server() as server:
        server.post(STREAMS)
        began, times = time.process_time(), []
        for number in range(count):
            server.control.submit(create(f"q{number}", sum_of(number)), wait=False)
            if (number + 1) % (count // 4) == 0:
                server.control.submit("")
                times.append(round(time.process_time() - began, 2))
        server.settle()
        versions = len({outcome.version for _, _, outcome in server.control.commands()})
    return {"figure": "registered without waiting", "count": count, "seconds_by_quarter": times, "versions": versions}


@contextmanager
def fresh_server() -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        inline_engine.leave_spark(patched)
        server = inline_engine.InlineServer(Path(folder))
        try:
            yield server
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registration", description=__doc__)
    parser.add_argument("--standing", type=int, nargs="*", default=[250, 1000, 2000])
    parser.add_argument("--commands", type=int, default=15, help="of each kind")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help="of commands")
    parser.add_argument("--register", type=int, default=1000, help="queries registered without waiting; 0 for none")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    given = parser.parse_args()
    figures = []
    for standing in given.standing:
        with fresh_server() as server:
            server.post(STREAMS)
            register(server, standing)
            gc.collect()
            for kind in given.kinds:
                figures.append(measure(server, kind, standing, given.commands))
                print(figures[-1], flush=True)
    if given.register:
        figures.append(asynchronous(given.register))
        print(figures[-1], flush=True)
    if given.keep:
        print(save("registration", "-", figures))


if __name__ == "__main__":
    main()
