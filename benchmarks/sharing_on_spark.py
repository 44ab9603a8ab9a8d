"""What many queries of one window cost on Spark, to one of them: python -m benchmarks.sharing_on_spark

A server on local[2]: joins of one window, or of windows of several lengths, each with a relation of its own, and sums
whose windows slide. The CPU time of a round of the driver, the JVM and the workers together, of one query and of many,
with operators that advance in common calls and without (`--alone`: each by itself). The answers of three of them are
compared with those that NumPy computes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.live import processor_seconds, server
from penstock.client.server import ServerClient
from penstock.errors import PenstockError

ROWS, KEYS, MATCHED, SETTLING = 20_000, 5_000, 10, 5
#: Read by every Python that starts with this folder in its path, the workers of Spark among them.
EACH_ALONE = """
from penstock.physical.execution.step_graph import JointTurns
JointTurns.ready = lambda self, first, finished: [first]
"""


@dataclass(frozen=True)
class Kind:
    """Queries of one kind. text: of query `i`; window: its length and slide; relations: each has one of its own."""

    name: str
    text: Callable[[int], str]
    window: Callable[[int], tuple[int, int]]
    relations: bool = True

    def script(self, count: int) -> str:
        declared = "CREATE STREAM S (ts INT, k INT, a INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        if self.relations:
            relation = "(ts INT, k INT, b INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
            declared += "".join(f"CREATE RELATION R{i} {relation}" for i in range(count))
        return declared + "".join(f"CREATE QUERY q{i} AS {self.text(i)};" for i in range(count))


KINDS = {
    "joins": Kind(
        "joins of one window",
        lambda i: f"SELECT S.k, S.a, R{i}.b FROM S [RANGE 8 SECONDS], R{i} WHERE S.k = R{i}.k",
        lambda i: (8, 1),
    ),
    "lengths": Kind(
        "joins of windows of several lengths",
        lambda i: f"SELECT S.k, S.a, R{i}.b FROM S [RANGE {9 - 7 * i % 9} SECONDS], R{i} WHERE S.k = R{i}.k",
        lambda i: (9 - 7 * i % 9, 1),
    ),
    "sums": Kind(
        "sums of windows that slide",
        lambda i: (
            f"RSTREAM(SELECT k, SUM(a + {i // 100}) AS s FROM S"
            f" [RANGE {10 + i % 100 // 4} SECONDS SLIDE {(1, 2, 5, 10)[i % 4]} SECONDS] GROUP BY k)"
        ),
        lambda i: (10 + i % 100 // 4, (1, 2, 5, 10)[i % 4]),
        relations=False,
    ),
}


def tree(pid: int) -> float:
    """Return the processor time of a process and all below it that live."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            parents.setdefault(parent, []).append(int(folder.name))
    waiting, total = [pid], 0.0
    while waiting:
        one = waiting.pop()
        waiting += parents.get(one, [])
        try:
            total += processor_seconds(one)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def stream(second: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Return k and a of the rows of a second."""
    draw = np.random.default_rng(second)
    k, a = (draw.integers(0, keys, ROWS).astype(np.int32) for _ in range(2))
    return k, a


def updated(second: int) -> int:
    """Return the key of the relations that is updated in a second, which is its value too."""
    return second % MATCHED * (KEYS // MATCHED)


def insert(client: ServerClient, second: int, relations: int, keys: int) -> None:
    k, a = stream(second, keys)
    for i in range(relations):
        key = [updated(second)]
        client.insert(f"R{i}", pa.table({"ts": pa.array([second], pa.int32()), "k": key, "b": key}))
    client.insert("S", pa.table({"ts": np.full(ROWS, second, np.int32), "k": k, "a": a}))


def check(client: ServerClient, kind: Kind, number: int, seconds: int, keys: int) -> None:
    """Compare the answers of a query with what they have to be, computed by NumPy. seconds: that were posted."""
    length, slide = kind.window(number)
    if kind.relations:
        found = client.select(f"SELECT k, a, b FROM q{number}")
        until = int(found.instant or 0)
        related = {updated(second) for second in range(1, until + 1)}
        assert until >= seconds - 1, f"q{number} stays at {until}"
        rows = [
            pair
            for second in range(max(1, until - length + 1), until + 1)
            for pair in zip(*stream(second, keys), strict=True)
        ]
        expected = sorted((int(k), int(a), int(k)) for k, a in rows if k in related)
        shown = sorted((row["k"], row["a"], row["b"]) for row in found.table.to_pylist())
        assert expected and shown == expected, f"the answer of q{number} is wrong"
        return
    parts = client.subscribe(f"q{number}", beginning=True, until_now=True)
    shown = sorted((row["ts"], row["k"], row["s"]) for part in parts for row in part.to_pylist())
    expected = []
    for end in range(slide, seconds, slide):
        inside = [stream(second, keys) for second in range(max(1, end - length + 1), end + 1)]
        k, a = (np.concatenate(columns) for columns in zip(*inside, strict=True))
        sums = np.bincount(k, a.astype(np.int64) + number // 100, keys)
        expected += [(end, key, int(sums[key])) for key in range(keys)]
    assert expected and shown == expected, f"the answer of q{number} is wrong"


def reached(client: ServerClient, count: int, tick: int) -> None:
    """Wait until the last query has answered up to a tick."""
    began = time.perf_counter()
    while (found := client.query(f"q{count - 1}").instant) is None or int(found) < tick:
        assert time.perf_counter() - began < 300, f"it stays at {found}"
        time.sleep(0.1)


def registered(client: ServerClient, count: int) -> None:
    """Wait until the last query is there: where the machine is busy, a script goes on after its answer."""
    began = time.perf_counter()
    while True:
        try:
            client.query(f"q{count - 1}")
            return
        except PenstockError:
            assert time.perf_counter() - began < 300, "the script has not been executed"
            time.sleep(0.1)


def measure(kind: Kind, count: int, rounds: int) -> float:
    """Return the CPU seconds of a round, the median."""
    relations, keys = (count, KEYS) if kind.relations else (0, 10)
    with server() as (client, pid):
        client.execute(kind.script(count))
        registered(client, count)
        spent = []
        for second in range(1, SETTLING + rounds + 1):
            before = tree(pid)
            insert(client, second, relations, keys)
            reached(client, count, second - 1)
            spent.append(tree(pid) - before)
        for number in {0, count // 2, count - 1}:
            check(client, kind, number, SETTLING + rounds, keys)
    return median(spent[SETTLING:])


@contextmanager
def advancing(alone: bool) -> Iterator[None]:
    """Let the processes that start meanwhile advance each operator alone, or not."""
    before = os.environ.get("PYTHONPATH", "")
    with tempfile.TemporaryDirectory() as folder:
        if alone:
            Path(folder, "sitecustomize.py").write_text(EACH_ALONE)
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
        try:
            yield
        finally:
            os.environ["PYTHONPATH"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--count", type=int, default=0, help="of queries; 100 joins and 1,000 sums otherwise")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--alone", action="store_true", help="also with operators that advance each alone")
    given = parser.parse_args()
    for name in given.kinds:
        kind = KINDS[name]
        count = given.count or (100 if kind.relations else 1_000)
        one = measure(kind, 1, given.rounds)
        print(f"{kind.name}, 1: {one * 1000:.0f} ms of CPU a round", flush=True)
        for alone in (False, True) if given.alone else (False,):
            with advancing(alone):
                many = measure(kind, count, given.rounds)
            how = "each operator alone" if alone else "common calls"
            print(f"{kind.name}, {count}, {how}: {many * 1000:.0f} ms, {many / one:.1f} times", flush=True)


if __name__ == "__main__":
    main()
