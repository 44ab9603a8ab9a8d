"""Join orders, predicted against measured: `python -m benchmarks.multijoin [--rows N] [--write]`.

The experiment of `[golab 5.4]` on its three sets of parameters (tables 5.3, 5.5 and 5.6; 5.5 with the λ1 = 10 that its
costs are computed from): one tuple a tick, from stream i with probability λi / Σλ, its join value uniform among
1..vi, windows of Ti units of time (Σλ ticks each). All 24 orders of the pipelined join run on the local runtime; their
answers must be equal. The table goes to `benchmarks/results/multijoin.md` with `--write`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa

from penstock.algebra.optimizer.join_order import (
    JoinGraph,
    JoinInput,
    Order,
    all_orders,
    choose_order,
    cost,
    probing_order,
)
from penstock.algebra.optimizer.optimizer import optimize
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements, Int64s
from penstock.physical.execution.executor import IngestExecutor
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.kernels.fingerprints import UInt64s
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.joins import multi_join
from penstock.physical.operators.joins.multi_join import MultiJoin
from penstock.physical.plan.joins.specs import MultiJoinSpec
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.planner import plan_queries
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRun, probe_pieces
from penstock.runtime.local.runtime import LocalJob

REPORT = Path(__file__).parent / "results" / "multijoin.md"
BEGIN, FINISH = "<!-- table -->\n", "<!-- end -->\n"
BATCH = 2000

#: Table of the thesis -> (λ, T, v) of its four streams.
PARAMETERS = {
    "5.3": ((10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5)),
    "5.5": ((10, 100, 40), (1, 100, 100), (1, 100, 8), (1, 100, 5)),
    "5.6": ((11, 100, 200), (10, 100, 100), (1, 100, 65), (1, 100, 20)),
}


_ADVANCE = MultiJoin.advance


@dataclass(frozen=True)
class Measured:
    """One order. looked_at: pairs that probes found; seconds: CPU time in the join, the least of the repetitions;
    answer: events and their sum over time."""

    looked_at: int
    seconds: float
    answer: tuple[int, int]


def graph(name: str, indexed: bool) -> JoinGraph:
    """The cost model's view of a set: windows that are scanned, or indexed by the join value as the engine's are."""
    buckets = None if indexed else 1.0
    return JoinGraph(tuple(JoinInput(r, t, (v,), buckets) for r, t, v in PARAMETERS[name]))


def plan(name: str) -> Plan:
    """The plan of the join; its order is replaced later."""
    ticks = sum(rate for rate, _, _ in PARAMETERS[name])
    streams = "".join(
        f"CREATE STREAM S{i} (ts BIGINT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;\n" for i in range(1, 5)
    )
    windows = ", ".join(f"S{i} [RANGE {t * ticks} SECOND]" for i, (_, t, _) in enumerate(PARAMETERS[name], 1))
    query = f"CREATE QUERY q AS SELECT COUNT(*) AS n FROM {windows} WHERE S1.a = S2.a AND S2.a = S3.a AND S3.a = S4.a;"
    bound = bind_script(streams + query)
    return plan_queries([replace(bound.queries[0], root=optimize(bound.queries[0].root))])


def in_order(made: Plan, order: Order, streams: JoinGraph) -> Plan:
    """`made` with the inputs of its join probed in the given global order."""
    orders = tuple(probing_order(streams, order, i) for i in range(len(order)))
    steps = tuple(
        replace(step, spec=replace(step.spec, order=order, orders=orders))
        if isinstance(step.spec, MultiJoinSpec)
        else step
        for step in made.steps
    )
    return replace(made, steps=steps)


def inputs(name: str, rows: int, seed: int) -> Iterator[dict[str, pa.RecordBatch]]:
    """Batches of `BATCH` ticks by stream."""
    draw = np.random.default_rng(seed)
    rates = np.array([rate for rate, _, _ in PARAMETERS[name]], float)
    for start in range(0, rows, BATCH):
        ts = np.arange(start, start + BATCH)
        chosen = draw.choice(4, BATCH, p=rates / rates.sum())
        found = {}
        for i, (_, _, values) in enumerate(PARAMETERS[name]):
            own: Int64s = ts[chosen == i]
            arrays = [pa.array(own), pa.array(draw.integers(1, values + 1, len(own)), pa.int32())]
            found[f"S{i + 1}"] = pa.RecordBatch.from_arrays(arrays, names=["ts", "a"])
        yield found


class _Watch:
    """Counts what probes find, and the CPU time of the join, while it is entered."""

    def __init__(self) -> None:
        self.found, self.seconds = 0, 0.0

    def _probe(
        self, run_: SortedRun, elements: Elements, first: UInt64s, second: UInt64s, limit: int | None
    ) -> Iterator[tuple[Int64s, Int64s]]:
        for probe, found in probe_pieces(run_, elements, first, second, limit):
            self.found += len(probe)
            yield probe, found

    def __enter__(self) -> _Watch:
        def advance(operator: MultiJoin, moment: Moment) -> list[Elements]:
            began = time.process_time()
            made = _ADVANCE(operator, moment)
            self.seconds += time.process_time() - began
            return made

        self._patches = (
            mock.patch.object(multi_join, "probe_pieces", self._probe),
            mock.patch.object(MultiJoin, "advance", advance),
        )
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()


def run(made: Plan, batches: list[dict[str, pa.RecordBatch]]) -> Measured:
    """One order over the whole input."""
    job = LocalJob(made, {}, 1)
    seen = {name: SourceProgress() for name in made.sources}
    count, total = 0, 0
    with _Watch() as watch:
        for number, batch in enumerate(batches):
            stamped = {}
            for name, rows in batch.items():
                ingest: IngestExecutor = job.ingests[name]
                source = made.sources[name]
                columns = read_columns(source, ingest.columns)
                taken = stamp(source, rows, columns, ingest.columns, seen[name])
                high = (number + 1) * BATCH - 1
                seen[name] = seen[name].merge(taken.progress).merge(SourceProgress(0, high, number + 1 == len(batches)))
                stamped[name] = [taken.elements]
            for elements in job.round(stamped, seen).get("q", []):
                values = elements.columns[0].to_numpy(zero_copy_only=False)
                count += len(elements)
                total += int((values * elements.signs * (elements.ts + 1)).sum())
    return Measured(watch.found, watch.seconds, (count, total))


def measure(name: str, rows: int, repetitions: int) -> dict[Order, Measured]:
    """All orders, in random turns so that nothing favours the first."""
    made, streams = plan(name), graph(name, indexed=True)
    batches = list(inputs(name, rows, seed=5))
    run(made, batches[:4])  # compiles the loops
    best: dict[Order, Measured] = {}
    draw = random.Random(5)
    for _ in range(repetitions):
        orders = list(all_orders(streams))
        draw.shuffle(orders)
        for order in orders:
            found = run(in_order(made, order, streams), batches)
            known = best.get(order)
            best[order] = found if known is None or found.seconds < known.seconds else known
    assert len({m.answer for m in best.values()}) == 1, "orders answer differently"
    return best


def agreement(one: list[float], other: list[float]) -> float:
    """Spearman's rank correlation."""
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def report(rows: int, repetitions: int) -> str:
    """The tables, one per set."""
    parts = [f"{rows:,} tuples, batches of {BATCH}, the least CPU time in the join of {repetitions} runs.\n"]
    for name in PARAMETERS:
        parts.append(_table(name, measure(name, rows, repetitions), rows))
    return "\n".join(parts)


def _table(name: str, measured: dict[Order, Measured], rows: int) -> str:
    scanned, indexed = graph(name, indexed=False), graph(name, indexed=True)
    ticks = sum(rate for rate, _, _ in PARAMETERS[name])
    chosen = {"by the engine's model": choose_order(indexed), "by the thesis's model": choose_order(scanned)}
    ranked = sorted(measured, key=lambda order: measured[order].seconds)
    shown = {**chosen, "fastest": ranked[0], "median": ranked[len(ranked) // 2], "slowest": ranked[-1]}
    lines = [
        f"\n### Table {name}\n",
        "| order | | scanning, predicted | index, predicted per 1000 | pairs found per 1000 | CPU ms per 1000 |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for title, order in shown.items():
        found = measured[order]
        predicted = cost(indexed, order) / ticks * 1000
        lines.append(
            f"| {', '.join(f'S{i + 1}' for i in order)} | {title} | {cost(scanned, order):,.0f} | {predicted:,.0f} "
            f"| {found.looked_at / rows * 1000:,.0f} | {found.seconds / rows * 1e6:.2f} |"
        )
    orders = list(measured)
    pairs = [float(measured[o].looked_at) for o in orders]
    times = [measured[o].seconds for o in orders]
    model = [cost(indexed, o) for o in orders]
    own = chosen["by the engine's model"]
    slower = measured[own].seconds / min(times)
    lines.append(
        f"\nOver all {len(orders)} orders: rank correlation of the prediction with the pairs found "
        f"{agreement(model, pairs):.2f}, with the CPU time {agreement(model, times):.2f}. The engine's choice is "
        f"number {ranked.index(own) + 1} of {len(orders)} by CPU time, {slower:.2f} times the fastest; the slowest is "
        f"{max(times) / min(times):.2f} times. All orders gave the same answer.\n"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/results/multijoin.md")
    arguments = parser.parse_args()
    text = report(arguments.rows, arguments.repetitions)
    print(text)
    if arguments.write:
        before, _, rest = REPORT.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(FINISH)[2]
        REPORT.write_text(f"{before}{BEGIN}{text}\n{FINISH}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
