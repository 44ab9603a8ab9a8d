"""The test kit itself can fail: a comparison sees what differs, and a wrong case is told so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.algebra import Source, StreamScan, Window, WindowKind
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import plan_local, run_local
from penstock.testing.cases import case_arrivals, case_inputs, check_case, parse_case
from penstock.testing.compare import assert_same, check_shape, events_of, first_difference
from penstock.testing.random.worlds import FLAVOURS, random_case, seeded_choices
from penstock.testing.scalars.values import Event
from penstock.types import Field, Schema, TimeDomain, Unit
from tests.spread import CaseSpread

SOURCE = Source(
    "S",
    True,
    Schema((Field("ts", pa.int32()), Field("a", pa.float64()))),
    "MEMORY",
    timestamp=0,
    domain=TimeDomain(Unit.SECOND, False),
)
QUERY = Query("q", Window(StreamScan(SOURCE, (1,)), WindowKind.NOW), SinkSpec("MEMORY"))

CASE = """
# A case with everything.
statement
CREATE STREAM S (ts INT, a INT, s STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT a, s FROM S [NOW];

input S
1, 5, 'a, b'
2, NULL, NULL

advance

input S
1, 6, late

late S 1

expect q
ts, op, a, s
1, +, 5, 'a, b'
2, -, 5, 'a, b'
2, +, NULL, NULL

statement
CREATE QUERY r AS SELECT b FROM S;
error P0202 1:26
"""


def table(*rows: tuple[int, str, float | None]) -> pa.Table:
    columns: list[list[object]] = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    types = (pa.int64(), pa.string(), pa.float64())
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=["ts", "op", "a"])


def events(*rows: tuple[int, str, float | None]) -> list[Event]:
    return [(ts, op, (value,)) for ts, op, value in rows]


def test_equal_bags_in_another_order_are_the_same() -> None:
    assert_same(QUERY, table((1, "+", 1.0), (1, "+", None)), events((1, "+", None), (1, "+", 1.0)))


def test_doubles_may_differ_in_the_last_digits_only() -> None:
    noisy = table((1, "+", 0.3), (2, "-", 0.3), (2, "+", 0.30000000000000004))
    assert_same(QUERY, noisy, events((1, "+", 0.30000000000000004)))
    with pytest.raises(AssertionError, match="differs at 1"):
        assert_same(QUERY, table((1, "+", 0.3)), events((1, "+", 0.30001)))
    assert first_difference(events((1, "+", float("nan"))), events((1, "+", float("nan")))) is None
    assert first_difference(events((1, "+", -0.0)), events((1, "+", 0.0))) is None
    assert first_difference(events((1, "+", None)), events((1, "+", 0.0))) == 1


@pytest.mark.parametrize(
    "found",
    [
        [],
        [(1, "+", 1.0)],
        [(1, "+", 1.0), (1, "+", 1.0), (1, "+", 1.0)],
        [(1, "+", 1.0), (2, "+", 1.0)],
        [(1, "-", 1.0), (1, "+", 1.0)],
    ],
)
def test_another_bag_is_seen(found: list[tuple[int, str, float | None]]) -> None:
    with pytest.raises(AssertionError):
        assert_same(QUERY, table(*found), events((1, "+", 1.0), (1, "+", 1.0)))


def test_the_shape_of_a_result_is_held() -> None:
    check_shape(events((1, "-", 1.0), (1, "+", 2.0), (2, "-", 2.0)))
    for wrong in (
        events((2, "+", 1.0), (1, "+", 2.0)),
        events((1, "+", 1.0), (1, "-", 2.0)),
        events((1, "-", 1.0), (1, "+", 1.0)),
    ):
        with pytest.raises(AssertionError):
            check_shape(wrong)


def test_wrong_columns_and_types_are_seen() -> None:
    with pytest.raises(AssertionError, match="columns"):
        assert_same(QUERY, table().rename_columns(["ts", "op", "b"]), [])
    with pytest.raises(AssertionError, match="int64, not double"):
        assert_same(QUERY, table().set_column(2, "a", pa.array([], pa.int64())), [])


def test_a_right_case_passes() -> None:
    case = parse_case(CASE)
    assert [len(batch) for batch in case.inputs["S"]] == [2, 1]
    check_case(case)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("2, -, 5, 'a, b'\n", ""),
        ("2, +, NULL, NULL", "2, +, NULL, ''"),
        ("late S 1", "late S 2"),
        ("error P0202 1:26", "error P0201 1:26"),
        ("error P0202 1:26", "error P0202 1:27"),
        ("error P0202 1:26", "error P0202 1:26\nerror P0202"),
        ("SELECT b FROM", "SELECT a FROM"),
        ("ts, op, a, s\n", "ts, op, a\n"),
        ("1, +, 5, 'a, b'", "1, +, 5"),
        ("input S\n1, 6", "input T\n1, 6"),
    ],
)
def test_a_wrong_case_fails(right: str, wrong: str) -> None:
    assert right in CASE
    with pytest.raises(AssertionError):
        check_case(parse_case(CASE.replace(right, wrong)))


def test_a_line_outside_of_all_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse_case("inptu S\n1, 2")


def test_equal_seeds_give_equal_cases() -> None:
    for flavour in FLAVOURS:
        assert random_case(seeded_choices(7), flavour).render() == random_case(seeded_choices(7), flavour).render()
    assert len({random_case(seeded_choices(seed)).render() for seed in range(50)}) > 40


def test_a_plan_is_as_it_was_after_it_has_run() -> None:
    """Ways of a case share the plans that they have in common."""
    for path in sorted((Path(__file__).parent / "scripts").rglob("*.cqltest"))[::12]:
        case = parse_case(path.read_text(encoding="utf-8"), path.name)
        bound = bind_script(case.script, one_time=True)
        given, arrivals = case_inputs(case, bound), case_arrivals(case, bound)
        plan = plan_local(bound.queries, given)
        before = repr(plan)
        answers = [
            run_local(bound.queries, given, 1, batch_rows=rows, reload=True, arrivals=arrivals, plan=plan).tables
            for rows in (1, 1)
        ]
        assert repr(plan) == before, path.name
        for query in bound.queries:
            assert_same(query, answers[1][query.name], events_of(query, answers[0][query.name]))


def test_a_spread_of_cases_tries_each_value() -> None:
    """Of two parameters with three and five values a third is tried, and each value; another test tries others."""
    cases = [(str(one), str(other)) for one in range(3) for other in range(5)]

    def tried(name: str) -> list[tuple[str, str]]:
        spread = CaseSpread(name, 3)
        return [case for case in cases if not spread.is_left_to_soak(case)]

    assert len(tried("f")) == 5
    assert {one for one, _ in tried("f")} == {*"012"} and {other for _, other in tried("f")} == {*"01234"}
    assert len({frozenset(tried(name)) for name in "abcdefgh"}) == 3
