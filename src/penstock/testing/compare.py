"""Comparison of a result with the oracle's answer: per instant, as netted bags, doubles up to a tolerance.

Contract: `assert_same` raises AssertionError that names the first differing instant and shows both bags there;
`check_shape` checks the guarantees of [semantics 4.4] (order in time, `-` before `+`, netted).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.testing.oracle import Answer
from penstock.testing.scalars.values import Event, FarDate, FarTimestamp, Row, close, event_order, key_of, python_values
from penstock.types import TimeDomain


def events_of(query: Query, table: pa.Table) -> list[Event]:
    """Return the rows of a result table as events, in the table's order.

    Raises:
        AssertionError: the table has wrong columns or types.
    """
    assert tuple(table.column_names) == query.output_names, f"columns {table.column_names}, not {query.output_names}"
    items = table.columns[1 if query.root.is_stream else 2 :]
    for column, field in zip(items, query.root.schema, strict=True):
        assert column.type == field.type, f"column {field.name} is {column.type}, not {field.type}"
    assert table.column(0).type == query.domain.type(), f"ts is {table.column(0).type}, not {query.domain.type()}"
    ticks = table.column(0).cast(pa.int64()).to_pylist()
    ops: list[Any] = [None] * len(ticks) if query.root.is_stream else table.column(1).to_pylist()
    rows: Iterable[Row] = zip(*map(python_values, items), strict=True) if items else [()] * len(ticks)
    return list(zip(ticks, ops, rows, strict=True))


def check_shape(events: list[Event]) -> None:
    """Check that a result is in order of time, that `-` precedes `+` at one instant, and that no tuple has both."""
    marks = [(ts, op == "+") for ts, op, _ in events]
    for one, other in itertools.pairwise(marks):
        assert one <= other, f"out of order: {one} stands before {other} (instant, whether it is a +)"
    added = {(ts, key_of(row)) for ts, op, row in events if op == "+"}
    both = [(ts, row) for ts, op, row in events if op == "-" and (ts, key_of(row)) in added]
    assert not both, f"not netted: {both[0][1]} has both - and + at {both[0][0]}"


def assert_same(
    query: Query,
    table: pa.Table,
    answer: Answer | list[Event],
    tolerance: float = 1e-9,
    ignore: Collection[int] = (),
) -> None:
    """Assert that `table`, the result of `query`, equals `answer`; instants in `ignore` are not compared."""
    found = events_of(query, table)
    check_shape(found)
    expected = answer.events if isinstance(answer, Answer) else answer
    difference = first_difference(expected, found, tolerance, ignore)
    assert difference is None, _explain(query, expected, found, difference)


def first_difference(
    expected: list[Event], found: list[Event], tolerance: float = 1e-9, ignore: Collection[int] = ()
) -> int | None:
    """Return the first instant at which the netted bags differ, or None."""
    bags: dict[int, Counter[Row]] = defaultdict(Counter)
    shown: dict[Row, Row] = {}
    for events, sign in ((expected, 1), (found, -1)):
        for ts, op, row in events:
            key = key_of(row)
            shown[key] = row
            bags[ts][key] += -sign if op == "-" else sign
    for ts in sorted(bags):
        if ts not in ignore and not _cancels([(shown[k], n) for k, n in bags[ts].items() if n], tolerance):
            return ts
    return None


def _cancels(rest: list[tuple[Row, int]], tolerance: float) -> bool:
    """Return whether rows that differ exactly are pairs of close rows, as sums of doubles in another order produce."""
    owed = [row for row, n in rest for _ in range(n)]
    extra = [row for row, n in rest for _ in range(-n)]
    if len(owed) != len(extra):
        return False
    for row in owed:
        place = next((i for i, other in enumerate(extra) if close(row, other, tolerance)), None)
        if place is None:
            return False
        del extra[place]
    return True


def _explain(query: Query, expected: list[Event], found: list[Event], ts: int) -> str:
    domain = query.domain
    lines = [f"{query.name} differs at {domain.show(ts)}; the columns are {', '.join(query.output_names)}"]
    for title, events in (("expected", expected), ("found", found)):
        here = sorted((e for e in events if e[0] == ts), key=event_order)
        lines += [f"  {title}:"] + ([f"    {line}" for line in show_events(here, domain)] or ["    (nothing)"])
    return "\n".join(lines)


def show_events(events: Iterable[Event], domain: TimeDomain) -> list[str]:
    """Return one line per event, as in a `.cqltest` file."""
    return [
        ", ".join([domain.show(ts), *([op] if op else []), *(show_value(value) for value in row)])
        for ts, op, row in events
    ]


def show_value(value: object) -> str:
    """Return a value as text of a `.cqltest` file: strings quoted, NULL, true and false, ISO dates and times."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        value = json.dumps(_without_far(value), default=_show_plain)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    return str(value)


def _without_far(value: object) -> Any:
    """Return a nested value with the text of each date that JSON would take for a number."""
    if isinstance(value, list):
        return [_without_far(member) for member in value]
    if isinstance(value, dict):
        return {name: _without_far(member) for name, member in value.items()}
    return value.isoformat() if isinstance(value, FarDate | FarTimestamp) else value


def _show_plain(value: object) -> str:
    """Return a value inside an array that has no JSON form, as a cell shows it, without quotes of its own."""
    return show_value(value).strip("'")
