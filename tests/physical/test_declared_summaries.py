"""From what CREATE SUMMARY declares to the summary that is kept."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.algebra.nodes.summary_definition import SummaryDefinition, SummaryMethod
from penstock.expressions import draws
from penstock.physical.synopses.summaries.count_sketch import SketchCounts
from penstock.physical.synopses.summaries.declared import bytes_of, summary_of
from penstock.physical.synopses.summaries.exact import ExactCounts


@pytest.mark.parametrize(
    ("method", "counts"), [(SummaryMethod.COUNTSKETCH, SketchCounts), (SummaryMethod.EXACT, ExactCounts)]
)
def test_each_method_and_each_option_arrives(method: SummaryMethod, counts: type) -> None:
    definition = SummaryDefinition("s", "S", ("a",), 100, 3, 2, method, 7, 5, 3, 2.5, 20, 4)
    summary = summary_of(definition)
    assert isinstance(summary.counts, counts)
    levels = summary.levels
    assert (levels.granularity, levels.rate, levels.depth) == (100, 3, 2)
    assert (levels.minlength, levels.maxlength, levels.squares) == (4, 20, 31)
    assert levels.span == definition.span == 400
    if isinstance(summary.counts, SketchCounts):
        assert (summary.counts.shape.rows, summary.counts.shape.counters, summary.counts.shape.buckets) == (7, 5, 3)
    yes = np.ones(2, np.bool_)
    summary.process(np.array([0, 50]), draws.mixed(np.arange(2, dtype=np.uint64)), yes, yes)
    assert [zone.low for zone in summary.zones()] == [0, 1]  # maxlength has passed between them


def test_bytes_of_both_methods() -> None:
    definition = SummaryDefinition("s", "S", ("a",), 10_000, maxlength=2500, minlength=312)
    few, many = bytes_of(definition, 0.01, 10), bytes_of(definition, 10.0, 10_000)
    # 25 elements of a zone cannot err by 4, 2,500 can: zones then may be as short as `minlength`.
    assert (few.zones, many.zones) == (16, 45) and few.sketch < many.sketch
    assert few.exact < few.sketch < many.exact
    assert bytes_of(definition, 0.0, 0.0).exact < few.exact
