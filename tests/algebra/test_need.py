"""What a query needs of the past: over streams cut there, the oracle answers as over whole ones from then on."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from penstock.algebra import Algebra, Frequency, Join, Scan, StreamScan, Window, WindowKind, leaves
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import Source
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.need import EVERYTHING, LastRows, Need, first_full_instant, reach
from penstock.language.scripts import bind_script
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.compare import first_difference, show_events
from penstock.testing.definitions import World
from penstock.testing.live import held_of
from penstock.testing.oracle import events_in, timely_rows
from penstock.testing.random.worlds import FLAVOURS, Flavour, random_case, seeded_choices
from penstock.testing.scalars.values import Event, Row, key_of
from penstock.types import END

Rows = list[tuple[int, Row]]

CASES = 15
MANY_CASES = 400
FLAVOURS_WITHOUT_CLOCK = [f for f in FLAVOURS if not f.clock]


def cut(source: Source, rows: Rows, need: Need, tick: int) -> Rows:
    """Only what is needed of a source at `tick`."""
    if source.is_static or need.ticks is None:
        return rows
    since = tick - need.ticks
    if not source.is_stream:
        past = sorted((row for row in rows if row[0] <= since), key=lambda row: row[0])
        return [(since, row) for _, row in past] + [row for row in rows if row[0] > since]
    before = sorted((n for n in range(len(rows)) if rows[n][0] <= since), key=lambda n: rows[n][0])
    kept = {n for n in range(len(rows)) if rows[n][0] > since}
    for last in need.rows:
        partitions: dict[Row, list[int]] = {}
        for n in before:
            partitions.setdefault(key_of(tuple(rows[n][1][i] for i in last.partition)), []).append(n)
        for members in partitions.values():
            left_out = max(0, len(members) - last.count) // last.multiple * last.multiple
            kept |= set(members[left_out:])
    return [row for n, row in enumerate(rows) if n in kept]


def from_then_on(query: Query, events: list[Event], tick: int) -> list[Event]:
    """The content of a relation at `tick`, and the events after it."""
    held: Counter[Row] = Counter()
    rows: dict[Row, Row] = {}
    for ts, op, row in events:
        if ts <= tick and op is not None:
            rows[key_of(row)] = row
            held[key_of(row)] += 1 if op == "+" else -1
    assert not query.root.is_stream or not held
    return [(tick, "+", rows[key]) for key in held.elements()] + [event for event in events if event[0] > tick]


def check(query: Query, root: Algebra, rows: Mapping[str, Rows], ticks: list[int]) -> int:
    """Compare at some instants; return how many elements were left out."""
    sources = {leaf.source.name: leaf.source for leaf in leaves(root) if isinstance(leaf, Scan)}
    timed = [name for name, source in sources.items() if not source.is_static]
    rows = {name: rows[name] for name in sources}
    if not any(rows[name] for name in timed):
        return 0
    assert set(root.needs) >= set(timed)
    final = max(ts for name in timed for ts, _ in rows[name])
    firsts = {name: min(ts for ts, _ in rows[name]) for name in timed if rows[name]}
    whole = events_in(root, World(rows, final))
    left_out = 0
    for tick in (min(tick, final) for tick in ticks):
        kept = {
            name: cut(source, rows[name], root.needs.get(name, EVERYTHING), tick) for name, source in sources.items()
        }
        left_out += sum(map(len, rows.values())) - sum(map(len, kept.values()))
        # Time need not begin before what is needed.
        back = reach(root.needs)
        begun = {name: first if back is None else max(first, tick - back) for name, first in firsts.items()}
        found = events_in(root, World(kept, final, firsts=begun))
        expected, given = from_then_on(query, whole, tick), from_then_on(query, found, tick)
        ts = first_difference(expected, given)
        shown = [show_events(events, query.domain) for events in (expected, given)]
        needs = dict(root.needs)
        assert ts is None, "\n".join([f"from {tick} on differs at {ts}; {needs}; whole:", *shown[0], "cut:", *shown[1]])
    return left_out


def check_lost(query: Query, root: Algebra, rows: Mapping[str, Rows], lost: Mapping[str, int], tick: int) -> int:
    """Compare from where nothing is missing any more of streams that have lost elements; return how many."""
    sources = {leaf.source.name: leaf.source for leaf in leaves(root) if isinstance(leaf, Scan)}
    rows = {name: rows[name] for name in sources}
    lost = {name: until for name, until in lost.items() if name in sources and sources[name].is_stream}
    timed = [name for name, source in sources.items() if not source.is_static and rows[name]]
    first = first_full_instant(root.needs, lost, tick, held_of(sources, rows, lost))
    if first is None:
        assert any(root.needs[name].ticks is None or root.needs[name].rows for name in lost)
        return 0
    if not timed:
        return 0
    final = max(ts for name in timed for ts, _ in rows[name])
    if first > final:
        return 0
    kept = {n: [row for row in some if n not in lost or row[0] > lost[n]] for n, some in rows.items()}
    back = max(need.ticks or 0 for need in root.needs.values())
    begun = {name: min(ts for ts, _ in rows[name]) for name in timed}
    if all(need.ticks is not None for need in root.needs.values()):
        # Time begins behind what is lost, also where the last rows are needed of a source that is there.
        begun = {name: max(ts, first - back) for name, ts in begun.items()}
    expected, given = (
        from_then_on(query, events_in(root, world), first)
        for world in (World(rows, final), World(kept, final, firsts=begun))
    )
    differs = first_difference(expected, given)
    shown = [show_events(events, query.domain) for events in (expected, given)]
    assert differs is None, "\n".join([f"lost {lost}, from {first} on; whole:", *shown[0], "the rest:", *shown[1]])
    return sum(map(len, rows.values())) - sum(map(len, kept.values()))


def explore(flavour: Flavour, count: int, first: int) -> int:
    left_out = 0
    for seed in range(first, first + count):
        choices = seeded_choices(seed)
        case = random_case(choices, flavour)
        if case.origin:
            continue
        bound = bind_script("\n".join(case.statements))
        inputs = case_inputs(parse_case(case.render()), bound)
        sources = {s.source.name: s.source for q in bound.queries for s in leaves(q.root) if isinstance(s, Scan)}
        rows = {name: timely_rows(source, inputs[name]) for name, source in sources.items()}
        seen = sorted({ts for name, some in rows.items() if not sources[name].is_static for ts, _ in some})
        step = 1_000_000 if seen and seen[-1] > 1_000_000 else 1
        ticks = [seen[choices.integer(0, len(seen) - 1)] + choices.integer(-1, 3) * step for _ in range(4) if seen]
        try:
            for query in bound.queries:
                left_out += check(query, query.root, rows, ticks)
                check(query, optimize(query.root), rows, ticks[:1])
                for tick in ticks:
                    lost = {name: tick - choices.integer(-2, 4) * step for name in rows if choices.chance(70)}
                    left_out += check_lost(query, query.root, rows, lost, tick)
        except Exception as error:
            raise AssertionError(f"seed {seed}\n{case.render()}") from error
    return left_out


@pytest.mark.parametrize("flavour", FLAVOURS_WITHOUT_CLOCK, ids=lambda f: f.name)
def test_what_is_needed_is_enough(flavour: Flavour, case_count: int | None, case_seed: int | None) -> None:
    left_out = explore(flavour, case_count or CASES, 100_000 * (case_seed or 0))
    # A query in the sequence model needs everything.
    assert left_out or flavour.frequency or case_count


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flavour", FLAVOURS_WITHOUT_CLOCK, ids=lambda f: f.name)
def test_what_is_needed_is_enough_in_many_more_cases(flavour: Flavour, case_seed: int | None) -> None:
    explore(flavour, MANY_CASES, 100_000 * (case_seed or dt.date.today().toordinal()))


SOURCES = """
CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION U (ts INT, op STRING, k INT) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op;
CREATE RELATION R (k INT) FROM MEMORY ();
"""


@pytest.mark.parametrize(
    ("query", "needs"),
    [
        ("SELECT ISTREAM(k) FROM S [NOW]", {"S": Need(1)}),
        ("SELECT SUM(v) AS s FROM S [RANGE 9 SECONDS]", {"S": Need(9)}),
        ("SELECT SUM(v) AS s FROM S [RANGE 9 SECONDS SLIDE 4 SECONDS]", {"S": Need(13)}),
        ("SELECT SUM(v) AS s FROM S [ROWS 5] WHERE v > 3", {"S": Need(0, frozenset({LastRows(5)}))}),
        ("SELECT k, v FROM S [PARTITION BY k ROWS 2]", {"S": Need(0, frozenset({LastRows(2, (1,))}))}),
        ("SELECT k FROM S [PARTITION BY k ROWS 5 RANGE 9 SECONDS]", {"S": Need(9)}),
        ("SELECT k FROM S [RANGE UNBOUNDED]", {"S": EVERYTHING}),
        ("SELECT k FROM S [ROWS 6 SLIDE 3 ROWS]", {"S": Need(0, frozenset({LastRows(8, (), 3)}))}),
        ("SELECT k FROM S [RANGE 9 SECONDS SLIDE 3 ROWS]", {"S": EVERYTHING}),
        (
            "SELECT a.k FROM S [ROWS 6 SLIDE 4 ROWS] a, S [ROWS 9 SLIDE 6 ROWS] b WHERE a.k = b.k",
            {"S": Need(0, frozenset({LastRows(14, (), 12)}))},
        ),
        (
            "SELECT a.k FROM S [ROWS 6 SLIDE 4 ROWS] a, S [PARTITION BY k ROWS 2] b WHERE a.k = b.k",
            {"S": EVERYTHING},
        ),
        ("SELECT S.k FROM S [RANGE 9 SECONDS], T [RANGE 5 SECONDS] WHERE S.k = T.k", {"S": Need(9), "T": Need(5)}),
        ("SELECT a.k FROM S [RANGE 9 SECONDS] a, S [RANGE 5 SECONDS] b WHERE a.k = b.k", {"S": Need(9)}),
        ("SELECT S.k FROM S [RANGE 9 SECONDS], U, R WHERE S.k = U.k AND R.k = U.k", {"S": Need(9), "U": Need(0)}),
        (
            "SELECT COUNT(*) AS n FROM"
            " (SELECT ISTREAM(S.k) FROM S [RANGE 9 SECONDS], U WHERE S.k = U.k) [RANGE 6 SECONDS]",
            {"S": Need(15), "U": Need(6)},
        ),
    ],
)
def test_windows_add_up(query: str, needs: dict[str, Need]) -> None:
    (bound,) = bind_script(f"{SOURCES} CREATE QUERY q AS {query};").queries
    assert dict(bound.root.needs) == needs


def test_from_when_on_nothing_is_missing() -> None:
    needs = {"S": Need(9), "T": Need(5), "L": Need(0, frozenset({LastRows(3)})), "A": EVERYTHING}
    assert first_full_instant(needs, {}, 20) == 20
    assert first_full_instant(needs, {"S": 10}, 20) == 20
    assert first_full_instant(needs, {"S": 19, "T": 24}, 20) == 29
    assert first_full_instant(needs, {"other": 22}, 20) == 22, "elements ahead of it count, although none before it do"
    assert first_full_instant(needs, {"L": 3}, 20) is None and first_full_instant(needs, {"A": 3}, 20) is None
    assert first_full_instant(needs, {"S": END - 9}, 20) is None
    assert first_full_instant(needs, {"S": END - 10}, 20) == END - 1


LAST_ROWS = (
    "SELECT k, v FROM S [ROWS 4]",
    "SELECT ISTREAM(k, v) FROM S [ROWS 3] WHERE v > 2",
    "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [ROWS 5]",
    "SELECT COUNT(*) AS n FROM (SELECT ISTREAM(v) FROM S [ROWS 2]) [RANGE 5 SECONDS]",
    "SELECT RSTREAM(a.v) FROM S [ROWS 3] a, T [RANGE 4 SECONDS SLIDE 2 SECONDS] b WHERE a.k = b.k",
    "SELECT a.v, b.v AS w FROM S [ROWS 3] a, S [ROWS 6] b WHERE a.k = b.k",
    "SELECT k FROM S [ROWS 2] UNION ALL SELECT k FROM T [NOW]",
)


@pytest.mark.parametrize("text", LAST_ROWS)
def test_last_rows_are_there_when_so_many_are(text: str) -> None:
    """Of a stream of which elements up to a tick are gone, and of which elements share timestamps."""
    (query,) = bind_script(f"{SOURCES} CREATE QUERY q AS {text};").queries
    left_out = 0
    for seed in range(40):
        choices = seeded_choices(seed)
        ticks = {name: sorted(choices.integer(1, 30) for _ in range(choices.integer(1, 25))) for name in "ST"}
        rows: dict[str, Rows] = {
            "S": [(ts, (ts, choices.integer(0, 3), choices.integer(0, 5))) for ts in ticks["S"]],
            "T": [(ts, (ts, choices.integer(0, 3))) for ts in ticks["T"]],
        }
        for tick in range(0, 32, 3):
            left_out += check_lost(query, query.root, rows, {"S": choices.integer(0, 25)}, tick)
            left_out += check_lost(query, query.root, rows, {"T": choices.integer(0, 25)}, tick)
    assert left_out > 100


def test_last_rows_of_partitions_and_counts_of_arrivals_are_never_known_to_be_there() -> None:
    held = np.arange(100)
    for last in (LastRows(2, (1,)), LastRows(8, (), 3)):
        assert first_full_instant({"S": Need(0, frozenset({last}))}, {"S": 3}, 20, lambda name: held) is None
    needs = {"S": Need(2, frozenset({LastRows(3)}))}
    for ticks, first in (([9, 5, 9], 11), ([4, 4, 4, 9], 6), ([4, 4], None), ([], None)):
        assert first_full_instant(needs, {"S": 3}, 1, lambda name, t=ticks: np.array(t, np.int64)) == first
    assert first_full_instant(needs, {"S": 3}, 20, lambda name: np.array([4, 5, 6])) == 20
    assert first_full_instant(needs, {"S": 3}, 20) is None


COUNTED = (
    "SELECT k, v FROM S [ROWS 5 SLIDE 3 ROWS]",
    "SELECT k, v FROM S [PARTITION BY k ROWS 3 SLIDE 2 ROWS]",
    "SELECT ISTREAM(a.v, b.v AS w) FROM S [ROWS 3 SLIDE 2 ROWS] a, S [ROWS 4 SLIDE 3 ROWS] b WHERE a.k = b.k",
    "SELECT COUNT(*) AS n FROM S [ROWS 4 SLIDE 3 ROWS] a, S [RANGE 5 SECONDS] b WHERE a.k = b.k",
)


def counted() -> dict[str, Algebra]:
    script = "\n".join(f"CREATE QUERY q{n} AS {query};" for n, query in enumerate(COUNTED))
    roots = {query.text: query.root for query in bind_script(SOURCES + script).queries}
    scan = next(leaf for leaf in leaves(roots[next(iter(roots))]) if isinstance(leaf, StreamScan))
    every_third, of_each = Frequency(scan, rows=3), Frequency(scan, rows=2, partition=(0,))
    roots["every third"] = Window(every_third, WindowKind.RANGE, 4)
    roots["every second of each"] = Join(slid(of_each), slid(of_each), ((0, 0),))
    return roots


def slid(stream: Algebra) -> Algebra:
    return Window(stream, WindowKind.RANGE, 6, slide=2)


@pytest.mark.parametrize("name", counted())
def test_what_counts_arrivals_goes_on_counting(name: str) -> None:
    root = counted()[name]
    query = Query("q", root, SinkSpec("MEMORY"))
    left_out = 0
    for seed in range(40):
        draw = seeded_choices(seed)
        tick, rows = 0, []
        for _ in range(40):
            tick += draw.integer(0, 2)
            rows.append((tick, (tick, draw.integer(0, 2), draw.integer(0, 9))))
        left_out += check(query, root, {"S": rows}, [draw.integer(0, tick) for _ in range(4)])
    assert left_out > 500
