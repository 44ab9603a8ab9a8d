"""What sinks share: the columns of a stored result, and what they say of a table that is there already.

`where`: the query and its table, as messages name them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError, nearest


def stored_schema(query: Query) -> pa.Schema:
    """The result's columns; one that is NULL throughout is text, for formats have no type of NULL alone."""
    return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in query.output_schema])


def check_rows(where: str, overwrite: bool, ours: bool) -> None:
    """Raises PenstockError P0501 unless the rows that are there may be replaced. ours: this query wrote them."""
    if not overwrite:
        hint = "mode 'append' adds to it, --overwrite replaces its rows, --checkpoint DIR lets a run go on"
        raise PenstockError("P0501", f"{where} has rows already", hint=hint)
    if not ours:
        hint = "they are not overwritten: choose another table"
        raise PenstockError("P0501", f"{where} holds rows that this query did not write", hint=hint)


def not_ours(where: str) -> PenstockError:
    """Whoever wrote the table last was not this run."""
    hint = "another run took it over, or it was made anew; start anew"
    return PenstockError("P0502", f"{where} is not, or no more, the table that this run writes", hint=hint)


def no_column(where: str, name: str, there: Iterable[str]) -> PenstockError:
    return PenstockError("P0502", f"{where} has no column {name}", hint=nearest(name, there))


def other_type(where: str, name: str, there: str, result: str) -> PenstockError:
    hint = "CAST in the query, or choose another table"
    return PenstockError("P0502", f"{where}: column {name} is {there}, the result's is {result}", hint=hint)
