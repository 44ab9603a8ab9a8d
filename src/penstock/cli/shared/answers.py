"""Answers of statements, for standard output, and remarks on them, for standard error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.connectors.sinks.output import OutputFormat
from penstock.connectors.sinks.tabular import drawn, expanded, shown
from penstock.connectors.text import csv_text, json_text
from penstock.errors import counted

if TYPE_CHECKING:
    from penstock.runtime.local.one_time import OneTimeAnswer


@dataclass(frozen=True)
class RowsAnswer:
    """The rows of a one-time query.

    Args:
        text: of the query.
        instant: of the answer, as text; None where no source has a time.
        warnings: lines about rows that are in no answer.
    """

    table: pa.Table
    text: str
    instant: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextAnswer:
    """The answer of SHOW, DESCRIBE and EXPLAIN."""

    text: str


@dataclass(frozen=True)
class Remark:
    """A remark on a statement beside its answer. confirms: it confirms that the statement was executed; programs do
    not get it."""

    text: str
    confirms: bool = False


@dataclass(frozen=True)
class FollowAnswer:
    """The results of a continuous query, from now on.

    Args:
        query: its name; of a SUBSCRIBE with more clauses, a name for its result.
        snapshot, progress: whether the result contains their rows.
        sql: the statement, where it has more than the name.
    """

    query: str
    snapshot: bool
    progress: bool
    sql: str | None = None


Answer = RowsAnswer | TextAnswer | Remark | FollowAnswer


def rows_answer(answer: OneTimeAnswer, text: str) -> RowsAnswer:
    """Return the answer of a query that this process has computed."""
    instant = None if answer.tick is None else answer.query.domain.show(answer.tick)
    return RowsAnswer(answer.table, text, instant, tuple(warnings_of(answer)))


def table_text(answer: RowsAnswer, is_expanded: bool = False) -> Iterator[str]:
    """Yield the answer as a table for people, with the number of its rows and its instant below. is_expanded: a line
    for each value."""
    yield from expanded(answer.table) if is_expanded else drawn(answer.table)
    instant = "" if answer.instant is None else f", as of {answer.instant}"
    yield f"({counted(answer.table.num_rows, 'row')}{instant})\n"


def data_text(table: pa.Table, form: OutputFormat, head: bool = True) -> str:
    """Return a table as csv or json lines, as a server does. head: whether csv begins with the names of the columns."""
    content: bytes = (csv_text(table, head) if form is OutputFormat.CSV else json_text(table, exact=True)).to_pybytes()
    return content.decode("utf-8", "backslashreplace")


def warnings_of(answer: OneTimeAnswer) -> Iterator[str]:
    """Yield a line for each source with rows that are in no answer, and for what else is to be known of the inputs."""
    for first, *others in answer.left_out():
        yield shown(f"WARNING: {first}")
        yield from map(shown, others)
    for warning in answer.warnings:
        yield shown(f"WARNING: {warning}")
