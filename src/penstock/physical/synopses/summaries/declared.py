"""The summary that CREATE SUMMARY declares, and how many bytes it takes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from penstock.algebra.nodes.summary_definition import SummaryDefinition, SummaryMethod
from penstock.expressions.sketches.count_sketch import CountSketchShape
from penstock.physical.synopses.summaries.count_sketch import SketchCounts
from penstock.physical.synopses.summaries.exact import ExactCounts
from penstock.physical.synopses.summaries.levels import SummaryLevels, levels_of
from penstock.physical.synopses.summaries.stream_summary import MOST_UNCOUNTED, StreamSummary

# --- How many bytes a summary takes, before it is made, by either method: what EXPLAIN shows.

#: Bytes of a slot beside its counts: its fields and its place in the order.
_SLOT = 7 * 8 + 8
#: Bytes of an exact count: six numbers, and up to two heads of chains.
_CELL = 6 * 8 + 2 * 8
#: Bytes of an element that is not counted yet.
_ELEMENT = 8 + 8 + 1
#: Arrays are doubled when they are full.
_ROOM = 2


class SummaryBytes(NamedTuple):
    """Bytes in one shard, when all granularities are full. zones: of all granularities, at most. sketch, exact: at
    most, by COUNTSKETCH and by EXACT."""

    zones: int
    sketch: int
    exact: int


def predicted_bytes(
    levels: SummaryLevels, shape: CountSketchShape, elements_per_tick: float, distinct: float
) -> SummaryBytes:
    """Return what a summary of a stream takes in one shard.

    Args:
        elements_per_tick: elements of the stream that arrive in this shard.
        distinct: different values of the summarised columns in this shard.
    """
    lengths = [float(levels.granularity)]
    # Sketches of zones with so many elements may err by more than `error`, and end as soon as they may.
    ends_early = (elements_per_tick * levels.maxlength) ** 2 > levels.squares
    longest = min(levels.maxlength, levels.granularity)
    zones = [math.ceil(levels.granularity / (min(levels.minlength, longest) if ends_early else longest))]
    for level in range(2, levels.depth + 1):
        lengths.append(float(levels.granularity) * levels.rate ** (level - 2))
        zones.append(levels.rate)
    held = _different(elements_per_tick * lengths[0], distinct)
    held += math.ceil(levels.granularity / longest) * _different(elements_per_tick * longest, distinct)
    for length, count in zip(lengths[1:], zones[1:], strict=True):
        held += count * _different(elements_per_tick * length, distinct)
        held += _different(elements_per_tick * length * count, distinct)
    slots = 1 << (levels.depth + sum(zones)).bit_length()
    sketch = slots * (4 * shape.cells + 12 * shape.rows + _SLOT)
    exact = math.ceil(_ROOM * held * _CELL) + slots * (_SLOT + 16) + 4096
    uncounted = _ELEMENT * min(math.ceil(elements_per_tick * levels.granularity), MOST_UNCOUNTED)
    return SummaryBytes(sum(zones), sketch + uncounted, exact + uncounted)


def _different(elements: float, distinct: float) -> float:
    """Return the expected number of different values among so many elements, if all are equally frequent; fewer come
    if they are not."""
    if distinct < 1 or elements <= 0:
        return 0.0
    return min(elements, distinct, distinct * -math.expm1(-elements / distinct))


def summary_of(definition: SummaryDefinition) -> StreamSummary:
    """Return an empty summary."""
    if definition.method is SummaryMethod.EXACT:
        return StreamSummary(levels_in(definition), ExactCounts())
    return StreamSummary(levels_in(definition), SketchCounts(shape_in(definition)))


def bytes_of(definition: SummaryDefinition, elements_per_tick: float, distinct: float) -> SummaryBytes:
    """Return `predicted_bytes` of a declared summary, by both methods."""
    return predicted_bytes(levels_in(definition), shape_in(definition), elements_per_tick, distinct)


def levels_in(definition: SummaryDefinition) -> SummaryLevels:
    return levels_of(
        definition.granularity,
        definition.rate,
        definition.depth,
        Fraction(definition.error),
        definition.counters,
        definition.minlength,
        definition.maxlength,
    )


def shape_in(definition: SummaryDefinition) -> CountSketchShape:
    return CountSketchShape(definition.rows, definition.counters, definition.buckets)
