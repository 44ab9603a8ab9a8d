"""What a round costs of standing queries that get one row each: python -m benchmarks.rounds

In one process, without Spark: what a worker does in a round of one shard (operators, state, answers), and what the
driver does with the answers of all queries (RESULTS). CPU seconds, the least of several rounds, by kind of query.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import ExchangeRouter
from penstock.physical.execution.executor import IngestExecutor
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.local.runtime import LocalJob
from penstock.runtime.local.schedule import ScheduledRows
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.state_files import open_state
from penstock.runtime.spark.output.batch_logs import commit_logs
from penstock.runtime.spark.output.batch_output import read_output
from penstock.runtime.spark.output.delivery import deliver_answers
from penstock.runtime.spark.start import begin
from penstock.runtime.spark.worker.packets import as_batches, by_shard, channel_packets
from penstock.runtime.spark.worker.stage import ShardRound
from penstock.session import Session

STREAM = (
    "CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) FROM FILES (path '{path}', format 'csv', watch 'true')"
    " TIMESTAMP BY ts UNIT SECOND;"
)
#: By kind, the text of query `i`.
KINDS: dict[str, Callable[[int], str]] = {
    "sums over windows of other lengths": lambda i: f"SELECT k, SUM(v) AS t FROM s [RANGE {i + 1} SECONDS] GROUP BY k",
    "sums by other predicates": lambda i: f"SELECT k, SUM(v) AS t FROM s [RANGE 1 HOUR] WHERE v > {-i} GROUP BY k",
    "averages and counts": lambda i: f"SELECT k, AVG(v) AS t, COUNT(*) AS n FROM s [RANGE {i + 1} SECONDS] GROUP BY k",
    "sums that slide": lambda i: (
        f"RSTREAM(SELECT k, SUM(v) AS t FROM s [RANGE {i // 5 + 5} SECONDS SLIDE {i % 5 + 1} SECONDS] GROUP BY k)"
    ),
    "maxima": lambda i: f"SELECT k, MAX(v) AS t FROM s [RANGE {i + 1} SECONDS] GROUP BY k",
    "distinct": lambda i: f"SELECT DISTINCT k FROM s [RANGE {i + 1} SECONDS]",
    "windows": lambda i: f"SELECT k, v FROM s [RANGE {i + 1} SECONDS] WHERE v >= 0",
    "filters": lambda i: f"SELECT k, v FROM s WHERE v > {-i}",
}
PARTS = ("worker", "driver")


class Rounds:
    """Rounds of `count` queries of one kind."""

    def __init__(self, kind: str, count: int, root: Path) -> None:
        (root / "in").mkdir()
        session = Session()
        script = STREAM.format(path=root / "in") + "".join(
            f"CREATE QUERY q{i} INTO RESULTS () AS {KINDS[kind](i)};" for i in range(count)
        )
        session.execute(script, live=True)
        work = session._work(list(session.catalog.queries.values()), False)
        self._folder = Folder(root / "penstock")
        begun = begin(work, self._folder, False, lambda: 1)
        self._job, self._sinks = begun.job, begun.sinks
        self._local = LocalJob(self._job.plan, {})
        self._ingest = IngestExecutor(self._job.plan, "s", {})
        self._seen = SourceProgress()
        self._batch = 0
        self.profiles = {part: cProfile.Profile() for part in PARTS}
        self.profiled = False

    @contextmanager
    def _timed(self, part: str, spent: dict[str, float]) -> Iterator[None]:
        began = time.process_time()
        if self.profiled:
            self.profiles[part].enable()
        yield
        if self.profiled:
            self.profiles[part].disable()
        spent[part] = time.process_time() - began

    def round(self, tick: int) -> tuple[dict[str, float], int]:
        """Run a round with one row; return the CPU seconds of its parts, and the rows of all answers."""
        rows = pa.record_batch({n: pa.array([v], pa.int64()) for n, v in {"k": 1, "v": tick, "ts": tick}.items()})
        stamped = self._local.stamp(ScheduledRows("s", rows), self._seen, None)
        self._seen = self._seen.merge(stamped.progress)
        router = ExchangeRouter(self._job.shards)
        elements: Elements = stamped.elements
        columns = [elements.columns[c] for c in self._ingest.columns]
        router.post(self._ingest.run(elements.with_columns(columns)), 0)
        packets = list(by_shard(self._job.shards, {"s": self._seen}))
        for target, channel, batches in router:
            packets += channel_packets(target, channel, batches, 0)
        spent: dict[str, float] = {}
        root = str(self._folder.root)
        sent: list[pa.RecordBatch] = []
        with self._timed("worker", spent):
            for shard in range(self._job.shards):
                state, backfilled = open_state(root, self._job, 1, shard, self._batch)
                round_ = ShardRound(root, self._job, {}, 1, state, backfilled)
                sent += as_batches(round_.run(shard, [p for p in packets if p.shard == shard]), self._job.keys)
        with self._timed("driver", spent):
            output = read_output(pa.Table.from_batches(sent), lambda report: None)
            assert output.heartbeats is not None, "it is the last stage"
            delivered = deliver_answers(self._job, self._sinks, output.answers, output.answers, self._batch)
            commit_logs(self._sinks, self._batch, output.heartbeats.queries, delivered)
        self._batch += 1
        return spent, sum(answer.rows for answer in delivered.values())


def measure(kind: str, count: int, rounds: int, profiled: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="penstock-rounds-") as name:
        run = Rounds(kind, count, Path(name))
        found: list[dict[str, float]] = []
        answers = 0
        for tick in range(rounds + 3):
            if tick == 3:
                # As a worker does with what it keeps.
                gc.collect()
                gc.freeze()
            run.profiled = profiled and tick >= 3
            spent, rows = run.round(tick)
            found.append(spent)
            answers += rows
        assert answers >= count, "all queries answer"
        if profiled:
            for part, profile in run.profiles.items():
                print(part)
                pstats.Stats(profile).sort_stats("tottime").print_stats(45)
                pstats.Stats(profile).sort_stats("cumtime").print_stats(60)
        return {part: min(spent[part] for spent in found[3:]) for part in PARTS}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounds", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="standing queries")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--profile", action="store_true", help="show which functions took the time")
    given = parser.parse_args()
    for kind in given.kinds:
        spent = measure(kind, given.count, given.rounds, given.profile)
        print(f"{kind}: " + ", ".join(f"{part} {seconds:.3f} s" for part, seconds in spent.items()), flush=True)


if __name__ == "__main__":
    main()
