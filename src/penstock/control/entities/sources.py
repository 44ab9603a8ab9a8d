"""`penstock.streams`, `relations`, `columns`, `views` and `functions`: what is declared beside queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock import figures
from penstock.algebra.nodes.scans import Source
from penstock.control.entities.attributes import (
    COUNT,
    FLAG,
    MOMENT,
    REAL,
    TEXT,
    Attribute,
    AttributeSetting,
    ControlRelation,
    Origin,
    measured,
)
from penstock.control.entities.queries import in_calendar, moment_of
from penstock.control.entities.system import SystemView
from penstock.control.stored_catalog import StoredObject
from penstock.expressions.aggregates import AGGREGATES
from penstock.expressions.library import TOPICS
from penstock.expressions.user import signature
from penstock.language.binder.statements.attributes import NONE
from penstock.language.catalog import QueryStatus, UnboundDeclaration
from penstock.language.queries import Name
from penstock.language.statements import AlterSourceStatement, Statement, WrittenOption
from penstock.redaction import redacted_text
from penstock.runtime.monitoring.metrics import SourceMetrics
from penstock.types import CALENDAR, Schema, type_name

T = TypeVar("T")


@dataclass(frozen=True)
class SourceRow:
    """A stream or relation.

    Args:
        source: of one that cannot be bound its name and kind alone.
        number: of its declaration.
    """

    view: SystemView
    source: Source
    number: int
    unbound: UnboundDeclaration | None = None

    @property
    def kind(self) -> str:
        return "stream" if self.source.is_stream else "relation"

    @property
    def metrics(self) -> SourceMetrics | None:
        return self.view.figures.metrics.sources.get(self.source.name)

    @property
    def rate(self) -> float | None:
        """Return the records a second that are read of it."""
        if self.metrics is None:
            return None
        name = self.source.name
        return self.view.figures.run.rate(lambda batch: batch.rows_in.get(name, 0), self.view.now)

    @property
    def heartbeat_tick(self) -> int | None:
        return self.view.version.sources.get(self.source.name.lower())

    @property
    def punctuations(self) -> int:
        return self.view.version.punctuations.get(self.source.name.lower(), 0)

    @property
    def domain(self) -> str | None:
        """Return what one of its ticks is."""
        domain = self.source.domain
        if domain is None:
            return None
        return "TIMESTAMP" if domain.calendar else f"integers of a {domain.unit.name}"

    @property
    def retained(self) -> tuple[int, int | None] | None:
        return self.view.figures.retained.get(self.source.name.lower())

    def length(self, ticks: int | None, calendar: bool = False) -> str | None:
        """Return a length of time as ALTER takes it. calendar: it is one of the wall clock."""
        domain = CALENDAR if calendar else self.source.domain
        return None if ticks is None or domain is None else domain.show_length(ticks)


def _rows(is_stream: bool) -> Callable[[SystemView], Iterable[SourceRow]]:
    def rows(view: SystemView) -> Iterable[SourceRow]:
        registry = view.registry
        rows = []
        for one in _of_kind(view, "STREAM" if is_stream else "RELATION"):
            source, unbound = registry.bound.sources.get(one.name.lower()), unbound_of(view, one)
            rows.append(SourceRow(view, source or Source(one.name, is_stream, Schema(()), ""), one.id, unbound))
        return rows

    return rows


def _of_kind(view: SystemView, *kinds: str) -> list[StoredObject]:
    return [one for one in view.registry.stored.objects.values() if one.kind in kinds]


def unbound_of(view: SystemView, one: StoredObject) -> UnboundDeclaration | None:
    """Return a declaration that cannot be bound, None for one that can."""
    bound = view.registry.bound
    return (bound.unbound_functions if one.key[0] else bound.unbound).get(one.name.lower())


def binding_attributes(of: Callable[[T], UnboundDeclaration | None]) -> tuple[Attribute[T], Attribute[T]]:
    """Return the attributes that decide whether a declaration can be bound."""

    def state(row: T) -> str:
        return "DECLARED" if of(row) is None else QueryStatus.NEEDS_ATTENTION.value

    def error(row: T) -> str | None:
        one = of(row)
        return None if one is None else f"{one.code}: {one.reason}"

    return (
        Attribute("state", TEXT, "DECLARED; NEEDS ATTENTION where this version cannot bind it", state),
        Attribute("error", TEXT, "why it cannot be bound", error),
    )


def _where_bound(attribute: Attribute[SourceRow]) -> Attribute[SourceRow]:
    """Return an attribute that is NULL for what cannot be bound."""
    return replace(attribute, read=lambda row: attribute.read(row) if row.unbound is None else None)


def _alter(name: str) -> AttributeSetting[SourceRow]:
    def statement(row: SourceRow, value: str) -> Statement:
        options = (WrittenOption(Name(name), value),)
        return AlterSourceStatement(row.kind.upper(), Name(row.source.name, quoted=True), options)

    default = {"on_error": "dead letter", "observe_constraints": "off"}.get(name, NONE)
    return AttributeSetting(
        statement, "ALTER STREAM and RELATION .. SET", default, applies=lambda row: _can_have(row, name)
    )


def _can_have(row: SourceRow, name: str) -> bool:
    """Return whether ALTER may give a source an attribute, as the binder decides it."""
    if name == "rate_limit":
        return row.source.connector == "HTTP"
    if name in ("on_error", "observe_constraints"):
        return True
    return not row.source.is_static and not (row.source.system_time and name in ("slack", "idle_timeout"))


def _metrics(row: SourceRow) -> SourceMetrics | None:
    return row.metrics


def _unbound_source(row: SourceRow) -> UnboundDeclaration | None:
    return row.unbound


def _heartbeat_column(source: Source) -> str | None:
    return None if source.heartbeat is None else source.columns[source.heartbeat].name


def _punctuated_column(source: Source) -> str | None:
    return None if source.punctuated is None else source.columns[source.punctuated].name


def _sources(name: str, is_stream: bool) -> ControlRelation[SourceRow]:
    """Return the relation of all streams, or of all relations."""
    what = "stream" if is_stream else "relation"
    attributes: tuple[Attribute[SourceRow], ...] = (
        Attribute("name", TEXT, "its name", lambda row: row.source.name),
        Attribute("id", TEXT, "the id of its entity", lambda row: f"{what}:{row.number}"),
        Attribute("kind", TEXT, f"`{what}`", lambda row: row.kind),
        Attribute("connector", TEXT, "where its rows come from", lambda row: row.source.connector),
        Attribute("domain", TEXT, "what a tick of its time is; NULL without time", lambda row: row.domain),
        Attribute("slack", TEXT, "ORDER WITHIN" if is_stream else "ORDER WITHIN of a stream: a relation has none",
                  lambda row: row.length(row.source.slack) if row.source.slack else None,
                  unit="length of time", setting=_alter("slack") if is_stream else None),
        Attribute("idle_timeout", TEXT, "IDLE TIMEOUT", lambda row: row.length(row.source.idle, calendar=True),
                  unit="length of time", setting=_alter("idle_timeout")),
        Attribute("heartbeat_by", TEXT, "the column of HEARTBEAT BY" if is_stream
                  else "the column of HEARTBEAT BY of a stream: a relation has none",
                  lambda row: _heartbeat_column(row.source)),
        Attribute("idle_advances", FLAG, "whether its IDLE TIMEOUT has ADVANCE" if is_stream
                  else "whether IDLE TIMEOUT of a stream has ADVANCE: that of a relation has none",
                  lambda row: row.source.idle_advances),
        Attribute("punctuated_by", TEXT, "the column of PUNCTUATED BY" if is_stream
                  else "the column of PUNCTUATED BY of a stream: a relation has none",
                  lambda row: _punctuated_column(row.source)),
        Attribute("retain", TEXT, "RETAIN" if is_stream else "RETAIN of a stream: a relation keeps its content",
                  lambda row: row.length(row.source.retain), unit="length of time",
                  setting=_alter("retain") if is_stream else None),
        Attribute("observe_constraints", TEXT, "whether promises are measured: `on` or `off`" if is_stream
                  else "whether promises of a stream are measured: a relation has none",
                  lambda row: "on" if row.source.observe else "off",
                  setting=_alter("observe_constraints") if is_stream else None),
        Attribute("rate_limit", COUNT, "rows a second that it accepts, FROM HTTP",
                  lambda row: int(row.source.option("rate_limit")) if row.source.option("rate_limit") else None,
                  unit="rows per second", setting=_alter("rate_limit")),
        Attribute("on_error", TEXT, "what happens to a record that cannot be read: `dead letter`, `fail` or `skip`",
                  lambda row: row.source.on_error.value.lower(), setting=_alter("on_error")),
        measured(figures.SOURCE_ROWS, _metrics, Origin.RUN),
        Attribute("counted_since", MOMENT, "since when rows, late and malformed ones are counted; NULL: since it was"
                  " declared", lambda row: moment_of(row.view.figures.rows_since), Origin.RUN),
        Attribute("rows_per_second", REAL, "the records of the last 10 seconds, in each of them", lambda row: row.rate,
                  Origin.RUN, "rows per second"),
        measured(figures.SOURCE_LATE, _metrics, Origin.RUN),
        measured(figures.SOURCE_MALFORMED, _metrics, Origin.RUN),
        measured(figures.SOURCE_PASSED, _metrics, Origin.RUN),
        Attribute("heartbeat", MOMENT, "up to which its elements are complete, where its time is that of the calendar",
                  lambda row: in_calendar(row.heartbeat_tick, row.source.domain), Origin.RUN),
        Attribute("heartbeat_tick", COUNT, "the same in ticks",
                  lambda row: row.heartbeat_tick, Origin.RUN, "ticks"),
        Attribute("punctuations", COUNT, "how many punctuations it keeps" if is_stream
                  else "how many punctuations a stream keeps: a relation has none",
                  lambda row: row.punctuations, Origin.RUN),
        measured(figures.SOURCE_LAG, _metrics, Origin.RUN),
        measured(figures.BACKLOG_SPLITS, _metrics, Origin.RUN),
        measured(figures.BACKLOG_BYTES, _metrics, Origin.RUN),
        measured(figures.BACKLOG_RECORDS, _metrics, Origin.RUN),
        Attribute("retained_bytes", COUNT, "bytes of what is retained of it",
                  lambda row: None if row.retained is None else row.retained[0], Origin.RUN, "bytes"),
        Attribute("retained_from", COUNT, "the tick after which all its elements are retained; NULL: all are",
                  lambda row: None if row.retained is None else row.retained[1], Origin.RUN, "ticks"),
    )  # fmt: skip
    attributes = (*attributes[:3], *map(_where_bound, attributes[3:]), *binding_attributes(_unbound_source))
    return ControlRelation(
        name,
        f"The declared {what}s.",
        attributes,
        _rows(is_stream),
        kind=what,
        key=lambda row: str(row.number),
        title=lambda row: row.source.name,
        confirms=True,
    )


STREAMS = _sources("streams", True)
RELATIONS = _sources("relations", False)


@dataclass(frozen=True)
class ColumnRow:
    """A column of something declared, or of a control relation."""

    object: str
    kind: str
    name: str
    position: int
    type: str


def _columns(view: SystemView) -> Iterable[ColumnRow]:
    bound = view.registry.bound
    found: list[tuple[str, str, Iterable[tuple[str, str]]]] = []
    for source in bound.sources.values():
        kind = "stream" if source.is_stream else "relation"
        found.append((source.name, kind, ((f.name, type_name(f.type)) for f in source.columns)))
    for each in bound.views.values():
        types = map(type_name, each.root.schema.types)
        found.append((each.name, "view", zip(each.names, types, strict=True)))
    for query in bound.queries.values():
        found.append((query.name, "query", ((n, type_name(t)) for n, t in query.selected_columns)))
    for table in bound.control.values():
        fields = ((f.name, type_name(f.type)) for f in table.source.columns)
        found.append((table.source.name, "control stream" if table.source.is_stream else "control relation", fields))
    return [
        ColumnRow(name, kind, column, position, type_)
        for name, kind, columns in found
        for position, (column, type_) in enumerate(columns, 1)
    ]


COLUMNS: ControlRelation[ColumnRow] = ControlRelation(
    "columns",
    "The columns of streams, relations, views, queries and control relations, as a SELECT reads them.",
    (
        Attribute("object", TEXT, "the name of what has the column", lambda row: row.object),
        Attribute(
            "kind",
            TEXT,
            "`stream`, `relation`, `view`, `query`, `control relation` or `control stream`",
            lambda row: row.kind,
        ),
        Attribute("name", TEXT, "its name", lambda row: row.name),
        Attribute("position", COUNT, "its position, from 1 on", lambda row: row.position),
        Attribute("type", TEXT, "its type", lambda row: row.type),
    ),
    _columns,
)


def _views(view: SystemView) -> Iterable[StoredObject]:
    return _of_kind(view, "VIEW")


def _kind_of_view(view: SystemView, name: str) -> str | None:
    found = view.registry.bound.views.get(name.lower())
    return None if found is None else "stream" if found.root.is_stream else "relation"


@dataclass(frozen=True)
class ViewRow:
    """A view. kind: None for one that cannot be bound."""

    stored: StoredObject
    kind: str | None
    unbound: UnboundDeclaration | None


def _unbound_view(row: ViewRow) -> UnboundDeclaration | None:
    return row.unbound


VIEWS: ControlRelation[ViewRow] = ControlRelation(
    "views",
    "The declared views.",
    (
        Attribute("name", TEXT, "its name", lambda row: row.stored.name),
        Attribute("id", TEXT, "the id of its entity", lambda row: f"view:{row.stored.id}"),
        Attribute("text", TEXT, "its CREATE statement", lambda row: redacted_text(row.stored.text)),
        Attribute("kind", TEXT, "`stream` or `relation`", lambda row: row.kind),
        *binding_attributes(_unbound_view),
    ),
    lambda view: [ViewRow(one, _kind_of_view(view, one.name), unbound_of(view, one)) for one in _views(view)],
    kind="view",
    key=lambda row: str(row.stored.id),
    title=lambda row: row.stored.name,
)


@dataclass(frozen=True)
class FunctionRow:
    """A function or aggregate.

    Args:
        signature: None for one that cannot be bound.
        body: of a user-defined one, what it was declared as.
    """

    name: str
    kind: str
    signature: str | None
    body: str | None
    unbound: UnboundDeclaration | None = None


def _functions(view: SystemView) -> Iterable[FunctionRow]:
    found = [
        FunctionRow(row.name, "function", row.operator or f"{row.name}({row.signature})", None)
        for rows in TOPICS.values()
        for row in rows
    ]
    found += [FunctionRow(row.name, "aggregate", f"{row.name}({row.signature})", None) for row in AGGREGATES]
    users, lost = view.registry.bound.functions.values(), view.registry.bound.unbound_functions.values()
    found += [FunctionRow(one.name, one.kind.lower(), signature(one), one.where) for one in users]
    return found + [FunctionRow(one.name, one.kind.lower(), None, one.text, one) for one in lost]


def _unbound_function(row: FunctionRow) -> UnboundDeclaration | None:
    return row.unbound


FUNCTIONS: ControlRelation[FunctionRow] = ControlRelation(
    "functions",
    "The functions and aggregates, built in and user-defined.",
    (
        Attribute("name", TEXT, "its name", lambda row: row.name),
        Attribute("kind", TEXT, "`function` or `aggregate`", lambda row: row.kind),
        Attribute("signature", TEXT, "how it is called", lambda row: row.signature),
        Attribute(
            "body",
            TEXT,
            "of a user-defined one, `module:name`; its statement where that cannot be bound",
            lambda row: row.body,
        ),
        *binding_attributes(_unbound_function),
    ),
    _functions,
)
