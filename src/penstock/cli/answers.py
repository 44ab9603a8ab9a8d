"""Answers of one-time queries and of EXPLAIN and SHOW, for standard output, and what is said about them beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.connectors.sinks.output import OutputFormat
from penstock.connectors.sinks.tabular import drawn, shown
from penstock.connectors.sinks.text import csv_text, json_text
from penstock.errors import counted
from penstock.runtime.local.one_time import OneTimeAnswer


def table_text(answer: OneTimeAnswer) -> Iterator[str]:
    """Yield the answer as a table for people, with the number of its rows and its instant below."""
    yield from drawn(answer.table)
    tick = answer.tick
    instant = "" if tick is None else f", as of {answer.query.domain.show(tick)}"
    yield f"({counted(answer.table.num_rows, 'row')}{instant})\n"


def data_text(table: pa.Table, form: OutputFormat) -> str:
    """Return a table as csv or json lines."""
    content: bytes = (csv_text(table) if form is OutputFormat.CSV else json_text(table)).to_pybytes()
    return content.decode("utf-8", "backslashreplace")


def warnings_of(answer: OneTimeAnswer) -> Iterator[str]:
    """Yield a line for each source with rows that are in no answer."""
    for name, count in answer.late.items():
        yield shown(f"WARNING: {counted(count, 'row')} of {name} came late and came into no result.")
    for name, reasons in answer.rejected.items():
        reasons_text = "; ".join(f"{count:,} x {reason}" for reason, count in reasons.items())
        yield shown(f"WARNING: {counted(sum(reasons.values()), 'record')} of {name} rejected: {reasons_text}")
