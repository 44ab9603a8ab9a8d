"""The oracle is right: by hand on small cases, against [semantics 4.1]'s own formula, and against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock import algebra
from penstock.algebra import (
    Aggregate,
    Algebra,
    Join,
    RelationScan,
    RelationToStream,
    Select,
    Source,
    StreamKind,
    StreamScan,
    UnionAll,
    Window,
    WindowKind,
)
from penstock.algebra.nodes.preferences import WithPreference
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.nodes.stretch_chances import BudgetedRows
from penstock.expressions.nodes import AggregateCall, Call, Column, Literal
from penstock.testing.aggregates.definitions import aggregate
from penstock.testing.definitions import denote, validity
from penstock.testing.oracle import run_oracle
from penstock.types import END, Field, Schema, TimeDomain, Unit

INT = pa.int32()
SECONDS = TimeDomain(Unit.SECOND, False)
PAIR = Schema((Field("ts", INT), Field("a", INT)))
S = Source("S", True, PAIR, "MEMORY", timestamp=0, domain=SECONDS)
T = Source("T", True, PAIR, "MEMORY", timestamp=0, domain=SECONDS, slack=2)
R = Source("R", False, Schema((Field("k", INT), Field("v", pa.string()))), "MEMORY")
U = Source(
    "U",
    False,
    Schema((Field("ts", INT), Field("op", pa.string()), Field("k", INT))),
    "MEMORY",
    timestamp=0,
    domain=SECONDS,
    operation=1,
)
A = Column(INT, 0, "a")


def scan(source: Source, *columns: int) -> Algebra:
    return (StreamScan if source.is_stream else RelationScan)(source, columns)


def over(length: int | None, slide: int | None = None, source: Source = S, align: int = 0) -> Window:
    kind = WindowKind.UNBOUNDED if length is None else WindowKind.RANGE
    return Window(scan(source, 1), kind, length, slide, align)


def now(source: Source = S) -> Window:
    return Window(scan(source, 1), WindowKind.NOW)


def pairs(*rows: tuple[int, int | None]) -> pa.Table:
    return pa.table({"ts": pa.array([r[0] for r in rows], INT), "a": pa.array([r[1] for r in rows], INT)})


def answer(root: Algebra, drain: bool = False, **inputs: pa.Table) -> list[str]:
    """The events as text: `ts op values`."""
    query = Query("q", root, SinkSpec("MEMORY"))
    found = run_oracle(query, inputs, drain)
    assert found.as_table(query).num_rows == len(found.events)
    return [" ".join([str(ts), *([op] if op else []), *map(str, row)]) for ts, op, row in found.events]


def stream_of(root: Algebra, kind: StreamKind) -> RelationToStream:
    return RelationToStream(root, kind)


def count(node: Algebra, *group: int) -> Aggregate:
    return Aggregate(node, group, (AggregateCall(pa.int64(), "COUNT", ()),), ("n",))


def test_range_holds_for_its_length_and_stops_at_the_final_heartbeat() -> None:
    rows = pairs((1, 10), (2, 20), (4, 30))
    assert answer(over(2), S=rows) == ["1 + 10", "2 + 20", "3 - 10", "4 - 20", "4 + 30"]
    assert answer(over(2), drain=True, S=rows)[-1] == "6 - 30"


def test_slide_rounds_both_ends_up() -> None:
    rows = pairs((1, 10), (5, 20), (6, 30), (20, 0))
    assert answer(over(5, 5), S=rows) == ["5 + 10", "5 + 20", "10 - 10", "10 - 20", "10 + 30", "15 - 30", "20 + 0"]


def test_a_window_shorter_than_its_slide_leaves_gaps() -> None:
    # At boundary 10 the window is (8, 10]: of these only 9 and 10 are ever seen.
    rows = pairs((7, 7), (8, 8), (9, 9), (10, 10), (20, 0))
    assert answer(over(2, 10), S=rows) == ["10 + 9", "10 + 10", "20 - 9", "20 - 10", "20 + 0"]


def test_align_moves_the_boundaries() -> None:
    assert answer(over(5, 5, align=2), S=pairs((1, 10), (3, 20), (12, 0))) == [
        "2 + 10",
        "7 - 10",
        "7 + 20",
        "12 - 20",
        "12 + 0",
    ]


def test_equal_tuples_that_leave_and_enter_cancel() -> None:
    rows = pairs((1, 5), (3, 5), (3, 6))
    assert answer(stream_of(over(2), StreamKind.ISTREAM), S=rows) == ["1 5", "3 6"]
    assert answer(stream_of(over(2), StreamKind.DSTREAM), True, S=rows) == ["5 5", "5 6"]


def test_rstream_gives_the_whole_relation_at_arrivals_and_changes() -> None:
    rows = pairs((1, 5), (2, 6), (5, 7))
    assert answer(stream_of(over(2), StreamKind.RSTREAM), S=rows) == ["1 5", "2 5", "2 6", "3 6", "5 7"]


def test_rstream_counts_arrivals_that_a_selection_drops() -> None:
    kept = Select(over(10), Call(pa.bool_(), "EQ", (A, Literal(INT, 5))))
    assert answer(stream_of(kept, StreamKind.RSTREAM), S=pairs((1, 5), (3, 6))) == ["1 5", "3 5"]


def test_rstream_with_a_slide_is_evaluated_at_every_boundary() -> None:
    counted = count(over(10, 5))
    rows = pairs((1, 5), (18, 6))
    assert answer(stream_of(counted, StreamKind.RSTREAM), S=rows) == ["5 1", "10 1", "15 0"]
    assert answer(stream_of(counted, StreamKind.RSTREAM), True, S=rows)[3:] == ["20 1", "25 1", "30 0"]


def test_the_ungrouped_aggregate_has_its_row_from_the_first_instant() -> None:
    assert answer(count(over(2, 5)), S=pairs((4, 1), (11, 1))) == ["4 + 0", "5 - 0", "5 + 1", "10 - 1", "10 + 0"]


def test_groups_appear_and_disappear_and_null_is_one_of_them() -> None:
    assert answer(count(over(2), 0), S=pairs((1, None), (1, None), (2, 3), (3, 3))) == [
        "1 + None 2",
        "2 + 3 1",
        "3 - None 2",
        "3 - 3 1",
        "3 + 3 2",
    ]


def test_null_keys_never_join() -> None:
    joined = Join(now(), now(T), ((0, 0),))
    assert answer(joined, S=pairs((1, None), (1, 7)), T=pairs((1, None), (1, 7))) == ["1 + 7 7"]


def test_what_held_before_the_first_instant_is_shown_at_it() -> None:
    static = scan(R, 0)
    rows = pa.table({"k": pa.array([5, 6], INT), "v": ["x", "y"]})
    assert answer(static, R=rows) == ["0 + 5", "0 + 6"]
    assert answer(UnionAll((now(), static)), S=pairs((3, 1), (4, 1)), R=rows) == ["3 + 1", "3 + 5", "3 + 6"]


def test_an_updated_relation_loses_the_row_that_is_named() -> None:
    rows = pa.table(
        {"ts": pa.array([1, 2, 3, 4], INT), "op": ["+", "+", "-", "-"], "k": pa.array([7, None, None, 9], INT)}
    )
    assert answer(scan(U, 2), U=rows) == ["1 + 7", "2 + None", "3 - None"]


def test_late_rows_are_kept_out_and_counted() -> None:
    query = Query("q", scan(T, 1), SinkSpec("MEMORY"))
    found = run_oracle(query, {"T": pairs((5, 1), (3, 2), (2, 3), (9, 4), (7, 5), (6, 6))})
    assert [(ts, row) for ts, _, row in found.events] == [(3, (2,)), (5, (1,)), (7, (5,)), (9, (4,))]
    assert found.late == {"T": 2}


def test_a_derived_stream_takes_a_window() -> None:
    counted = stream_of(count(now(), 0), StreamKind.ISTREAM)
    again = Window(counted, WindowKind.RANGE, 2)
    assert answer(again, S=pairs((1, 5), (2, 5), (4, 5))) == ["1 + 5 1", "3 - 5 1", "4 + 5 1"]


def test_no_element_no_answer() -> None:
    assert answer(count(over(5)), S=pairs()) == []


def all_operators(base: type = Algebra) -> Iterator[type]:
    for sub in base.__subclasses__():
        # What stands in the folder of `Algebra` itself is a base too.
        if sub.__module__.rpartition(".")[0] != Algebra.__module__.rpartition(".")[0]:
            yield sub
        yield from all_operators(sub)


def test_every_operator_has_a_denotation() -> None:
    assert set(algebra.__all__) >= {"Distinct", "Project"}
    bases = (Scan, WithPreference, BudgetedRows)
    missing = [c.__name__ for c in all_operators() if c not in bases and denote.dispatch(c) is denote.dispatch(object)]
    assert not missing, f"the oracle does not know {missing}"
    with pytest.raises(TypeError):
        denote(object(), None)


def test_slides_agree_with_the_formula_of_the_language() -> None:
    """At boundary ks the window is (ks−T, ks]; between boundaries nothing changes."""
    draw = random.Random(1)
    for _ in range(2000):
        length, slide, align = draw.randint(1, 12), draw.randint(1, 7), draw.randint(-9, 9)
        ts, tau = draw.randint(-20, 20), draw.randint(-20, 40)
        start, end = validity(over(length, slide, align=align), ts)
        boundary = (tau - align) // slide * slide + align
        assert (start <= tau < end) == (boundary - length < ts <= boundary)
    assert validity(Window(scan(S, 1), WindowKind.UNBOUNDED, slide=5), 3) == (5, END)


def test_aggregates_by_hand() -> None:
    def of(function: str, type_: pa.DataType, *values: object, distinct: bool = False) -> object:
        call = AggregateCall(type_, function, (A,), distinct)
        return aggregate(call, [(v,) for v in values], lambda e, rows: [row[0] for row in rows])

    nan, inf = float("nan"), float("inf")
    assert of("COUNT", pa.int64()) == 0 and of("SUM", pa.int64()) is None and of("SUM", pa.int64(), None) is None
    assert of("SUM", pa.int64(), 2**63 - 1, 1) == -(2**63)
    assert of("AVG", pa.float64(), 1, 2, None) == 1.5
    assert of("MAX", pa.float64(), 1.0, nan, inf) != of("MAX", pa.float64(), 1.0, inf)
    assert of("MIN", pa.float64(), nan, 1.0, inf) == 1.0
    assert of("STDDEV_SAMP", pa.float64(), 4) is None and of("STDDEV_POP", pa.float64(), 4) == 0.0
    assert of("VAR_SAMP", pa.float64(), 1, 2, 3, 4) == pytest.approx(5 / 3)
    assert of("COUNT", pa.int64(), 0.0, -0.0, nan, nan, None, distinct=True) == 2
    assert of("SUM", pa.float64(), inf, -inf) != of("SUM", pa.float64(), inf)
