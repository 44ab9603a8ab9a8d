"""SELECT DISTINCT ON: of the rows with equal keys the first in the order of ORDER BY."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from penstock.server.pgwire.catalog.operations import nulls_of
from penstock.server.pgwire.catalog.scalars import Scalars
from penstock.server.pgwire.catalog.scopes import FromScope, SqlColumn, folded
from penstock.server.pgwire.protocol.errors import WireError


class _HasScalars(Protocol):
    """What translates expressions."""

    scalars: Scalars


class FirstRows:
    """The texts that DISTINCT ON adds to a SELECT for SQLite, which has no such clause: its rows are numbered within
    their keys, and the first are kept.

    Args:
        node: the SELECT.
        on: the keys.
        columns: of the SELECT, with their names.
    """

    def __init__(
        self,
        selects: _HasScalars,
        node: exp.Select,
        on: exp.Expr,
        columns: list[tuple[str, SqlColumn]],
        scope: FromScope,
    ) -> None:
        self._scalars, self._columns, self._scope = selects.scalars, columns, scope
        given = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
        keys = [self._text(one) for one in given]
        order = node.args.get("order")
        ordered = list(order.expressions) if order is not None else []
        sorts = [self._text(one.this) for one in ordered]
        left = set(keys)
        for sort in sorts:
            if not left:
                break
            if sort not in keys:
                raise self._mismatch()
            left.discard(sort)
        self._partition = ", ".join(f"k{number}" for number in range(1, len(keys) + 1))
        self._order = ", ".join(
            f"o{number}{' DESC' if one.args.get('desc') else ''} NULLS {nulls_of(one)}"
            for number, one in enumerate(ordered, 1)
        )
        named = [(f"k{number}", text) for number, text in enumerate(keys, 1)]
        named += [(f"o{number}", text) for number, text in enumerate(sorts, 1)]
        #: What the SELECT has to return beside its columns.
        self.keys = "".join(f", {text} AS {name}" for name, text in named)

    def of(self, text: str) -> str:
        """Return the first rows of a SELECT that returns `keys` as well, in their order."""
        ordered = f" ORDER BY {self._order}" if self._order else ""
        numbered = f"SELECT *, row_number() OVER (PARTITION BY {self._partition}{ordered}) AS nth FROM ({text})"
        shown = ", ".join(f"c{number}" for number in range(1, len(self._columns) + 1))
        return f"SELECT {shown} FROM ({numbered}) WHERE nth = 1{ordered}"

    def _text(self, node: exp.Expr) -> str:
        """Return a key: the number or the name of a column of the answer, or an expression."""
        if isinstance(node, exp.Literal) and not node.is_string:
            number = int(node.this) if node.this.isdigit() and len(node.this) < 10 else 0
            if not 0 < number <= len(self._columns):
                raise WireError("42P10", f"the answer has no column {node.this[:20]}", code="P0202")
            return self._columns[number - 1][1].text
        if isinstance(node, exp.Column) and not node.args.get("table"):
            name = folded(node.this)
            found = next((column for given, column in self._columns if given == name), None)
            if found is not None:
                return found.text
        return self._scalars.translate(node, self._scope).text

    @staticmethod
    def _mismatch() -> WireError:
        message = "the keys of DISTINCT ON have to be the first of ORDER BY"
        return WireError("42P10", message, "name the keys first, then what decides which row is kept", code="P0305")
