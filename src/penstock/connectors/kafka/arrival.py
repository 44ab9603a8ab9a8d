"""In which order the records of several partitions arrive, and which of a round's records have arrived.

A partition is an order of its own; across partitions Kafka knows none. Here a record arrives at the largest time seen
in its partition up to it, ties by partition and offset. So partitions that each are in order make a stream in order,
wherever rounds are cut: of a partition with more behind its range nothing later than its last record's time may arrive
from the others yet. What has not arrived is read again in the next round.
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
    """order: positions of the records that have arrived, in order; positions: partition -> the offset to go on from."""

    order: Int64s
    positions: dict[str, int]


def arrived(partition: Int64s, offset: Int64s, time: Int64s, timed: Bools, ranges: Mapping[str, list[int]]) -> Arrived:
    """Of records in the order (partition, offset). time: of each, where `timed`; ranges: partition -> [from, to,
    whether more waits behind]."""
    bounds = {int(p): limits for p, limits in ranges.items()}
    reached = np.where(timed, time, _NEVER)
    frontier = np.iinfo(np.int64).max
    for p, (start, stop) in _runs(partition).items():
        reached[start:stop] = np.maximum.accumulate(reached[start:stop])
        if bounds[p][2]:
            frontier = min(frontier, int(reached[stop - 1]))
    there = {int(p) for p in np.unique(partition)}
    if any(limits[2] and p not in there for p, limits in bounds.items()):
        # All of the range was compacted away: what comes behind it is not known yet.
        frontier = _NEVER
    here = reached <= frontier
    positions = {str(p): limits[1] for p, limits in bounds.items()}
    for p, (start, stop) in _runs(partition).items():
        missing = np.flatnonzero(~here[start:stop])
        if len(missing):
            positions[str(p)] = int(offset[start + missing[0]])
    chosen = np.flatnonzero(here)
    return Arrived(chosen[np.argsort(reached[chosen], kind="stable")], positions)


def _runs(partition: Int64s) -> dict[int, tuple[int, int]]:
    """Partition -> where its records stand."""
    names, starts = np.unique(partition, return_index=True)
    stops = np.append(starts, len(partition))[1:]
    return {int(p): (int(a), int(b)) for p, a, b in zip(names, starts, stops, strict=True)}
