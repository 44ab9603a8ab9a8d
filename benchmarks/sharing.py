"""What queries share that began at different times: python -m benchmarks.sharing

In one process, without Spark: the CPU time of a round, the bytes of state and the rows over the exchange, of one query
and of many that are registered one after the other, each START WARM, while a stream goes on. The answers of
the first and of the last are compared with those of the same query alone over the same input. Then standing sums
of one script whose windows slide, one and 1,000, and five consumers of one window by one key.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.algebra import leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.optimizer.optimizer import optimize
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.exchange import ExchangeRouter, StageResult
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.allocation import collect_new_only
from penstock.runtime.live import LiveEngine
from penstock.runtime.local.runtime import LocalJob
from penstock.runtime.local.schedule import ScheduledRows
from penstock.testing.compare import events_of

ROUNDS, ROWS, KEYS = 10, 1_000, 250
#: Of joins that match few rows of a larger stream: 20,000 rows a round, of which a relation has 10 of 5,000 keys.
MANY_ROWS, MANY_KEYS, MATCHED = 20_000, 5_000, 10
#: Of windows that slide: a second has so many rows, of so many keys; lengths and slides of the windows in seconds.
SECONDS, PER_SECOND, GROUPS = 40, 20_000, 10
LENGTHS, SLIDES = range(10, 35), (1, 2, 5, 10)
FIVE = (
    "SELECT S.k, S.a, R0.b FROM S [RANGE 8 SECONDS], R0 WHERE S.k = R0.k",
    "SELECT S.k, S.a, R1.b FROM S [RANGE 8 SECONDS], R1 WHERE S.k = R1.k",
    "SELECT S.k, S.a, R2.b FROM S [RANGE 8 SECONDS], R2 WHERE S.k = R2.k",
    "SELECT x.k, x.a, y.a AS b FROM S [RANGE 8 SECONDS] x, S [RANGE 8 SECONDS] y WHERE x.k = y.k AND x.a < y.a",
    "SELECT k, a FROM S [RANGE 8 SECONDS] WHERE NOT EXISTS (SELECT * FROM R0 WHERE R0.k = S.k)",
)


@dataclass(frozen=True)
class Shape:
    """Queries of one kind. text: of number i; sources: the declarations beside that of S that number i needs."""

    name: str
    text: Callable[[int], str]
    relations: bool = False
    selective: bool = False

    def script(self, number: int) -> str:
        declared = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        if self.relations:
            declared += (
                f"CREATE RELATION R{number} (ts INT, k INT, b INT, PRIMARY KEY (k))"
                " FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
            )
        return f"{declared} CREATE QUERY q{number} AS {self.text(number)};"


SHAPES = (
    Shape("one sum, again and again", lambda i: "SELECT k, SUM(a) AS s FROM S [RANGE 8 SECONDS] GROUP BY k"),
    Shape(
        "sums of one window, each with a HAVING of its own",
        lambda i: f"SELECT k, SUM(a) AS s FROM S [RANGE 8 SECONDS] GROUP BY k HAVING SUM(a) > {i}",
    ),
    Shape(
        "joins of one window, each with a relation of its own",
        lambda i: f"SELECT S.k, S.a, R{i}.b FROM S [RANGE 8 SECONDS], R{i} WHERE S.k = R{i}.k",
        relations=True,
    ),
    Shape(
        "joins of a larger window, each with few rows of it",
        lambda i: f"SELECT S.k, S.a, R{i}.b FROM S [RANGE 8 SECONDS], R{i} WHERE S.k = R{i}.k",
        relations=True,
        selective=True,
    ),
    Shape(
        "joins of windows of several lengths",
        lambda i: f"SELECT S.k, S.a, R{i}.b FROM S [RANGE {9 - 7 * i % 9} SECONDS], R{i} WHERE S.k = R{i}.k",
        relations=True,
        selective=True,
    ),
    Shape(
        "MAX of windows of several lengths",
        lambda i: f"SELECT k, MAX(a) AS m FROM S [RANGE {9 - 7 * i % 9} SECONDS] GROUP BY k",
    ),
    Shape(
        "sums of windows of several lengths that slide",
        lambda i: (
            f"RSTREAM(SELECT k, SUM(a) AS s FROM S [RANGE {18 - 14 * i % 18} SECONDS SLIDE 2 SECONDS] GROUP BY k)"
        ),
    ),
)


@dataclass(frozen=True)
class Figures:
    """Of the last rounds of a run. cpu: seconds of one; state: bytes; steps: of the plan; sent: rows of one round."""

    cpu: float
    state: int
    steps: int
    sent: float


def stream(round_: int, rows: int = ROWS, count: int = KEYS) -> pa.RecordBatch:
    draw = np.random.default_rng(round_)
    ts = np.full(rows, round_, np.int32)
    keys, values = (draw.integers(0, count, rows).astype(np.int32) for _ in range(2))
    return pa.RecordBatch.from_arrays([pa.array(c) for c in (ts, keys, values)], ["ts", "k", "a"])


def relation(round_: int, selective: bool = False) -> pa.RecordBatch:
    keys = np.arange(round_ % 10, KEYS, 50, dtype=np.int32)
    if selective:
        keys = np.array([round_ % MATCHED * (MANY_KEYS // MATCHED)], np.int32)
    ts = np.full(len(keys), round_, np.int32)
    return pa.RecordBatch.from_arrays([pa.array(c) for c in (ts, keys, keys)], ["ts", "k", "b"])


def run(shape: Shape, count: int) -> tuple[Figures, dict[str, list[object]]]:
    """Run `count` queries of a shape; return the figures and, by query, its changes behind the last registration."""
    engine = LiveEngine(1)
    queries: dict[str, Query] = {}
    events: dict[str, list[object]] = {}
    relations: list[str] = []
    sent = 0
    post = ExchangeRouter.post

    def counted(router: ExchangeRouter, result: StageResult, sender: int) -> None:
        nonlocal sent
        sent += sum(len(part) for batches in result.onward.values() for part in batches)
        post(router, result, sender)

    def round_(number: int) -> float:
        engine.insert("S", stream(number, MANY_ROWS, MANY_KEYS) if shape.selective else stream(number))
        for name in relations:
            engine.insert(name, relation(number, shape.selective))
        began = time.process_time()
        tables = engine.round()
        cpu = time.process_time() - began
        for name, table in tables.items():
            events.setdefault(name, []).extend(events_of(queries[name], table))
        return cpu

    bound = [bind_script(shape.script(i)).queries[0] for i in range(count)]
    for query in bound:
        for leaf in leaves(query.root):
            assert isinstance(leaf, Scan)
            if not engine.is_declared(leaf.source.name):
                engine.declare(leaf.source)
                relations += [leaf.source.name] if leaf.source.name != "S" else []
    for number in range(ROUNDS):
        round_(number)
    for query in bound:
        queries[query.name] = query
        engine.register(query, Start(StartMode.WARM))
    events.clear()
    ExchangeRouter.post = counted  # type: ignore[method-assign]
    try:
        with loaded():
            cpu = sorted(round_(ROUNDS + number) for number in range(ROUNDS))[ROUNDS // 2]
    finally:
        ExchangeRouter.post = post  # type: ignore[method-assign]
    executors: Sequence[StageExecutor] = [executor for row in engine._job.stages for executor in row]
    state = sum(
        chunk.nbytes
        for executor in executors
        for synopsis in executor.snapshot().synopses.values()
        for chunk in synopsis.chunks.values()
    )
    return Figures(cpu, state, len(engine._job.plan.steps), sent / ROUNDS), events


@contextmanager
def loaded() -> Iterator[None]:
    """Leave what there is to no collection of garbage inside the block, as servers and workers do with plans and what
    they keep."""
    collect_new_only()
    try:
        yield
    finally:
        gc.unfreeze()


def check(shape: Shape, events: dict[str, list[object]]) -> None:
    """Compare the answers of the first query and of the last with those of each alone."""
    names = sorted(events, key=lambda name: int(name[1:]))
    for name in {names[0], names[-1]}:
        number = int(name[1:])
        alone = run(_only(shape, number), 1)[1]
        (expected,) = alone.values()
        assert sorted(map(str, expected)) == sorted(map(str, events[name])), f"{shape.name}: {name} is wrong"


def _only(shape: Shape, number: int) -> Shape:
    """Return the shape whose first query is that of `number`."""
    text = shape.text(number).replace(f"R{number}", "R0")
    return Shape(shape.name, lambda _: text, shape.relations, shape.selective)


def sums(count: int) -> float:
    """Return the CPU seconds of `count` standing sums over windows of one script that slide, with the answers of the
    first and the last compared with those of each alone."""
    windows = [(length, slide) for length in LENGTHS for slide in SLIDES]
    texts = [
        f"RSTREAM(SELECT k, SUM(a + {i // len(windows)}) AS s FROM S [RANGE {length} SECONDS SLIDE {slide} SECONDS]"
        " GROUP BY k)"
        for i in range(count)
        for length, slide in [windows[i % len(windows)]]
    ]
    declared = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    cpu, found = _standing(declared, texts)
    for number in {0, count - 1}:
        (expected,) = _standing(declared, [texts[number]])[1]
        assert expected and sorted(map(str, expected)) == sorted(map(str, found[number])), f"sum {number} is wrong"
    return cpu


def _standing(declared: str, texts: Sequence[str]) -> tuple[float, list[list[object]]]:
    """Run queries of one script over a stream; return the CPU seconds of the rounds, and the answers."""
    script = declared + "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(texts))
    queries = [replace(query, root=optimize(query.root)) for query in bind_script(script).queries]
    job = LocalJob(plan_queries(queries), {})
    seen = SourceProgress()
    answers: dict[str, list[Elements]] = {query.name: [] for query in queries}
    cpu = 0.0
    with loaded():
        for second in range(SECONDS):
            rows = stream(second, PER_SECOND, GROUPS)
            began = time.process_time()
            stamped = job.stamp(ScheduledRows("S", rows), seen, None)
            seen = seen.merge(stamped.progress)
            for name, parts in job.round({"S": [stamped.elements]}, {"S": seen}).items():
                answers[name] += parts
            cpu += time.process_time() - began
    tables = [answer_table(query, answers[query.name]) for query in queries]
    return cpu, [list(events_of(query, table)) for query, table in zip(queries, tables, strict=True)]


def five_consumers() -> tuple[int, int]:
    """Return how many rows of one window by one key are sent to its five consumers, and how many there are."""
    declared = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;" + "".join(
        f"CREATE RELATION R{i} (ts INT, k INT, b INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        for i in range(3)
    )
    script = declared + "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(FIVE))
    queries = [replace(query, root=optimize(query.root)) for query in bind_script(script).queries]
    job = LocalJob(plan_queries(queries), {})
    rows = stream(0)
    stamped = job.stamp(ScheduledRows("S", rows), SourceProgress(), None)
    sent = job.ingests["S"].run(stamped.elements).onward
    return sum(len(part) for parts in sent.values() for part in parts), rows.num_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 10, 30])
    parser.add_argument("--joins", type=int, nargs="+", default=[1, 10, 100], help="of the larger window")
    parser.add_argument("--sums", type=int, nargs="+", default=[1, 100, 1_000])
    options = parser.parse_args()
    table = Table(
        "queries", "number", "CPU of a round, ms", "state, kB", "steps", "rows sent a round", "CPU, state to one"
    )
    for shape in SHAPES:
        first: Figures | None = None
        for count in options.joins if shape.selective else options.queries:
            figures, events = run(shape, count)
            check(shape, events)
            first = first or figures
            ratios = f"{figures.cpu / first.cpu:.1f}, {figures.state / first.state:.1f}"
            cells = (
                f"{figures.cpu * 1000:.1f}",
                f"{figures.state / 1000:.0f}",
                figures.steps,
                f"{figures.sent:.0f}",
                ratios,
            )
            table.add_row(shape.name, str(count), *map(str, cells))
            print(shape.name, count, *cells, sep="; ", flush=True)
    alone = 0.0
    for count in options.sums:
        cpu = sums(count)
        alone = alone or cpu
        cells = (f"{cpu * 1000 / SECONDS:.1f}", "", "", "", f"{cpu / alone:.1f}")
        table.add_row("sums of windows that slide", str(count), *cells)
        print("sums of windows that slide", count, *cells, sep="; ", flush=True)
    sent, rows = five_consumers()
    Console().print(table)
    print(f"five consumers of one window by one key: {sent} rows sent of {rows}")


if __name__ == "__main__":
    main()
