"""Measuring operators in this process: CPU time per tuple, state, and a digest of the answer.

Contract: `measure` drives the local runtime's stages over bounded inputs in rounds of equal stretches of time, one
shard, and counts the CPU time of this process (all its threads) in the rounds after `warm`, when all windows are full.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import Planning, optimize
from penstock.algebra.properties.statistics import observe
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.ingest import StampedRows, read_columns, stamp
from penstock.physical.execution.progress import SourceProgress, timed_sources
from penstock.physical.kernels.compiled import group_codes
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.runtime.local.runtime import LocalJob, compute_statics


@dataclass(frozen=True)
class Measured:
    """tuples: those of the measured rounds; seconds: their CPU time; state_bytes, state_rows: the mean after each of
    them; results: how many changes or elements the whole run told; digest: of all of them, whatever their order."""

    tuples: int
    seconds: float
    state_bytes: int
    state_rows: int
    results: int
    digest: int

    @property
    def micros(self) -> float:
        """CPU microseconds a tuple."""
        return self.seconds / self.tuples * 1e6


def measure(
    script: str,
    inputs: Mapping[str, pa.Table],
    *,
    step: int,
    warm: int,
    strategy: Strategy = Strategy.PATTERN,
    view: bool = False,
    as_written: bool = False,
    peer: Callable[[Plan, Query], Plan] | None = None,
    ready: Callable[[], object] | None = None,
    each: Callable[[LocalJob, int], object] | None = None,
) -> Measured:
    """The one query of `script` over `inputs` (first column: the integer timestamp, in order), in rounds of `step`
    ticks. warm: the tick from which on it is measured; view: also keep the result, as a hash table that the told
    changes update; as_written: without choices by cost; peer: turns the plan of the query into that of a rival, to be
    measured instead; ready: called before the first round; each: called after each measured
    round with the job and the tick at which the round ended."""
    (query,) = bind_script(script).queries
    known = observe(timed_sources(query.root), inputs)
    planning = Planning(known, by_pattern=False) if as_written else strategy.planning(known)
    chosen = replace(query, root=optimize(query.root, planning=planning))
    plan = plan_queries([chosen], known, strategy)
    if peer is not None:
        plan = peer(plan, chosen)
    job = LocalJob(plan, compute_statics(plan, inputs))
    feeds = {name: _Feed(job, name, inputs[name]) for name in plan.sources}
    last = max(int(feed.ticks[-1]) for feed in feeds.values())
    tuples = results = total = 0
    seconds = 0.0
    held: list[tuple[int, int]] = []
    kept = KeyedTable(1, 0, query.root.schema.types) if view else None
    gc.collect()
    if ready is not None:
        ready()
    for end in range(step, last + step, step):
        pieces = {name: feed.until(end) for name, feed in feeds.items()}
        before = time.process_time()
        stamped = {name: feeds[name].stamp(piece) for name, piece in pieces.items() if piece.num_rows}
        answers = job.round(
            {name: [rows.elements] for name, rows in stamped.items()},
            {name: feed.seen for name, feed in feeds.items()},
            spoken={name: [rows.spoken] for name, rows in stamped.items() if rows.spoken is not None},
        )
        for part in answers.get(query.name, ()) if kept is not None else ():
            _keep(kept, part)
        spent = time.process_time() - before
        for part in answers.get(query.name, ()):
            results += int(np.abs(part.signs).sum())
            total = (total + digest(part)) % 2**64
        if end > warm:
            seconds += spent
            tuples += sum(piece.num_rows for piece in pieces.values())
            size, rows = state_of(job)
            if each is not None:
                each(job, end)
            held.append((size, rows) if kept is None else (size + kept.nbytes, rows + kept.rows))
    sizes = np.array(held, np.int64).mean(axis=0)
    return Measured(tuples, seconds, int(sizes[0]), int(sizes[1]), results, total)


class _Feed:
    """One source, cut by time."""

    def __init__(self, job: LocalJob, name: str, table: pa.Table) -> None:
        self._source, self._ingest = job.plan.sources[name], job.ingests[name]
        self._columns = read_columns(self._source, self._ingest.columns)
        (self._rows,) = table.combine_chunks().to_batches()
        self.ticks = self._rows.column(0).to_numpy()
        self._at = 0
        self.seen = SourceProgress()

    def until(self, tick: int) -> pa.RecordBatch:
        """The rows before `tick` that were not given yet."""
        stop = int(np.searchsorted(self.ticks, tick))
        piece = self._rows.slice(self._at, stop - self._at)
        self._at = stop
        return piece

    def stamp(self, piece: pa.RecordBatch) -> StampedRows:
        chosen = pa.RecordBatch.from_arrays([piece.column(c) for c in self._columns], [str(c) for c in self._columns])
        rows = stamp(self._source, chosen, self._columns, self._ingest.columns, self.seen)
        self.seen = replace(self.seen.merge(rows.progress), ended=self._at == len(self.ticks))
        return rows


def _keep(view: KeyedTable, part: Elements) -> None:
    """Bring the result up to date with changes."""
    first, second = fingerprints(part.columns, len(part))
    codes, heads = group_codes(first, second)
    chosen = pa.array(heads)
    slots = view.slots(first[heads], second[heads], [c.take(chosen) for c in part.columns])
    np.add.at(view.integers[0], slots[codes], part.signs)
    view.touch(slots)
    view.shrink()


def state_of(job: LocalJob) -> tuple[int, int]:
    """Return bytes and rows of all that the operators of a job hold."""
    synopses = [s for row in job.stages for executor in row for s in executor.synopses().values()]
    return sum(s.nbytes for s in synopses), sum(s.rows for s in synopses)


def digest(part: Elements) -> int:
    """Return a sum over elements that depends on neither their order nor their cut; sums are added modulo 2^64."""
    columns = [*part.columns, pa.array(part.ts), pa.array(np.sign(part.signs))]
    first, second = fingerprints(columns, len(part))
    words = (first ^ second * np.uint64(0x9E3779B97F4A7C15)) * np.abs(part.signs).astype(np.uint64)
    return int(words.sum(dtype=np.uint64))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, its first column to the left."""
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_table(page: Path, heading: str, table: str) -> None:
    """Put `table` in the place of the first table below `heading` in a Markdown page, or below a new heading at its
    end."""
    lines = page.read_text(encoding="utf-8").splitlines()
    if heading not in lines:
        lines += ["", heading, ""]
    start = lines.index(heading) + 1
    end = next((i for i in range(start, len(lines)) if lines[i].startswith("#")), len(lines))
    old = [i for i in range(start, end) if lines[i].startswith("|")]
    first, last, behind = (old[0], old[-1] + 1, []) if old else (end, end, [""])
    made = [*lines[:first], *table.splitlines(), *behind, *lines[last:]]
    page.write_text("\n".join(made).rstrip() + "\n", encoding="utf-8")
