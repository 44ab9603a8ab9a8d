"""Comparison of the answers of one-time queries: as bags, and row by row where the query orders them.

Contract: each function raises AssertionError that shows both answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.windows import unbounded
from penstock.runtime.local.one_time import answer_over
from penstock.testing.compare import first_difference, show_value
from penstock.testing.oracle import run_oracle_once
from penstock.testing.scalars.values import Event, Row, close, python_values


def as_of(query: Query, tick: int | None) -> OneTimeQuery:
    """Return the one-time query that reads the relation of a continuous one at `tick` (None: the last instant); of a
    stream that of its elements so far."""
    root = unbounded(query.root) if query.root.is_stream else query.root
    return OneTimeQuery(query.name, root, len(root.schema), as_of=tick, text=query.text)


def check_once(query: OneTimeQuery, inputs: Mapping[str, pa.Table]) -> None:
    """Check the local runtime against the oracle."""
    assert_same_rows(query, rows_of(answer_over(query, inputs).table), run_oracle_once(query, inputs))


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of an answer as Python values."""
    columns = [python_values(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def assert_same_rows(query: OneTimeQuery, found: Sequence[Row], expected: Sequence[Row]) -> None:
    """Check that two answers hold the same rows, in the same order where the query has one."""
    same = first_difference(_events(expected), _events(found)) is None
    if same and query.limit is not None:
        same = all(close(one, other, 1e-9) for one, other in zip(found, expected, strict=True))
    assert same, "\n".join([f"{query.text}: expected", *_shown(expected), "found", *_shown(found)])


def _events(rows: Sequence[Row]) -> list[Event]:
    return [(0, None, row) for row in rows]


def _shown(rows: Sequence[Row]) -> list[str]:
    return [f"  {', '.join(map(show_value, row))}" for row in rows] or ["  (nothing)"]
