"""What a server costs beside `penstock run`: python -m benchmarks.live_overhead [--keep]

The same batches by a run and by a server, each in a process of its own, in turn (`sides.py`): a file of 1,000,000 rows
appears in the folder that one side watches, and when it has been answered in that of the other. Which side goes first
alternates, and the other one is stopped (SIGSTOP) meanwhile, so only one works at a time. Of each batch there are the
seconds by the side's own account and the processor time of the whole tree of processes: the driver, its JVM and its
workers. Batches are compared in pairs; the first two of a query are left out. The table has the middle of the ratios
and its interval (`paired.py`). All answers are checked.

- all: all queries of `queries.py` standing together, 2,000,000 rows in a batch, so that it takes 2 s and more (how long
  it took is in the table); goal: 3 % more at a server;
- all-retained: the same where the server retains all columns of the stream; goal: 5 % more;
- q1 to q9: each alone, in the shorter batches that 1,000,000 rows are then;
- empty: a batch without rows, in which only time goes on, with q1 to q9 standing; in blocks of ten; goal: 15 % more;
- retained: a query that reads all columns of a stream, which the server retains; goal: 5 % more.

And within one server, two streams with the same query that differ in one thing (`twins.py`, `--twins`):

- twin-retain: one of the streams is retained, and the query reads all of its columns; goal: 5 % more;
- twin-results: the answers of a filter, 9 in 100 rows, go to RESULTS in place of FILES; no goal was set, 5 % is judged;
- twin-few: the same with the few answers of `retained`;
- twin-same: nothing differs, so what is found is what the measurement cannot tell.

`python -m benchmarks.live_overhead --keep` takes all of it; it says first how long that takes. A verdict is `open`
where the interval contains the goal: then more pairs are needed (`--pairs` of the figures that are no single
queries, `--rounds 2` does all of it twice). On a machine that does other work too, look at the processor time: it is
that of the driver, its JVM and its workers; the figures have that of the workers by itself too. Much of the noise of
the seconds is the disk's; `--folder /dev/shm` has all files in memory.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import answers, data
from benchmarks.paired import Pairs, verdict
from benchmarks.queries import QUERIES, BenchQuery, watched_stream
from benchmarks.records import save
from benchmarks.sides import Account, Side, measured_batch, run_side, server_side, until
from benchmarks.twins import RESULTS, Twin, Twins

#: A file is one batch, whatever its size.
BATCH = "max_batch_bytes=2147483648"
#: Batches of each query that do not count: code is compiled, and windows fill.
WARM_UP = 2
#: Pairs of one reading of the stream.
PAIRS = data.FILES - WARM_UP
#: Batches without rows between two changes of sides.
BLOCK = 10
GOAL, GOAL_EMPTY, GOAL_RETAINED = 0.03, 0.15, 0.05
RETAINED = " RETAIN 1 HOUR"
#: Readings of the stream before those that count: until then the JVM of each side compiles, at other times.
WARM_READINGS = 3
#: Seconds, at rest: of the start; of one reading by both sides beside its rows; of a row of it with all queries, and
#: with one; of a row of the right answer of one query; of a block without rows.
_START, _READING, _LONG_ROW, _SHORT_ROW, _ANSWER_ROW, _EMPTY = 20.0, 20.0, 3.2e-6, 0.9e-6, 0.1e-6, 4.0

#: Seconds, at rest, of a pair of twins.
_TWINS = 2.2

ALL_COLUMNS = BenchQuery(
    "retained",
    "count, sums and maxima by proto, tumbling 10 s",
    """
SELECT RSTREAM(proto, COUNT(*) AS n, SUM(bytes) AS total, MAX(src) AS src, MAX(dst) AS dst)
FROM C [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY proto
""",
    """
SELECT ((ts + 9999) // 10000) * 10000 AS ts, count(*) AS n, sum(bytes) AS total, max(src) AS src, max(dst) AS dst
FROM C GROUP BY 1, proto HAVING ((ts + 9999) // 10000) * 10000 <= (SELECT max(ts) FROM C)
""",
    ("ts", "n", "total", "src", "dst"),
)

#: By name: a query, what the two streams and sinks are, and by which share the second may take more.
TWINS = {
    "retain": (ALL_COLUMNS, (Twin(), Twin(retain=RETAINED)), GOAL_RETAINED),
    "results": (QUERIES["q1"], (Twin(), Twin(sink=RESULTS)), GOAL_RETAINED),
    "few": (ALL_COLUMNS, (Twin(), Twin(sink=RESULTS)), GOAL_RETAINED),
    "same": (ALL_COLUMNS, (Twin(), Twin()), 0.0),
}


@dataclass
class Measured:
    """What batches took, in pairs of a run and a server, or of two twins. goal: the share by which the second of them
    may take more."""

    name: str
    goal: float
    seconds: list[tuple[float, float]] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    workers: list[tuple[float, float]] = field(default_factory=list)

    def add(self, run: Account, server: Account) -> None:
        one, other = run.of_a_batch, server.of_a_batch
        self.seconds.append((one.seconds, other.seconds))
        self.cpu.append((one.cpu, other.cpu))
        self.workers.append((one.workers, other.workers))

    def extend(self, other: Measured) -> None:
        """Add the pairs of another round."""
        self.seconds += other.seconds
        self.cpu += other.cpu
        self.workers += other.workers

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {"figure": self.name, "pairs": len(self.seconds), "goal": self.goal}
        for name, both in (("seconds", self.seconds), ("cpu", self.cpu)):
            pairs = _pairs(both)
            over, added = pairs.overhead, pairs.added
            found[name] = [round(one, 4) for one in pairs.medians]
            found[f"{name}_overhead"] = [round(one, 4) for one in (over.middle, over.low, over.high)]
            found[f"{name}_added"] = [round(one, 4) for one in (added.middle, added.low, added.high)]
            found[f"{name}_verdict"] = verdict(over, self.goal)
        # Of the processor time; a share of it would be one of nothing where batches have no rows. So the share is that
        # of the whole batch at the first side: where all that one side does more is done by workers, as RETAIN is, it
        # is the narrower figure, as what the JVM does in a batch varies by more than that.
        pairs = _pairs(self.workers)
        more = (pairs.added.middle, pairs.added.low, pairs.added.high)
        found["workers"] = [round(one, 4) for one in pairs.medians]
        found["workers_added"] = [round(one, 4) for one in more]
        found["workers_overhead"] = [round(one / found["cpu"][0], 4) for one in more]
        return found

    def row(self) -> str:
        """Return the line of the table."""
        cells = [f"{self.name:<13}{len(self.seconds):>6}"]
        for both in (self.seconds, self.cpu):
            pairs = _pairs(both)
            run, server = pairs.medians
            judged = verdict(pairs.overhead, self.goal)
            more, added = pairs.overhead.shown(0.01), pairs.added.shown(0.001, 0)
            cells.append(f"{run:>8.3f}{server:>8.3f} {more:>21} {added:>18} {judged:<7}")
        return " |".join(cells) + f" goal {self.goal:.0%}"


HEAD = f"{'':<19} |{'seconds of a batch: one, other, % more [95 %], ms more':<65} | cpu seconds: the same"


def _pairs(both: Sequence[tuple[float, float]]) -> Pairs:
    without, with_it = zip(*both, strict=True)
    return Pairs(without, with_it)


class Comparison:
    """A run and a server, both stopped but for the one that works.

    Args:
        root: a folder for what they read and write.
        rows: of a batch.
    """

    def __init__(self, root: Path, run: Side, server: Side, rows: int) -> None:
        self.sides = (run, server)
        self._root = root
        self._rows = rows
        self._files = sorted(data.connections(rows * data.FILES).glob("*.parquet"))
        #: Of the right answers, by query: all sides and rounds have the same.
        self._expected: dict[str, object] = {}

    def batches(self, name: str, queries: Sequence[BenchQuery], goal: float, retain: str = "") -> Measured:
        """Compare batches of rows. retain: what is declared of the server's stream."""
        found = Measured(name, goal)
        folders = [self._root / f"{name}-{side}" for side in range(2)]
        for side, folder, declared in zip(self.sides, folders, ("", retain), strict=True):
            (folder / "in").mkdir(parents=True)
            side.begin(_script(folder, queries, declared))
            side.stop()
        for number, file in enumerate(self._files):
            accounts = {}
            for index in (0, 1) if number % 2 else (1, 0):
                accounts[index] = self._batch(self.sides[index], folders[index], file, number)
            if number >= WARM_UP:
                found.add(accounts[0], accounts[1])
        for side, folder in zip(self.sides, folders, strict=True):
            side.go_on()
            for query in queries:
                self._check(query, folder / query.name)
            side.end()
            shutil.rmtree(folder)
        return found

    def _batch(self, side: Side, folder: Path, file: Path, number: int) -> Account:
        """Have a side answer one file; return what that took."""
        side.go_on()
        found = measured_batch(side, lambda: _appear(file, folder / "in"), self._rows, (number + 1) * self._rows)
        side.stop()
        return found

    def _check(self, query: BenchQuery, out: Path) -> None:
        # The last instant may have more rows, and is not answered yet.
        last = data.last_ms(self._rows * data.FILES) - 1
        if query.name not in self._expected:
            self._expected[query.name] = answers.reference_checksum(self._files[0].parent, query, last)
        expected = self._expected[query.name]
        found = answers.result_checksum(out, query, last)
        assert found == expected, f"{query.name}: a wrong answer: {found}, not {expected}"

    def twins(self, name: str) -> Measured:
        """Compare batches of two streams of the server, while the run is stopped."""
        query, both, goal = TWINS[name]
        found = Measured(f"twin-{name}", goal)
        run, server = self.sides
        run.stop()
        for one, other in Twins(self._root, server, self._files, self._rows).batches(query, both, WARM_UP, _appear):
            found.add(one, other)
        run.go_on()
        return found

    def empty(self, blocks: int) -> Measured:
        """Compare batches in which only time goes on, with all queries standing."""
        found = Measured("empty", GOAL_EMPTY)
        folders = [self._root / f"empty-{side}" for side in range(2)]
        for side, folder in zip(self.sides, folders, strict=True):
            (folder / "in").mkdir(parents=True)
            (folder / "in" / "0.csv").write_text("ts,src,dst,proto,bytes\n1,1,1,udp,2000\n")
            script = _script(folder, list(QUERIES.values()), "", "csv")
            side.begin(script.replace("TIMESTAMP BY ts UNIT MILLISECOND", "SYSTEM TIME"))
            until(lambda side=side: side.delivered() >= WARM_UP * BLOCK)  # type: ignore[misc]
            side.stop()
        for block in range(blocks):
            accounts = {}
            for index in (0, 1) if block % 2 else (1, 0):
                accounts[index] = self._empty_block(self.sides[index])
            found.add(accounts[0], accounts[1])
        for side, folder in zip(self.sides, folders, strict=True):
            side.go_on()
            side.end()
            shutil.rmtree(folder)
        return found

    @staticmethod
    def _empty_block(side: Side) -> Account:
        side.go_on()
        # That in hand was interrupted.
        began = side.delivered()
        until(lambda: side.delivered() > began, every=0.005)
        before, first = side.account(), side.delivered()
        until(lambda: side.delivered() >= first + BLOCK, every=0.005)
        account = side.account().since(before)
        side.stop()
        return account


def _script(folder: Path, queries: Sequence[BenchQuery], retain: str, format_: str = "parquet") -> str:
    created = "CREATE QUERY {} INTO FILES (path '{}', format '{}') AS {};\n"
    texts = (created.format(query.name, folder / query.name, format_, query.cql.strip()) for query in queries)
    return watched_stream(folder / "in", retain, format_) + "".join(texts)


def _appear(file: Path, folder: Path) -> None:
    """Have a file appear in a folder: whole, so under another name first."""
    arriving = folder.with_name("arriving")
    try:
        os.link(file, arriving)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(file, arriving)
    arriving.rename(folder / file.name)


def compared(comparison: Comparison, long: Comparison, given: argparse.Namespace) -> Iterator[Measured]:
    """Yield what the options name. long: with batches of all queries that take 2 s and more."""
    readings = math.ceil(given.pairs / PAIRS)
    for _ in range(given.warm):
        comparison.batches("warm", [ALL_COLUMNS], GOAL_RETAINED, RETAINED)
    # The figures take turns, so that a while in which the machine is disturbed does not hit one of them alone.
    for _ in range(readings):
        if given.all:
            yield long.batches("all", list(QUERIES.values()), GOAL)
        if given.all and given.retain:
            yield long.batches("all-retained", list(QUERIES.values()), GOAL_RETAINED, RETAINED)
        if given.retain:
            yield comparison.batches("retained", [ALL_COLUMNS], GOAL_RETAINED, RETAINED)
        for name in given.twins:
            yield comparison.twins(name)
    for name in given.queries:
        yield comparison.batches(name, [QUERIES[name]], GOAL)
    if given.empty:
        yield comparison.empty(given.empty)


def expected_seconds(given: argparse.Namespace) -> float:
    """Return how long the measurement takes about on a machine at rest with two cores."""
    readings = math.ceil(given.pairs / PAIRS)
    long, short = _READING + _LONG_ROW * given.long * data.FILES, _READING + _SHORT_ROW * given.rows * data.FILES
    twins = readings * len(given.twins) * _TWINS * data.FILES + given.warm * short
    whole = (
        twins + readings * (given.all * (1 + given.retain) * long + given.retain * short) + len(given.queries) * short
    )
    answers_of = given.all * given.long * len(QUERIES) + given.rows * (len(given.queries) + given.retain)
    checks = _ANSWER_ROW * answers_of * data.FILES
    return float(_START + checks + given.rounds * (whole + _EMPTY * given.empty))


def _shown(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} minutes"


def main(arguments: Sequence[str] | None = None) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.live_overhead", description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a batch, a multiple of 10")
    parser.add_argument("--long", type=int, default=2_000_000, help="the same, of all queries together")
    pairs = f"of batches: of all queries, of these with RETAIN, and of RETAIN alone; {PAIRS} in a reading of the stream"
    parser.add_argument("--pairs", type=int, default=2 * PAIRS, help=pairs)
    parser.add_argument("--queries", nargs="*", choices=list(QUERIES), default=list(QUERIES), help="each alone")
    parser.add_argument("--no-all", dest="all", action="store_false", help="leave out all of them together")
    parser.add_argument("--empty", type=int, default=12, help="blocks of batches without rows; 0 for none")
    parser.add_argument("--no-retain", dest="retain", action="store_false", help="leave out what is retained")
    parser.add_argument(
        "--twins", nargs="*", choices=list(TWINS), default=["retain", "results"], help="within a server"
    )
    warm = "readings of the stream before those that count"
    parser.add_argument("--warm", type=int, default=WARM_READINGS, help=warm)
    parser.add_argument("--rounds", type=int, default=1, help="how often all of it is done, in the same processes")
    parser.add_argument("--folder", help="where all is written; the system's temporary folder")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    given = parser.parse_args(arguments)
    tempfile.tempdir = given.folder
    began, expected = time.monotonic(), expected_seconds(given)
    print(f"about {_shown(expected)} on a machine at rest", flush=True)
    by_name: dict[str, Measured] = {}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-overhead-") as name,
        run_side(Path(name) / "run", BATCH) as run,
        server_side(Path(name), BATCH) as server,
    ):
        comparison = Comparison(Path(name), run, server, given.rows)
        long = Comparison(Path(name), run, server, given.long)
        try:
            for _ in range(given.rounds):
                for one in compared(comparison, long, given):
                    known = by_name.setdefault(one.name, Measured(one.name, one.goal))
                    known.extend(one)
                    print(json.dumps(known.figures()), flush=True)
        finally:
            for side in (run, server):
                side.go_on()
    print(f"it took {_shown(time.monotonic() - began)}")
    print(HEAD)
    for one in by_name.values():
        print(one.row())
    if given.keep:
        print(save("live-overhead", "2g", [one.figures() for one in by_name.values()]))


if __name__ == "__main__":
    main()
