"""The form of the registry: attributes and the control relations that list them.

A control relation has a row for each thing of a kind: a query, an operator, a batch. Its columns are attributes: a
name, a type, a help text, where the value is read, and for those that UPDATE may set the statement that sets it. The
relations, the HTTP forms and docs/control-relations.md all follow from these tables (`relations.py`).

An attribute whose value is not known is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.control.entities.system import SystemView
from penstock.figures.figure import Figure, FigureUnit
from penstock.language.catalog import ControlTable
from penstock.language.queries import CONTROL_SCHEMA, Name
from penstock.language.statements import AlterQueryStatement, Statement, WrittenOption
from penstock.language.statements.alter_query import SetAction
from penstock.types import TIMESTAMP, Field, Schema, TimeDomain, Unit

T = TypeVar("T")

TEXT, COUNT, REAL, FLAG, MOMENT = pa.string(), pa.int64(), pa.float64(), pa.bool_(), TIMESTAMP
#: The connector of control relations, which no statement can name.
CONNECTOR = "CONTROL"
#: Microseconds after which the time of a control stream goes on to its last row: a longer wait would hold back an
#: alert, a shorter one would cost rounds of their own between batches.
_QUIET = 1_000_000


class Origin(Enum):
    """Where the value of an attribute is read."""

    CATALOG = "declarations"
    RUN = "totals of the run, after each batch"
    TASKS = "reports of the tasks, with each batch"
    LOG = "command log"
    SERVER = "the server's doors"
    NOWHERE = "not measured by this version: always NULL"


@dataclass(frozen=True)
class AttributeSetting(Generic[T]):
    """How UPDATE sets an attribute.

    Args:
        statement: returns the statement that sets it of a row, to a value as text, or one for each thing that changes.
            Raises PenstockError P0752.
        applied: what that statement is, for the page.
        default: the value without one, as text.
        together: how many queries change with a row; an UPDATE that changes several has to be confirmed.
        default_of: the value of a row without one, where rows differ in it.
        applies: whether it can be set of a row at all; without it of each.
    """

    statement: Callable[[T, str], Statement | Sequence[Statement]]
    applied: str
    default: str | None = None
    together: Callable[[T], int] | None = None
    default_of: Callable[[T], str | None] | None = None
    applies: Callable[[T], bool] | None = None

    def is_for(self, row: T) -> bool:
        """Return whether it can be set of a row."""
        return self.applies is None or self.applies(row)


def set_in_query(query: str, name: str, value: str) -> Statement:
    """Return the statement that sets an attribute of a query, for `AttributeSetting`."""
    return AlterQueryStatement(Name(query, quoted=True), SetAction((WrittenOption(Name(name), value),)))


@dataclass(frozen=True)
class Attribute(Generic[T]):
    """One attribute. read: its value for a row; unit: empty for none."""

    name: str
    type: pa.DataType
    help: str
    read: Callable[[T], object]
    origin: Origin = Origin.CATALOG
    unit: str = ""
    setting: AttributeSetting[T] | None = None


@dataclass(frozen=True)
class ControlRelation(Generic[T]):
    """One control relation.

    Args:
        rows: what it lists.
        kind: of its entities, the part of an id before the colon; empty where its rows are no entities.
        key: the rest of the id of a row's entity.
        title: a name of the entity for people.
        confirms: whether an UPDATE of all rows has to be confirmed.
        timestamp: the column with the timestamps of a stream, which continuous queries read; empty for a relation.
    """

    name: str
    help: str
    attributes: tuple[Attribute[T], ...]
    rows: Callable[[SystemView], Iterable[T]]
    kind: str = ""
    key: Callable[[T], str] | None = None
    title: Callable[[T], str] = str
    confirms: bool = False
    timestamp: str = ""

    @property
    def qualified(self) -> str:
        return f"{CONTROL_SCHEMA}.{self.name}"

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(one.name, one.type) for one in self.attributes])

    @cached_property
    def declared(self) -> ControlTable:
        """Return the relation as statements are bound against it."""
        columns = Schema(tuple(Field(one.name, one.type) for one in self.attributes))
        settable = frozenset(one.name for one in self.attributes if one.setting is not None)
        if not self.timestamp:
            return ControlTable(Source(self.qualified, False, columns, CONNECTOR), settable)
        at = next(i for i, one in enumerate(self.attributes) if one.name == self.timestamp)
        domain = TimeDomain(Unit.MICROSECOND, calendar=True)
        return ControlTable(Source(self.qualified, True, columns, CONNECTOR, (), at, domain, idle=_QUIET), settable)

    def attribute(self, name: str) -> Attribute[T]:
        return next(one for one in self.attributes if one.name == name)

    def table(self, view: SystemView, columns: Collection[str] | None = None) -> pa.Table:
        """Return its rows. columns: those whose values are needed; the others are NULL."""
        rows = list(self.rows(view))
        arrays = [
            pa.array([one.read(row) for row in rows], one.type)
            if columns is None or one.name in columns
            else pa.nulls(len(rows), one.type)
            for one in self.attributes
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def described(self, row: T) -> str:
        """Return what a row is, for messages."""
        return f"{self.kind} {self.title(row)}".strip()

    def id_of(self, row: T) -> str:
        """Return the id of the entity of a row."""
        assert self.key is not None, "its rows are entities"
        return f"{self.kind}:{self.key(row)}"


def measured(
    figure: Figure, read: Callable[[T], object], origin: Origin = Origin.TASKS, help_: str | None = None
) -> Attribute[T]:
    """Return the attribute of a figure.

    Args:
        read: the object that has the figure as a field, for a row; None where it is not known.
        help_: in place of the figure's own.
    """

    def value(row: T) -> int | float | None:
        owner = read(row)
        found: int | float | None = None if owner is None else getattr(owner, figure.attribute)
        return int(found) if found is not None and figure.unit.is_whole else found

    type_, unit = COUNT if figure.unit.is_whole else REAL, "" if figure.unit is FigureUnit.RATIO else figure.unit.value
    return Attribute(figure.attribute, type_, help_ or figure.help, value, origin, unit)


def nothing(row: object) -> None:
    """Return the value of an attribute that is not measured."""


def unmeasured(name: str, type_: pa.DataType, help_: str) -> Attribute[Any]:
    """Return an attribute that no version so far measures."""
    return Attribute(name, type_, help_, nothing, Origin.NOWHERE)


def never(view: SystemView) -> tuple[()]:
    """Return the rows of a relation for something that does not exist yet."""
    return ()
