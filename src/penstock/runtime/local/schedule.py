"""Cut bounded inputs into the rounds of the local runtime: at random, evenly, or by arrival time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import PlacedHeartbeat, StreamRecord, heartbeats_of
from penstock.physical.elements import Int64s

#: Arrival time of each row by the wall clock, in microseconds since 1970, by source.
Arrivals = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class ScheduledRows:
    """Rows of one source that arrive in one round. stamps: their arrival times, if the schedule has them; record: a
    heartbeat or a punctuation that comes before them."""

    source: str
    batch: pa.RecordBatch
    stamps: Int64s | None = None
    record: StreamRecord | None = None


@dataclass(frozen=True)
class Round:
    """One round. pieces: the arriving rows; ended: sources that end with it; now: wall-clock time, if the schedule has
    it.
    """

    pieces: list[ScheduledRows]
    ended: list[str]
    now: int | None = None


def rounds(
    sources: Mapping[str, Source], inputs: Mapping[str, pa.Table], seed: int | None, batch_rows: int | None
) -> Iterator[Round]:
    """Yield the rounds of a schedule without arrival times.

    Args:
        seed: cut every input at random places and interleave the sources at random.
        batch_rows: cut every input evenly; without this and `seed`, each input is one batch.
    """
    draw = random.Random(seed)
    remaining = {n: _pieces(n, inputs[n], draw if seed is not None else None, batch_rows) for n in sources}
    if not remaining:
        yield Round([], [])
    while remaining:
        drawn = list(remaining) if seed is None else draw.sample(sorted(remaining), draw.randint(1, len(remaining)))
        pieces = [piece for name in drawn if remaining[name] for piece in remaining[name].pop(0)]
        ended = [name for name in drawn if not remaining[name]]
        for name in ended:
            del remaining[name]
        yield Round(pieces, ended)


def rounds_by_clock(
    sources: Mapping[str, Source], inputs: Mapping[str, pa.Table], arrivals: Arrivals, seed: int | None
) -> Iterator[Round]:
    """Yield rounds in order of arrival time; with a seed, one round may span several instants.

    Where a source may become idle there is a round for every instant, as with a driver that reads the clock
    continuously.
    """
    draw = random.Random(seed)
    stamps_by_source = {name: np.asarray(arrivals.get(name, ()), np.int64) for name in sources}
    for name, stamps in stamps_by_source.items():
        assert len(stamps) == inputs[name].num_rows, f"{name}: an instant of arrival for every row"
    placed = {name: heartbeats_of(inputs[name].schema) for name in sources}
    instants = sorted(
        {int(stamp) for stamps in stamps_by_source.values() for stamp in stamps}
        | {one.arrival for beats in placed.values() for one in beats}
    )
    at_once = seed is not None and all(source.idle is None for source in sources.values())
    rows_done = dict.fromkeys(sources, 0)
    if not instants:
        yield Round([], list(sources))
    start = 0
    while start < len(instants):
        start += draw.randint(1, 4) if at_once else 1
        now = instants[min(start, len(instants)) - 1]
        pieces: list[ScheduledRows] = []
        for name, stamps in stamps_by_source.items():
            stop = int(np.searchsorted(stamps, now, side="right"))
            own = [one for one in placed[name] if one.arrival <= now]
            if stop > rows_done[name] or own:
                pieces += cut_at(own, inputs[name], name, rows_done[name], stop, stamps)
            rows_done[name], placed[name] = stop, placed[name][len(own) :]
        ended = [n for n, stamps in stamps_by_source.items() if rows_done[n] == len(stamps) and not placed[n]]
        yield Round(pieces, ended, now)


def _pieces(
    name: str, table: pa.Table, draw: random.Random | None, batch_rows: int | None
) -> list[list[ScheduledRows]]:
    """Return what arrives of a source in each of its rounds."""
    size = table.num_rows
    if draw is not None:
        cuts = sorted(draw.randint(0, size) for _ in range(draw.randint(0, min(8, size))))
    else:
        cuts = list(range(batch_rows, size, batch_rows)) if batch_rows else []
    placed = heartbeats_of(table.schema)
    if draw is not None and placed:
        # A heartbeat may come in the round before the rows around it, or in the one after.
        cuts = sorted([*cuts, *(one.rows for one in placed if draw.random() < 0.5)])
    bounds = [0, *cuts, size]
    rounds = []
    for number, (a, b) in enumerate(pairwise(bounds)):
        is_last = number == len(bounds) - 2
        own = [one for one in placed if a <= one.rows < b or (is_last and one.rows == b)]
        rounds.append(list(cut_at(own, table, name, a, b)))
    return rounds


def cut_at(
    heartbeats: Sequence[PlacedHeartbeat],
    table: pa.Table,
    name: str = "",
    start: int = 0,
    stop: int | None = None,
    stamps: Int64s | None = None,
) -> Iterator[ScheduledRows]:
    """Yield the rows of a table from `start` up to `stop`, cut at the heartbeats among them. stamps: of all rows."""
    stop = table.num_rows if stop is None else stop
    record: StreamRecord | None = None
    for one in [*heartbeats, None]:
        end = stop if one is None else one.rows
        own = None if stamps is None else stamps[start:end]
        if end > start or record is not None or not heartbeats:
            yield ScheduledRows(name, _one_batch(table.slice(start, end - start)), own, record)
        start, record = end, None if one is None else one.record


def _one_batch(part: pa.Table) -> pa.RecordBatch:
    part = part.combine_chunks()
    return part.to_batches()[0] if part.num_rows else pa.RecordBatch.from_pylist([], part.schema)
