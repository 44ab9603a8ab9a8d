"""The arrival order of records of several partitions, and which of a round's records have arrived.

A partition has an order; Kafka defines none across partitions. Here a record arrives at the largest time seen in its
partition up to it, ties by partition and offset. So partitions that are each in order form a stream in order, wherever
rounds are cut: if a partition has more records after its range, no record of the others with a later time than its last
one arrives yet. Records that have not arrived are read again in the next round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Arrived:
    """Records that have arrived. `order`: their positions, in order; `positions`: partition -> the next offset to
    read.
    """

    order: Int64s
    positions: dict[str, int]


def arrived(partition: Int64s, offset: Int64s, time: Int64s, timed: Bools, ranges: Mapping[str, list[int]]) -> Arrived:
    """Return which of some records, in the order (partition, offset), have arrived.

    Args:
        partition: of each record.
        offset: of each record.
        time: of each record, valid where `timed`.
        timed: whether a record has a time.
        ranges: partition -> [from, to, whether it has more records after that].
    """
    bounds = {int(p): limits for p, limits in ranges.items()}
    arrival_time = np.where(timed, time, _NEVER)
    frontier = np.iinfo(np.int64).max
    for p, (start, stop) in _runs(partition).items():
        arrival_time[start:stop] = np.maximum.accumulate(arrival_time[start:stop])
        if bounds[p][2]:
            frontier = min(frontier, int(arrival_time[stop - 1]))
    partitions = {int(p) for p in np.unique(partition)}
    if any(limits[2] and p not in partitions for p, limits in bounds.items()):
        # All of the range was compacted away: what follows it is not known yet.
        frontier = _NEVER
    has_arrived = arrival_time <= frontier
    positions = {str(p): limits[1] for p, limits in bounds.items()}
    for p, (start, stop) in _runs(partition).items():
        waiting = np.flatnonzero(~has_arrived[start:stop])
        if len(waiting):
            positions[str(p)] = int(offset[start + waiting[0]])
    arrived_rows = np.flatnonzero(has_arrived)
    return Arrived(arrived_rows[np.argsort(arrival_time[arrived_rows], kind="stable")], positions)


def _runs(partition: Int64s) -> dict[int, tuple[int, int]]:
    """Return the range of each partition's records."""
    names, starts = np.unique(partition, return_index=True)
    stops = np.append(starts, len(partition))[1:]
    return {int(p): (int(a), int(b)) for p, a, b in zip(names, starts, stops, strict=True)}
