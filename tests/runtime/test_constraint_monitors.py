"""How closely streams keep to promises: what is measured by samples against the definition over whole inputs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra import Source
from penstock.algebra.analysis.promise_candidates import StreamReference
from penstock.algebra.properties.promises import Clustered, ForeignKey, Ordered, Promise, Unique, Within
from penstock.physical.elements import Elements
from penstock.physical.observation import observed_rows as observed
from penstock.physical.observation.observed_rows import ObservedRows, Observer, risen
from penstock.runtime.monitoring import constraints
from penstock.runtime.monitoring.constraints import (
    ConstraintMonitor,
    Histogram,
    MeasuredColumns,
    MeasuredK,
    MeasuredReference,
)
from penstock.testing.promises.closings import Accepted, breaches
from penstock.types import END, Field, Schema, TimeDomain, Unit

SCHEMA = Schema((Field("t", pa.int64()), Field("v", pa.int32()), Field("w", pa.string()), Field("x", pa.float64())))
ALL = ((1,), (1, 2), (2,), (3,), (0,))
SOURCE = Source("S", True, SCHEMA, "MEMORY", timestamp=0, domain=TimeDomain(Unit.SECOND, False), observed=ALL)


def _elements(rows: Accepted) -> Elements:
    columns = tuple(pa.array([row[i] for _, row in rows], f.type) for i, f in enumerate(SCHEMA))
    ts = np.array([ts for ts, _ in rows], np.int64)
    return Elements(columns, ts, np.full(len(rows), END, np.int64))


def _rows(random: Random, count: int, disorder: int) -> list[tuple[int, tuple[object, ...]]]:
    times = sorted(random.randrange(count) for _ in range(count))
    found: list[tuple[int, tuple[object, ...]]] = []
    for i, t in enumerate(times):
        v = random.choice([None, i // 4 + random.randint(-2, 2), random.randrange(6)])
        x = random.choice([None, float("nan"), -0.0, 0.0, 1.5])
        found.append((t, (t, v, random.choice([None, "a", "b", "c"]), x)))
    order = sorted(range(count), key=lambda i: times[i] + random.random() * disorder)
    return [found[i] for i in order]


def _measured(
    rows: Accepted, random: Random, disorder: int, json: bool = True, most: int = 9
) -> dict[tuple[int, ...], MeasuredColumns]:
    """Measure rows in order of arrival, cut into rounds and into tasks at random places."""
    monitor, place = ConstraintMonitor(lambda: 0.0), 0
    while place < len(rows):
        part = rows[place : place + random.randint(1, most)]
        place += len(part)
        tasks = [Observer(SOURCE, (0, 1, 2, 3)) for _ in range(random.randint(1, 3))]
        for some in np.array_split(np.arange(len(part)), min(len(part), 4)):
            random.choice(tasks).take(_elements([part[i] for i in some]))
        for task in tasks:
            seen = task.seen()
            if seen is not None:
                monitor.add(ObservedRows.from_json(seen.as_json()) if json else seen)
        monitor.advance({"S": max(ts for ts, _ in rows[:place]) - disorder - 1})
    monitor.advance({"S": END})
    return dict(monitor.measures()["S"].by_columns) if rows else {}


def _kept(promise: Promise, rows: Accepted) -> int:
    """Return how many elements of the sample, those without NULL or NaN, are no breach."""
    there = [e for e in rows if all(e[1][c] is not None and e[1][c] == e[1][c] for c in promise.columns)]
    return len(there) - len(breaches(promise, rows))


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """All values are in the sample."""
    monkeypatch.setattr(observed, "SAMPLE_BITS", 0)


@pytest.mark.parametrize("seed", range(16))
def test_k_is_that_of_the_definition(seed: int) -> None:
    random = Random(seed)
    disorder = random.choice([0, 0, 4])
    rows = _rows(random, random.choice([1, 2, 12, 24]), disorder)
    for columns, one in _measured(rows, random, disorder).items():
        for k in (0, 1, 3, 9, 50):
            assert one.clustered_rows.whole.within(k) == _kept(Clustered(columns, Within(k)), rows)
            assert one.clustered_ticks.whole.within(k) == _kept(Clustered(columns, Within(None, k)), rows)
            if one.ordered_rows is not None and one.ordered_ticks is not None:
                assert one.ordered_rows.whole.within(k) == _kept(Ordered(columns, False, Within(k)), rows)
                assert one.ordered_ticks.whole.within(k) == _kept(Ordered(columns, False, Within(None, k)), rows)
            if one.descending_rows is not None and one.descending_ticks is not None:
                assert one.descending_rows.whole.within(k) == _kept(Ordered(columns, True, Within(k)), rows)
                assert one.descending_ticks.whole.within(k) == _kept(Ordered(columns, True, Within(None, k)), rows)
        assert one.repeated.whole.within(0) == _kept(Unique(columns), rows)
        assert (one.ordered_rows is not None) == (columns in ((1,), (0,)) and _has_values(rows, columns[0]))
        assert (one.descending_rows is None) == (one.ordered_rows is None)


def _has_values(rows: Accepted, column: int) -> bool:
    return any(row[column] is not None for _, row in rows)


PARENT = replace(SOURCE, name="P")
REFERENCE = StreamReference("S", (1,), "P", (1,))


def _measured_reference(
    inputs: dict[str, Accepted], random: Random, disorder: int, monitor: ConstraintMonitor
) -> MeasuredReference:
    """Measure a reference of the rows of S to those of P, each cut into rounds at random places."""
    monitor.keep({"S": ALL, "P": ALL}, [REFERENCE])
    places = {"S": 0, "P": 0}
    heartbeats = dict.fromkeys(places, -disorder - 1)
    while any(place < len(inputs[name]) for name, place in places.items()):
        name = random.choice([name for name, place in places.items() if place < len(inputs[name])])
        part = inputs[name][places[name] : places[name] + random.randint(1, 9)]
        places[name] += len(part)
        task = Observer(SOURCE if name == "S" else PARENT, (0, 1, 2, 3))
        task.take(_elements(part))
        seen = task.seen()
        assert seen is not None
        monitor.add(ObservedRows.from_json(seen.as_json()))
        heartbeats[name] = max(ts for ts, _ in inputs[name][: places[name]]) - disorder - 1
        monitor.advance(dict(heartbeats))
    monitor.advance(dict.fromkeys(places, END))
    return monitor.measures()["S"].references[REFERENCE]


@pytest.mark.parametrize("seed", range(12))
def test_k_of_a_reference_is_that_of_the_definition(seed: int) -> None:
    random = Random(seed)
    disorder = random.choice([0, 0, 4])
    inputs: dict[str, Accepted] = {name: _rows(random, random.choice([1, 6, 24]), disorder) for name in "SP"}
    one = _measured_reference(inputs, random, disorder, ConstraintMonitor(lambda: 0.0))
    there = [row for row in inputs["S"] if row[1][1] is not None]
    assert one.rows.whole.elements == one.ticks.whole.elements == len(there)
    last = max(ts for ts, _ in (*there, *inputs["P"]))
    for k in (0, 1, 3, 9, 50):
        broken = breaches(ForeignKey((1,), "P", (1,), Within(k)), inputs["S"], inputs["P"])
        assert one.rows.whole.within(k) == len(there) - len(broken), (k, inputs)
        late = breaches(ForeignKey((1,), "P", (1,), Within(None, k)), inputs["S"], inputs["P"])
        # What is not settled at the end is no breach yet.
        known = [row for row in late if row[0] + k <= last]
        assert one.ticks.whole.within(k) == len(there) - len(known), (k, inputs)


def test_rows_that_wait_for_their_parents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "MOST_WAITING", 20)
    inputs: dict[str, Accepted] = {
        "S": [(t, (t, t, "a", 0.0)) for t in range(200)],
        "P": [(t, (t, -1, "a", 0.0)) for t in range(200)],
    }
    monitor = ConstraintMonitor(lambda: 0.0)
    one = _measured_reference(inputs, Random(1), 0, monitor)
    assert one.rows.whole.elements == 200 and one.rows.whole.within(0) == 0
    assert len(monitor._references[REFERENCE]._waiting.ts) == 20


def test_nothing_depends_on_the_cuts() -> None:
    rows = _rows(Random(7), 60, 3)
    found = [_measured(rows, Random(seed), 3, json=seed > 0) for seed in range(3)]
    counts = [{c: one.clustered_rows.whole.counts for c, one in each.items()} for each in found]
    assert counts[0] == counts[1] == counts[2]


def test_a_value_is_in_the_sample_with_all_its_rows_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "SAMPLE_BITS", 3)
    rows = [(t, (t, t % 800, "a", 0.0)) for t in range(8_000)]
    one = _measured(rows, Random(1), 0, json=False, most=2_000)[1,]
    assert one.share == 1 / 8
    assert 50 < one.values < 150
    assert one.clustered_rows.whole.elements == 10 * one.values
    assert one.clustered_rows.whole.highest == 799


def test_a_sample_that_grows_too_large_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "MOST_VALUES", 50)
    rows = [(t, (t, t % 400, "a", 0.0)) for t in range(4_000)]
    one = _measured(rows, Random(1), 0, json=False, most=2_000)[1,]
    assert one.values <= 50 and one.share <= 1 / 8
    assert one.clustered_rows.whole.highest == 399
    assert one.clustered_rows.last_hour(0.0).elements == one.clustered_rows.whole.elements


def test_long_reports_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "MOST_REPORTED", 10)
    task = Observer(SOURCE, (0, 1, 2, 3))
    task.take(_elements([(t, (t, t, "a", 0.0)) for t in range(1_000)]))
    seen = task.seen()
    assert seen is not None and len(seen.instants) == 10 and seen.counts.sum() == 1_000
    assert len(seen.samples[1,].risen[0]) == 10
    assert task.seen() is None


def test_the_greatest_value_rises_once_an_instant() -> None:
    ts, keys = np.array([5, 1, 1, 2, 3], np.int64), np.array([9, 1, 4, 4, 7], np.int64)
    assert [found.tolist() for found in risen(ts, keys)] == [[1, 3, 5], [4, 7, 9]]
    assert [found.tolist() for found in risen(ts[:0], keys[:0])] == [[], []]


def test_quantiles() -> None:
    measured = MeasuredK()
    one = measured.whole
    measured.add(np.arange(1_000), np.ones(1_000, np.int64), 0.0)
    assert (one.quantile(0.99), one.quantile(0.999), one.highest) == (989, 998, 999)
    measured.add(np.array([1_000_001], np.int64), np.array([9], np.int64), 0.0)
    assert one.quantile(1.0) == one.highest == 1_000_001
    assert one.within(10**7) == one.elements == 1_009
    assert Histogram().quantile(0.5) is None


def test_the_last_hour_is_that_of_the_clock() -> None:
    now = [0.0]
    monitor = ConstraintMonitor(lambda: now[0])
    for minute in (0, 30, 90):
        now[0] = minute * 60.0
        task = Observer(SOURCE, (0, 1, 2, 3))
        task.take(_elements([(minute, (minute, 1, "a", 0.0))]))
        seen = task.seen()
        assert seen is not None
        monitor.add(seen)
        monitor.advance({"S": minute})
    found = monitor.measures()["S"].by_columns[1,].clustered_ticks
    assert (found.whole.elements, found.whole.highest) == (3, 60)
    assert found.last_hour(now[0]).elements == 1
    assert found.last_hour(now[0] + 3600).elements == 0


def test_short_rounds_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now, times = [0.0], []
    measure = constraints.ConstraintMonitor._measure
    monkeypatch.setattr(constraints.ConstraintMonitor, "_measure", lambda one: (times.append(now[0]), measure(one)))
    monitor = ConstraintMonitor(lambda: now[0])
    for i in range(25):
        now[0] = i / 10
        task = Observer(SOURCE, (0, 1, 2, 3))
        task.take(_elements([(i, (i, 1, "a", 0.0))]))
        seen = task.seen()
        assert seen is not None
        monitor.add(seen)
        monitor.advance({"S": i})
    assert times == [0.0, 1.0, 2.0]
    # Who reads it sees all.
    assert monitor.measures()["S"].elements == 25


def test_what_is_measured_no_more_is_forgotten() -> None:
    monitor = ConstraintMonitor()
    task = Observer(SOURCE, (0, 1, 2))
    task.take(_elements([(1, (1, 1, "a", 0.0))]))
    seen = task.seen()
    assert seen is not None and (3,) not in seen.samples  # no query reads it
    monitor.add(seen)
    monitor.advance({"S": 1})
    monitor.keep({"S": ((1,),)})
    assert list(monitor.measures()["S"].by_columns) == [(1,)]
    monitor.keep({"S": ()})
    assert monitor.measures() == {}
