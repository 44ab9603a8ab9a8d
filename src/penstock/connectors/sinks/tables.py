"""Shared by sinks: the columns of a stored result, and errors about an existing table.

`where`: the query and its table, for messages.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError, nearest


def stored_schema(query: Query) -> pa.Schema:
    """Return the result's columns; one that is always NULL is text, because formats have no type of NULL alone."""
    return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in query.output_schema])


def check_rows(where: str, overwrite: bool, written_by_query: bool) -> None:
    """Check that the existing rows may be replaced.

    Args:
        where: the query and its table, for messages.
        overwrite: whether the run has `--overwrite`.
        written_by_query: whether this query wrote the rows.

    Raises:
        PenstockError: P0501, they may not.
    """
    if not overwrite:
        hint = "mode 'append' adds to it, --overwrite replaces its rows, --checkpoint DIR continues a run"
        raise PenstockError("P0501", f"{where} has rows already", hint=hint)
    if not written_by_query:
        hint = "they are not overwritten: choose another table"
        raise PenstockError("P0501", f"{where} holds rows that this query did not write", hint=hint)


def not_ours(where: str) -> PenstockError:
    """Return the error for a table whose last writer was not this run."""
    hint = "another run has taken it over, or it was created again; start a new run"
    return PenstockError("P0502", f"{where} is not the table that this run writes", hint=hint)


def no_column(where: str, name: str, columns: Iterable[str]) -> PenstockError:
    return PenstockError("P0502", f"{where} has no column {name}", hint=nearest(name, columns))


def other_type(where: str, name: str, stored_type: str, result_type: str) -> PenstockError:
    hint = "CAST in the query, or choose another table"
    return PenstockError("P0502", f"{where}: column {name} is {stored_type}, the result's is {result_type}", hint=hint)
