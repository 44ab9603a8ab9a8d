"""The summary that CREATE SUMMARY declares, and how many bytes it takes."""

from __future__ import annotations

from fractions import Fraction

from penstock.algebra.nodes.summary_definition import SummaryDefinition, SummaryMethod
from penstock.expressions.sketches.count_sketch import CountSketchShape
from penstock.physical.synopses.summaries.count_sketch import SketchCounts
from penstock.physical.synopses.summaries.exact import ExactCounts
from penstock.physical.synopses.summaries.levels import SummaryLevels, levels_of
from penstock.physical.synopses.summaries.prediction import SummaryBytes, predicted_bytes
from penstock.physical.synopses.summaries.stream_summary import StreamSummary


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
