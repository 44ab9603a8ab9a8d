"""Cut bounded inputs into the rounds of the local runtime: at random, evenly, or by arrival time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.physical.elements import Int64s

#: Arrival time of each row by the wall clock, in microseconds since 1970, by source.
Arrivals = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class ScheduledRows:
    """Rows of one source that arrive in one round. stamps: their arrival times, if the schedule has them."""

    source: str
    batch: pa.RecordBatch
    stamps: Int64s | None = None


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
    remaining = {name: _pieces(inputs[name], draw if seed is not None else None, batch_rows) for name in sources}
    if not remaining:
        yield Round([], [])
    while remaining:
        drawn = list(remaining) if seed is None else draw.sample(sorted(remaining), draw.randint(1, len(remaining)))
        pieces = [ScheduledRows(name, remaining[name].pop(0)) for name in drawn if remaining[name]]
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
    instants = sorted({int(stamp) for stamps in stamps_by_source.values() for stamp in stamps})
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
            if stop > rows_done[name]:
                batch = _one_batch(inputs[name].slice(rows_done[name], stop - rows_done[name]))
                pieces.append(ScheduledRows(name, batch, stamps[rows_done[name] : stop]))
            rows_done[name] = stop
        ended = [name for name, stamps in stamps_by_source.items() if rows_done[name] == len(stamps)]
        yield Round(pieces, ended, now)


def _pieces(table: pa.Table, draw: random.Random | None, batch_rows: int | None) -> list[pa.RecordBatch]:
    size = table.num_rows
    if draw is not None:
        cuts = sorted(draw.randint(0, size) for _ in range(draw.randint(0, min(8, size))))
    else:
        cuts = list(range(batch_rows, size, batch_rows)) if batch_rows else []
    bounds = [0, *cuts, size]
    return [_one_batch(table.slice(a, b - a)) for a, b in pairwise(bounds)]


def _one_batch(part: pa.Table) -> pa.RecordBatch:
    part = part.combine_chunks()
    return part.to_batches()[0] if part.num_rows else pa.RecordBatch.from_pylist([], part.schema)
