"""Figures as typed values: how those of shards become one, and that each is one object."""

from __future__ import annotations

import pickle

import pyarrow as pa

from penstock.figures import (
    ACCURACY,
    FIGURES,
    MEASURED,
    MISSED_SHARE,
    OTHER_DELAYS,
    PAIRS_HELD,
    SERIES,
    SHED_HELD,
    SHED_TUPLES,
)
from penstock.figures.figure import FigureKind, OverShards, added, bucket_counts, number, put_together
from penstock.language.scripts import bind_script
from penstock.runtime.local.analyze import analyze


def test_the_figures_of_shards_become_one() -> None:
    found = put_together(
        [
            {SHED_TUPLES: 3, ACCURACY: 0.5, MISSED_SHARE: 0.1, OTHER_DELAYS: {1: 2, 5: 1}},
            {SHED_TUPLES: 4, ACCURACY: 0.25, MISSED_SHARE: 0.3, OTHER_DELAYS: {5: 1, -3: 7}},
            {SHED_TUPLES: 0},
        ]
    )
    assert found == {SHED_TUPLES: 7, ACCURACY: 0.25, MISSED_SHARE: 0.3, OTHER_DELAYS: {1: 2, 5: 2, -3: 7}}
    assert number(found, SHED_HELD) == 0 and bucket_counts({}, OTHER_DELAYS) == {}


def test_what_was_added_is_a_difference_of_sums_alone() -> None:
    assert added({SHED_TUPLES: 3, ACCURACY: 0.5}, {SHED_TUPLES: 8, ACCURACY: 0.75}) == {SHED_TUPLES: 5, ACCURACY: 0.75}


def test_a_figure_is_one_object_in_every_process() -> None:
    assert all(pickle.loads(pickle.dumps(figure)) is figure for figure in FIGURES)


def test_what_a_figure_declares() -> None:
    """An operator reports by name; what has no name the driver computes; histograms are shown in no form."""
    assert len(MEASURED) == len([figure for figure in FIGURES if figure.name])
    assert len({figure.series for figure in SERIES}) == len(SERIES)
    for figure in FIGURES:
        assert figure.name or figure.field
        assert figure.name or figure.over_shards is OverShards.LAST or figure.owner == "operators"
        assert figure.kind is not FigureKind.HISTOGRAM or not figure.series
        assert not figure.help.endswith(".")


def test_explain_analyze_shows_the_figures_of_all_shards() -> None:
    script = """CREATE STREAM m (at BIGINT, x STRING) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;
        CREATE QUERY q AS SELECT x, COUNT(*) AS n FROM m [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY x FREQUENT 4;"""
    rows = [(at, x) for at in range(10) for x in "abcd"] + [(11, "a")]
    given = pa.table({"at": [at for at, _ in rows], "x": [x for _, x in rows]})
    held = {}
    for shards in (1, 3):
        meter = analyze(bind_script(script).queries, {}, {"m": given}, shards=shards).meter
        measured = [dict(step.pairs()) for step in meter.steps.values()]
        held[shards] = [figures[PAIRS_HELD.name] for figures in measured if PAIRS_HELD.name in figures]
    assert held[1] == held[3] and held[1][0] > 0
