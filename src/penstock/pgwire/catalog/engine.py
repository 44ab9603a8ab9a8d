"""Answers to statements that read the catalogs, or nothing at all: `SELECT 1`.

Such a statement is read by PostgreSQL's grammar, translated (`queries.py`), and carried out by DuckDB in a process of
its own (`database/`); it waits for no round of the run. It ends after a time, when it is cancelled, and where it
takes more memory than a statement may.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from penstock.errors import PenstockError
from penstock.pgwire.catalog.answers import MOST_ROWS, KnownAnswers, is_fixed
from penstock.pgwire.catalog.database.processes import CatalogProcesses
from penstock.pgwire.catalog.database.requests import DatabaseRequest, DatabaseSession
from penstock.pgwire.catalog.declarations.control_tables import control_columns, control_rows
from penstock.pgwire.catalog.declarations.declared import CatalogImage
from penstock.pgwire.catalog.declarations.tables import SCHEMAS, system_columns
from penstock.pgwire.catalog.translation.functions import SessionFacts
from penstock.pgwire.catalog.translation.queries import Queries
from penstock.pgwire.catalog.translation.scopes import SqlColumn
from penstock.pgwire.catalog.translation.typed_values import MOMENT_TYPES, element_of, name_of, shown
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.values.duck_types import REGISTERS
from penstock.pgwire.values.wire_types import WireType, type_of_oid, wire_type
from penstock.results.cancellation import Cancellation

#: Units that may stand behind an interval.
_UNITS = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
#: Statements that are kept translated, by connection.
_KNOWN = 100


class _PlainParser(PostgresParser):
    # A function is what the statement calls it: the parser's own have other names and arguments.
    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
    #: Those with a grammar of their own.
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
        name: read
        for name, read in PostgresParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "EXTRACT", "OVERLAY", "POSITION", "STRING_AGG", "SUBSTRING", "TRIM")
    }

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        """Read an interval: what stands in its quotes, with a unit behind it or none. The parser's own takes the first
        part of what is in the quotes alone, and a sum behind it for further parts."""
        index = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        if not self._match(TokenType.STRING, advance=False):
            self._retreat(index)
            return None
        value = self._parse_primary()
        unit: exp.Var | exp.IntervalSpan | None = None
        if self._curr is not None and self._curr.text.upper() in _UNITS:
            unit = exp.Var(this=self._curr.text.upper())
            self._advance()
            if self._match_text_seq("TO"):
                unit = exp.IntervalSpan(this=unit, expression=self._parse_var())
        return self.expression(exp.Interval(this=value, unit=unit))


class _Plain(Postgres):
    Parser = _PlainParser


@dataclass(frozen=True)
class CatalogAnswer:
    """An answer. names, types: of its columns."""

    names: tuple[str, ...]
    types: tuple[WireType, ...]
    rows: pa.Table


def parsed(text: str) -> exp.Expr | None:
    """Return the tree of a statement by PostgreSQL's grammar; None for what it does not know, or is no query."""
    try:
        trees = sqlglot.parse(text, read=_Plain)
    except (SqlglotError, RecursionError):
        return None
    (tree,) = trees if len(trees) == 1 else (None,)
    return tree if isinstance(tree, exp.Query | exp.Values) else None


def tables_of(tree: exp.Expr) -> set[tuple[str, str]]:
    """Return the tables that a query names, (schema, name) in lower case; the schema is empty where none is given."""
    named = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    found = {
        (str(one.db).lower(), str(one.name).lower())
        for one in tree.find_all(exp.Table)
        if isinstance(one.this, exp.Identifier)
    }
    return {(schema, name) for schema, name in found if schema or name not in named}


def is_system_table(schema: str, name: str) -> bool:
    """Return whether a table is one of the catalogs'."""
    return schema in SCHEMAS or (not schema and ("pg_catalog", name) in system_columns())


@dataclass(frozen=True)
class _Translated:
    """A statement for DuckDB. tables: that it reads; is_fixed: whether its answer may be kept."""

    text: str
    names: tuple[str, ...]
    types: tuple[WireType, ...]
    tables: tuple[tuple[str, str], ...]
    is_fixed: bool


class CatalogEngine:
    """The catalogs as one connection of a client sees them. One thread at a time."""

    def __init__(
        self,
        facts: SessionFacts,
        most_rows: int,
        processes: CatalogProcesses,
        known_answers: KnownAnswers[CatalogAnswer],
    ) -> None:
        self._facts, self._most_rows, self._processes, self._answers = facts, most_rows, processes, known_answers
        #: The statements that were translated last, with their trees: one that is prepared is carried out again.
        self._known: dict[int, tuple[exp.Expr, _Translated]] = {}

    def columns(self, tree: exp.Expr) -> tuple[tuple[str, ...], tuple[WireType, ...]]:
        """Return names and types of the columns of a query. Raises WireError."""
        found = self._translated(tree)
        return found.names, found.types

    def answer(
        self,
        tree: exp.Expr,
        image: CatalogImage | None,
        cancellation: Cancellation,
        control: Mapping[str, pa.Table] | None = None,
    ) -> CatalogAnswer:
        """Carry out a query.

        Args:
            image: what is declared; None for a query that reads none of it.
            control: the rows of the control relations that it reads, by name.

        Raises:
            PenstockError: 0A000 and others for what is not known, P0725, P0726, P0804.
        """
        found, facts = self._translated(tree), self._facts
        key = found.text, found.names, found.types, facts.user, facts.can_write
        if found.is_fixed and (before := self._answers.get(key, image)) is not None:
            return before
        rows = {name: (control_columns()[name], control_rows(table)) for name, table in (control or {}).items()}
        session = DatabaseSession(facts.user, facts.backend, facts.can_write, dict(facts.settings()))
        now = dt.datetime.now(dt.UTC).isoformat(" ")
        request = DatabaseRequest(found.text, found.tables, session, now, self._most_rows, image, rows)
        answer = self._processes.answer(request, cancellation)
        for name, value in answer.settings:
            facts.set(name, value)
        if len(answer.rows) > self._most_rows:
            message = f"the answer has more than {self._most_rows:,} rows, the server's max_result_rows"
            raise PenstockError("P0804", message, hint="add a LIMIT")
        arrays = [_array([row[n] for row in answer.rows], type_) for n, type_ in enumerate(found.types)]
        schema = pa.schema([pa.field(f"c{n}", array.type) for n, array in enumerate(arrays)])
        made = CatalogAnswer(found.names, found.types, pa.table(arrays, schema=schema) if arrays else pa.table({}))
        if found.is_fixed and made.rows.num_rows <= MOST_ROWS:
            self._answers.put(key, image, made)
        return made

    def _translated(self, tree: exp.Expr) -> _Translated:
        known = self._known.pop(id(tree), None)
        if known is None or known[0] is not tree:
            queries = Queries()
            try:
                text, columns = queries.query(tree)
            except RecursionError:
                raise WireError("54001", "the statement is nested too deeply", code="P0105") from None
            sent = ", ".join(_sent(SqlColumn(f"c{n}", one.type)) for n, (_, one) in enumerate(columns, 1))
            text = f"SELECT {sent} FROM ({text}) LIMIT {self._most_rows + 1}"
            names, types = tuple(name for name, _ in columns), tuple(_described(one) for _, one in columns)
            known = tree, _Translated(text, names, types, tuple(sorted(queries.tables)), is_fixed(text))
        self._known[id(tree)] = known
        while len(self._known) > _KNOWN:
            self._known.pop(next(iter(self._known)))
        return known[1]


def _described(column: SqlColumn) -> WireType:
    """Return the type in which the values of a column are sent."""
    if column.type is None or column.type.name in ("record", "unknown", "anyarray", "void", *REGISTERS):
        return wire_type("text")
    return column.type


def _sent(column: SqlColumn) -> str:
    """Return a column as it leaves the process: an instant as the microseconds or days from 1970."""
    name, element = name_of(column), element_of(column)
    if element is not None and element.name in MOMENT_TYPES:
        return f"list_transform({column.text}, lambda e: {_sent(SqlColumn('e', element))})"
    if element is not None and element.name in ("numeric", "interval", *REGISTERS):
        return f"list_transform({column.text}, lambda e: {shown(SqlColumn('e', element)).text})"
    if name in ("timestamp", "timestamptz"):
        return f"epoch_us({column.text})"
    if name == "date":
        return f"({column.text} - DATE '1970-01-01')::INTEGER"
    return shown(column).text if name in ("numeric", "interval", *REGISTERS) else column.text


def _array(values: list[object], type_: WireType) -> pa.Array:
    """Return the values of a column as they came from the process as those of a type."""
    arrow = _arrow((type_of_oid(type_.element) or wire_type("text")).name if type_.element else type_.name)
    if pa.types.is_temporal(arrow):
        plain = pa.int32() if arrow == pa.date32() else pa.int64()
        return pa.array(values, pa.list_(plain) if type_.element else plain).cast(
            pa.list_(arrow) if type_.element else arrow
        )
    return pa.array(values, pa.list_(arrow) if type_.element else arrow)


def _arrow(name: str) -> pa.DataType:
    if name in ("int2", "int4", "int8", "oid", "xid"):
        return pa.int64()
    if name in ("timestamp", "timestamptz"):
        return pa.timestamp("us", "UTC" if name == "timestamptz" else None)
    # A numeric is a text here, with all its digits.
    others = {"bool": pa.bool_(), "date": pa.date32(), "float4": pa.float64(), "float8": pa.float64()}
    return others.get(name, pa.string())
