"""CREATE STREAM and CREATE RELATION: what queries read."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.algebra import DeclaredPeriod, OnError, Source
from penstock.errors import PenstockError
from penstock.expressions.calls.functions import build_call
from penstock.expressions.nodes import Column, Expression
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.from_.periods import check_valid
from penstock.language.binder.statements.connectors import bind_connector, options_fit
from penstock.language.binder.statements.names import column_named, distinct_names
from penstock.language.binder.statements.promises import bind_promises
from penstock.language.binder.statements.rows import WRITABLE
from penstock.language.binder.statements.timestamps import RecordTime, bind_timestamp
from penstock.language.catalog import Catalog
from penstock.language.clauses import Connector, PromiseClause
from penstock.language.commands import CreateSourceCommand, Unchanged
from penstock.language.dialect import span_of
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.grammar.promises import read_promise, read_reference, refuse_among_columns
from penstock.language.printer import (
    columns_text,
    connector_text,
    name_text,
    promise_text,
    scalar_text,
    valid_text,
    word_text,
)
from penstock.language.queries import NOWHERE, Duration, Mark, Name, ValidClause
from penstock.language.statements.creation import Creation, check_unused, create_text, declared_already, read_name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.text import TextSpan
from penstock.types import (
    CALENDAR,
    UNKNOWN_TYPE,
    WALL_CLOCK,
    Field,
    Schema,
    TimeDomain,
    Unit,
    is_type_name,
    parse_type,
    type_name,
)

#: Operators that are words, by which an expression goes on behind a column.
_GO_ON = ("DIV", "IS", "AND", "OR", "IN", "BETWEEN", "LIKE")
#: The functions that make instants of integers, by the unit of these.
_SINCE_EPOCH = {
    Unit.SECOND: "TIMESTAMP_SECONDS",
    Unit.MILLISECOND: "TIMESTAMP_MILLIS",
    Unit.MICROSECOND: "TIMESTAMP_MICROS",
}
_STREAM_ONLY = ("slack", "ahead", "retain", "heartbeat", "punctuated")


@dataclass(frozen=True)
class ColumnDefinition:
    name: Name
    type: str
    type_span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class TimestampBy:
    """TIMESTAMP BY value [UNIT unit [SINCE EPOCH]]. value: a column, or another expression over columns."""

    value: Name | exp.Expr
    unit: Unit | None = None
    since_epoch: Mark | None = None
    unit_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ErrorPolicy:
    """ON ERROR { DEAD LETTER | FAIL | SKIP }."""

    policy: str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class RetainClause:
    """RETAIN interval [(column, ...)]. columns: empty for all."""

    length: Duration
    columns: tuple[Name, ...] = ()
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateSource(Creation):
    """CREATE STREAM or CREATE RELATION."""

    is_stream: bool
    columns: tuple[ColumnDefinition, ...]
    connector: Connector
    timestamp: TimestampBy | None = None
    system_time: Mark | None = None
    operation: Name | None = None
    slack: Duration | None = None
    ahead: Duration | None = None
    idle: Duration | None = None
    idle_advance: Mark | None = None
    heartbeat: Name | None = None
    punctuated: Name | None = None
    on_error: ErrorPolicy | None = None
    retain: RetainClause | None = None
    primary_key: tuple[Name, ...] = ()
    non_retroactive: Mark | None = None
    valid: ValidClause | None = None
    promises: tuple[PromiseClause, ...] = ()
    ahead_span: TextSpan = field(default=NOWHERE, compare=False)
    idle_span: TextSpan = field(default=NOWHERE, compare=False)
    key_span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def statement_kind(self) -> str:
        return "CREATE STREAM" if self.is_stream else "CREATE RELATION"


# --- grammar


def _read(parser: ClauseGrammar, head: Head) -> CreateSource:
    name, existence = read_name(parser, head)
    is_stream = head.word == "STREAM"
    promises: list[PromiseClause] = []
    columns, key, key_span, period = _read_columns(parser, promises)
    if not parser._match(TokenType.FROM):
        parser._fail("FROM connector (...)", hint=_before_connector(parser))
    connector = parser._connector()
    clauses: dict[str, Any] = {} if period is None else {"valid": period}
    while _read_clause(parser, clauses, is_stream) or _read_promise(parser, promises):
        pass
    if promises and not is_stream:
        hint = "a relation has PRIMARY KEY (column, ...) among its columns"
        raise parser._misplaced("only a stream has promises", promises[0].span, hint)
    if is_stream and key:
        hint = "a stream promises UNIQUE (k), behind TIMESTAMP BY: FROM ... TIMESTAMP BY at UNIQUE (k)"
        raise parser._misplaced("PRIMARY KEY belongs to a relation", key_span, hint)
    return CreateSource(
        name,
        is_stream,
        columns,
        connector,
        **clauses,
        primary_key=key,
        non_retroactive=head.non_retroactive,
        promises=tuple(promises),
        existence=existence,
        key_span=key_span,
    )


def _before_connector(parser: ClauseGrammar) -> str | None:
    """Return the hint for a clause of a declaration that stands before its connector."""
    if not (parser._at("TIMESTAMP", "BY") or parser._at("ORDER", "WITHIN") or parser._at("OPERATION", "BY")):
        return None
    return "the connector comes first: CREATE STREAM s (..) FROM FILES (..) TIMESTAMP BY at"


def _read_columns(
    parser: ClauseGrammar, promises: list[PromiseClause]
) -> tuple[tuple[ColumnDefinition, ...], tuple[Name, ...], TextSpan, ValidClause | None]:
    parser._need_token(TokenType.L_PAREN, "(")
    columns: list[ColumnDefinition] = []
    key: tuple[Name, ...] = ()
    key_span = parser._here()
    period: ValidClause | None = None
    while True:
        at = parser._here()
        if parser._match(TokenType.PRIMARY_KEY):
            if key:
                raise parser._misplaced("PRIMARY KEY occurs twice", at)
            key = parser._names("a column name")
            key_span = parser._since(at)
        elif parser._take("PERIOD", "FOR", "VALID"):
            if period is not None:
                raise parser._misplaced("PERIOD FOR VALID occurs twice", at, "leave one of them out")
            bounds = parser._names("a column name")
            if len(bounds) != 2:
                raise parser._misplaced(
                    "PERIOD FOR VALID takes two columns, a begin and an end",
                    parser._since(at),
                    "as in PERIOD FOR VALID (a, b)",
                )
            period = ValidClause(begin=bounds[0], end=bounds[1], span=parser._since(at))
        else:
            if columns:
                refuse_among_columns(parser)
            columns.append(_read_column(parser))
            reference = read_reference(parser, columns[-1].name)
            promises += [] if reference is None else [reference]
            refuse_among_columns(parser)
            at = parser._here()
            if parser._match(TokenType.PRIMARY_KEY):  # of this column alone, as SQL has it
                if key:
                    several = "a key of several columns stands once, behind them: PRIMARY KEY (a, b)"
                    raise parser._misplaced("PRIMARY KEY occurs twice", at, several)
                key, key_span = (columns[-1].name,), at
        if not parser._match(TokenType.COMMA):
            break
    if not parser._match(TokenType.R_PAREN):
        parser._fail("',' or ')'")
    return tuple(columns), key, key_span, period


def _read_column(parser: ClauseGrammar) -> ColumnDefinition:
    name = parser._name("a column name")
    found = parser._type()
    return ColumnDefinition(name, found.text, found.span)


def _read_clause(parser: ClauseGrammar, clauses: dict[str, Any], is_stream: bool) -> bool:
    """Parse one trailing clause; return False when there is none."""
    start = parser._here()
    found: dict[str, Any]
    if parser._take("TIMESTAMP", "BY"):
        found = {"timestamp": _read_timestamp(parser, start)}
    elif mark := parser._mark("SYSTEM", "TIME"):
        found = {"system_time": mark}
    elif parser._take("OPERATION", "BY"):
        found = {"operation": parser._name("a column")}
    elif parser._take("ORDER", "WITHIN"):
        found = {"slack": parser._duration()}
    elif parser._take("ADVANCE", "AT", "MOST"):
        duration = parser._duration()
        found = {"ahead": duration, "ahead_span": parser._since(start)}
    elif parser._take("IDLE", "TIMEOUT"):
        duration = parser._duration()
        # ADVANCE AT MOST is a clause of its own.
        mark = None if parser._at("ADVANCE", "AT") else parser._mark("ADVANCE")
        found = {"idle": duration, "idle_advance": mark, "idle_span": parser._since(start)}
    elif parser._take("HEARTBEAT", "BY"):
        found = {"heartbeat": parser._name("a column")}
    elif parser._take("PUNCTUATED", "BY"):
        found = {"punctuated": parser._name("a column")}
    elif parser._take("ON", "ERROR"):
        policy = "DEAD LETTER" if parser._take("DEAD", "LETTER") else parser._one_of(("FAIL", "SKIP", "DEAD LETTER"))
        found = {"on_error": ErrorPolicy(policy, parser._since(start))}
    elif valid := parser._valid():
        found = {"valid": valid}
    elif parser._take("RETAIN"):
        length = parser._duration()
        columns = parser._names("a column name") if parser._curr.token_type is TokenType.L_PAREN else ()
        found = {"retain": RetainClause(length, columns, parser._since(start))}
    else:
        return False
    name = parser.sql[start.start : start.end].upper()
    key = next(iter(found))
    if key in clauses:
        raise parser._misplaced(f"this {name} clause is repeated", parser._since(start))
    if not is_stream and key in _STREAM_ONLY:
        raise parser._misplaced("this clause belongs to a stream", parser._since(start))
    if is_stream and key == "operation":
        raise parser._misplaced("OPERATION BY belongs to a relation", parser._since(start))
    clauses.update(found)
    return True


def _read_promise(parser: ClauseGrammar, promises: list[PromiseClause]) -> bool:
    """Parse one promise; return False when there is none."""
    found = read_promise(parser)
    promises += [] if found is None else [found]
    return found is not None


def _read_timestamp(parser: ClauseGrammar, start: TextSpan) -> TimestampBy:
    value: Name | exp.Expr = parser._name("a column") if _is_column(parser) else parser._condition()
    unit: Unit | None = None
    since_epoch: Mark | None = None
    at = parser._here()
    if parser._take("UNIT"):
        unit = parser._unit()
        since_epoch = parser._mark("SINCE", "EPOCH")
    return TimestampBy(value, unit, since_epoch, parser._since(at), parser._since(start))


def _is_column(parser: ClauseGrammar) -> bool:
    """Return whether a column is next, a name that a word or nothing follows, and no other expression: these begin with
    a call, a bracket or a literal, or go on behind the name with a sign."""
    first, following = parser._curr, parser._ahead(1)
    if following is not None and following.token_type is TokenType.L_PAREN:
        return False
    if not parser._is_name():
        return first.token_type not in (TokenType.L_PAREN, TokenType.DASH)
    if following is None:
        return True
    ends = following.token_type in (TokenType.SEMICOLON, TokenType.R_PAREN) or following.text[:1].isalpha()
    is_literal = first.text.upper() == "CASE" or following.token_type is TokenType.STRING
    return ends and not is_literal and following.text.upper() not in _GO_ON


def _text(statement: CreateSource) -> str:
    columns = [f"{name_text(c.name)} {c.type}" for c in statement.columns]
    if statement.primary_key:
        columns.append(f"PRIMARY KEY {columns_text(statement.primary_key).strip()}")
    retroactive = "NON RETROACTIVE " if statement.non_retroactive else ""
    text = f"{create_text(statement, retroactive)} ({', '.join(columns)})"
    text += f" FROM {connector_text(statement.connector)}"
    if by := statement.timestamp:
        text += f" TIMESTAMP BY {name_text(by.value) if isinstance(by.value, Name) else scalar_text(by.value)}"
        text += (f" UNIT {by.unit.name}" if by.unit else "") + word_text(" SINCE EPOCH", by.since_epoch)
    if statement.system_time:
        text += " SYSTEM TIME"
    if statement.operation:
        text += f" OPERATION BY {name_text(statement.operation)}"
    if statement.slack:
        text += f" ORDER WITHIN {statement.slack.interval}"
    if statement.ahead:
        text += f" ADVANCE AT MOST {statement.ahead.interval}"
    if statement.idle:
        text += f" IDLE TIMEOUT {statement.idle.interval}" + (" ADVANCE" if statement.idle_advance else "")
    if statement.heartbeat:
        text += f" HEARTBEAT BY {name_text(statement.heartbeat)}"
    if statement.punctuated:
        text += f" PUNCTUATED BY {name_text(statement.punctuated)}"
    text += f" ON ERROR {statement.on_error.policy}" if statement.on_error else ""
    text += f" {valid_text(statement.valid)}" if statement.valid else ""
    if statement.retain:
        text += f" RETAIN {statement.retain.length.interval}{columns_text(statement.retain.columns)}"
    return " ".join([text, *map(promise_text, statement.promises)])


# --- binding


def _bind(statement: CreateSource, context: Context) -> CreateSourceCommand | Unchanged:
    unchanged = declared_already(statement, context)
    if unchanged is not None:
        return unchanged
    source = _bind_source(statement, context)
    text = context.source.slice(statement.span)
    known = context.catalog.sources.get(statement.name.key)
    if known is not None and statement.replaces:
        if known.declared == source.declared:
            return Unchanged(statement.declares, source.name, "the declaration is the same")
        check_unused(statement.name, context.catalog.resting_on(statement.name.key), context)
    return CreateSourceCommand(source, text, statement.replaces, statement.if_not_exists)


def _bind_source(statement: CreateSource, context: Context) -> Source:
    """Return the declared source; if only its connector is wrong, without its options and with the errors recorded.
    Raises BindingFailed with the errors recorded.
    """
    connected = context.attempt(lambda: bind_connector(statement.connector, True, context))
    columns = _columns(statement, context)
    # All clauses are bound, so that all errors are reported.
    time = context.attempt(lambda: _time(statement, columns, context))
    operation = context.attempt(lambda: _operation(statement, columns, context))
    special_columns = {*(time.columns if time else ()), *(operation or ())}
    primary_key = context.attempt(lambda: _primary_key(statement, columns, special_columns, context))
    domain = time.domain if time else None
    slack = context.attempt(lambda: _slack(statement, domain, context))
    ahead = context.attempt(lambda: _ahead(statement, domain, context))
    idle_clause = statement.idle
    idle = context.attempt(lambda: (None if idle_clause is None else ticks(idle_clause, CALENDAR, context),))
    retain = context.attempt(lambda: _retain(statement, columns, domain, context))
    heartbeat = context.attempt(lambda: _heartbeat(statement, columns, context))
    punctuated = context.attempt(lambda: _punctuated(statement, columns, context))
    _system_time_alone(statement, context)
    _clock_of_relation(statement, context)
    time = time or _likely_time(statement, columns)
    domain = time.domain if time else None
    clauses = (operation, primary_key, slack, ahead, idle, retain, heartbeat, punctuated)
    if time is None or any(clause is None for clause in clauses):
        raise BindingFailed
    assert operation is not None and primary_key is not None and slack is not None
    assert ahead is not None and idle is not None and retain is not None
    assert heartbeat is not None and punctuated is not None
    connector, options = connected or (statement.connector.name.text.upper(), ())
    if connected is not None:
        context.attempt(lambda: options_fit(statement.connector, domain is not None, context))
    on_error = OnError(statement.on_error.policy) if statement.on_error else OnError.DEAD_LETTER
    source = Source(
        statement.name.text,
        statement.is_stream,
        columns,
        connector,
        options,
        time.column,
        domain,
        slack,
        on_error,
        operation[0],
        primary_key,
        statement.non_retroactive is not None,
        statement.system_time is not None,
        idle[0],
        bool(context.attempt(lambda: _upserts(statement, connector, options, context))),
        ahead[0],
        *retain,
        "" if statement.valid is None else valid_text(statement.valid),
        heartbeat=heartbeat[0],
        idle_advances=statement.idle_advance is not None,
        punctuated=punctuated[0],
        computed_timestamp=time.computed,
    )

    valid = statement.valid
    if valid is not None:
        context.attempt(lambda: check_valid(source, valid, statement.name.span, context))
        source = replace(source, period=_period(valid, columns))
    promises = context.attempt(lambda: bind_promises(statement.promises, source, context))
    return source if promises is None else replace(source, promises=promises)


def _period(valid: ValidClause, columns: Schema) -> DeclaredPeriod | None:
    """Return VALID FROM, whose columns have been checked; None for another clause, and where they are not there."""
    names = [f.name.lower() for f in columns]
    bounds = [name.text.lower() for name in (valid.begin, valid.end) if name is not None]
    if len(bounds) < 2 or not set(bounds) <= set(names):
        return None
    return DeclaredPeriod(names.index(bounds[0]), names.index(bounds[1]), valid.through is not None)


def _upserts(statement: CreateSource, connector: str, options: tuple[tuple[str, str], ...], context: Context) -> bool:
    """Return whether the connector supplies the present rows of a table instead of its changes."""
    if connector != "POSTGRES" or "deleted" not in dict(options):
        return False
    if statement.operation is None or not statement.primary_key:
        hint = "the flag becomes the operation: declare a column for it, and PRIMARY KEY (...)"
        message = "option deleted needs OPERATION BY and a PRIMARY KEY"
        context.fail("P0208", message, statement.connector.span, hint)
    return True


def _time(statement: CreateSource, columns: Schema, context: Context) -> RecordTime:
    if statement.timestamp is not None:
        return _timestamp(statement.timestamp, statement.name.text, columns, context)
    if statement.system_time is not None:
        return RecordTime(CALENDAR)
    if statement.is_stream:
        hint = "add TIMESTAMP BY column, or SYSTEM TIME to stamp its elements as they arrive"
        context.fail("P0209", f"stream {statement.name.text} has no timestamp", statement.name.span, hint)
    return RecordTime()


def _likely_time(statement: CreateSource, columns: Schema) -> RecordTime | None:
    """Return the likely timestamp where the declared one is wrong, so that what reads the source is checked all the
    same.
    """
    stamps = [i for i, f in enumerate(columns) if pa.types.is_timestamp(f.type)]
    return RecordTime(CALENDAR, stamps[0]) if stamps and statement.timestamp is not None else None


def _operation(statement: CreateSource, columns: Schema, context: Context) -> tuple[int | None]:
    if statement.operation is None:
        return (None,)
    operation = column_named(statement.operation, columns, context)
    type_ = columns[operation].type
    if type_ == UNKNOWN_TYPE:
        context.fail_silently()
    if type_ != pa.string():
        message = f"OPERATION BY needs a STRING column of '+' and '-', this is {type_name(type_)}"
        context.fail("P0209", message, statement.operation.span)
    if statement.timestamp is None and statement.system_time is None:
        context.fail("P0209", "OPERATION BY needs a TIMESTAMP BY", statement.operation.span, "add TIMESTAMP BY column")
    return (operation,)


def _slack(statement: CreateSource, domain: TimeDomain | None, context: Context) -> int:
    if statement.slack is None or domain is None:
        return 0
    return ticks(statement.slack, domain, context, least=0)


def _ahead(statement: CreateSource, domain: TimeDomain | None, context: Context) -> tuple[int | None]:
    if statement.ahead is None or domain is None:
        return (None,)
    return (ticks(statement.ahead, domain, context),)


def _heartbeat(statement: CreateSource, columns: Schema, context: Context) -> tuple[int | None]:
    """Return the position of the HEARTBEAT BY column."""
    if statement.heartbeat is None:
        return (None,)
    hint = "a record in which it is TRUE is a heartbeat at its timestamp, and no element"
    position = _column_of_type("HEARTBEAT BY", statement.heartbeat, pa.bool_(), hint, columns, context)
    if statement.timestamp is None and statement.system_time is None:
        message = "HEARTBEAT BY needs a TIMESTAMP BY"
        context.fail("P0380", message, statement.heartbeat.span, "add TIMESTAMP BY column")
    if statement.system_time is not None:
        hint = "leave HEARTBEAT BY out: the wall clock advances the time of this stream"
        context.fail("P0380", "a stream of SYSTEM TIME takes no heartbeats", statement.heartbeat.span, hint)
    return (position,)


def _punctuated(statement: CreateSource, columns: Schema, context: Context) -> tuple[int | None]:
    """Return the position of the PUNCTUATED BY column."""
    if statement.punctuated is None:
        return (None,)
    hint = "a record in which it has a text, such as 'auction = 17', is a punctuation, and no element"
    return (_column_of_type("PUNCTUATED BY", statement.punctuated, pa.string(), hint, columns, context),)


def _column_of_type(clause: str, name: Name, type_: pa.DataType, hint: str, columns: Schema, context: Context) -> int:
    """Return the position of a column whose values say which records are no elements."""
    position = column_named(name, columns, context)
    found = columns[position].type
    if found == UNKNOWN_TYPE:
        context.fail_silently()
    if found != type_:
        message = f"{clause} needs a {type_name(type_)} column, {name.text} is {type_name(found)}"
        context.fail("P0380", message, name.span, hint)
    return position


def _clock_of_relation(statement: CreateSource, context: Context) -> None:
    """Reject clauses of the wall clock for a relation that statements do not write, or that never changes."""
    clauses = (
        ("SYSTEM TIME", statement.system_time.span if statement.system_time else None),
        ("IDLE TIMEOUT", statement.idle_span if statement.idle else None),
    )
    mark = statement.idle_advance
    if mark is not None and not statement.is_stream:
        hint = "leave ADVANCE out: a relation that is idle holds no other source back"
        context.attempt(lambda: context.fail("P0103", "ADVANCE of IDLE TIMEOUT belongs to a stream", mark.span, hint))
    for clause, span in clauses:
        if statement.is_stream or span is None:
            continue
        if statement.connector.name.text.upper() not in WRITABLE:
            hint = f"{clause} is for streams, and for relations FROM MEMORY () or FROM HTTP ()"
            context.attempt(lambda: context.fail("P0103", "this clause belongs to a stream", span, hint))  # noqa: B023
        elif statement.timestamp is None and statement.system_time is None:
            hint = "add TIMESTAMP BY column"
            context.attempt(lambda: context.fail("P0103", "a static relation is never idle", span, hint))  # noqa: B023


def _retain(
    statement: CreateSource, columns: Schema, domain: TimeDomain | None, context: Context
) -> tuple[int | None, tuple[int, ...]]:
    """Return how long elements are retained, in ticks, and the positions of the columns that are; empty for all."""
    clause = statement.retain
    if clause is None:
        return None, ()
    distinct_names(clause.columns, context)
    positions = context.each(lambda name: column_named(name, columns, context), clause.columns)
    length = None if domain is None else ticks(clause.length, domain, context)
    return length, tuple(sorted(set(positions)))


def _system_time_alone(statement: CreateSource, context: Context) -> None:
    """Reject timestamp clauses beside SYSTEM TIME: such timestamps arrive in order, and advance with the clock."""
    if statement.system_time is None:
        return
    others = (
        ("TIMESTAMP BY", statement.timestamp.span if statement.timestamp else None),
        ("ORDER WITHIN", statement.slack.span if statement.slack else None),
        ("ADVANCE AT MOST", statement.ahead_span if statement.ahead else None),
        ("IDLE TIMEOUT", statement.idle_span if statement.idle else None),
    )
    for clause, span in others:
        if span is not None:
            context.fail("P0103", f"{clause} cannot be combined with SYSTEM TIME", span, "leave one of them out")


def _primary_key(
    statement: CreateSource, columns: Schema, special_columns: Set[int | None], context: Context
) -> tuple[int, ...]:
    """Return the positions of the key's columns. special_columns: those of the timestamp and the operation."""
    distinct_names(statement.primary_key, context)
    positions = context.each(lambda name: column_named(name, columns, context), statement.primary_key)
    for name, position in zip(statement.primary_key, positions, strict=True):
        if position in special_columns:
            hint = "a key identifies a row over all updates; use columns that do"
            context.fail(
                "P0210", f"{name.text} describes an update and cannot be part of a primary key", name.span, hint
            )
    return tuple(positions)


def _columns(statement: CreateSource, context: Context) -> Schema:
    distinct_names([c.name for c in statement.columns], context)
    types = [_type(column, context) for column in statement.columns]
    return Schema(tuple(Field(c.name.text, t) for c, t in zip(statement.columns, types, strict=True)))


def _type(column: ColumnDefinition, context: Context) -> pa.DataType:
    """Return the type of a column; one that does not exist is reported, and what reads the column fails without a
    message, so that the other columns can be used to check what follows.
    """

    def parsed() -> pa.DataType:
        try:
            found = parse_type(column.type)
        except PenstockError as error:
            if is_type_name(column.name.text):
                error.hint = f"the name comes first: {column.type} {column.name.text}"
            raise
        if found == WALL_CLOCK:
            hint = (
                f"declare it STRING, and write CAST({column.name.text} AS TIMESTAMP_NTZ) AT TIME ZONE 'Europe/Berlin'"
            )
            raise PenstockError("P0901", "a column of TIMESTAMP_NTZ is not supported yet", hint=hint)
        return found

    type_ = context.attempt(lambda: context.guard(column.type_span, parsed))
    return UNKNOWN_TYPE if type_ is None else type_


def _timestamp(by: TimestampBy, name: str, columns: Schema, context: Context) -> RecordTime:
    if isinstance(by.value, Name):
        index = column_named(by.value, columns, context)
        type_ = columns[index].type
        if type_ == UNKNOWN_TYPE:
            context.fail_silently()
        value: Expression = Column(type_, index, columns[index].name)
        span, shown = by.value.span, by.value.text
    else:
        value = bind_timestamp(by.value, name, columns, context)
        span, shown = span_of(by.value), "this"
    if pa.types.is_timestamp(value.type):
        if by.unit is not None:
            context.fail("P0209", "UNIT is for integers; a TIMESTAMP has microseconds", by.unit_span)
        return _timed_by(value, CALENDAR)
    if not pa.types.is_integer(value.type):
        message = f"TIMESTAMP BY needs a TIMESTAMP or an integer, {shown} is {type_name(value.type)}"
        context.fail("P0209", message, span, _hint_of_type(by.value, value.type))
    unit = by.unit or Unit.SECOND
    if unit not in _SINCE_EPOCH:
        context.fail("P0209", "UNIT is SECOND, MILLISECOND or MICROSECOND", by.unit_span)
    if by.since_epoch is not None:
        return _timed_by(build_call(_SINCE_EPOCH[unit], [value]), CALENDAR)
    return _timed_by(value, TimeDomain(unit, False))


def _timed_by(value: Expression, domain: TimeDomain) -> RecordTime:
    return RecordTime(domain, value.index) if isinstance(value, Column) else RecordTime(domain, computed=value)


def _hint_of_type(value: Name | exp.Expr, type_: pa.DataType) -> str | None:
    """Return what to write for a timestamp of a type that is none."""
    if pa.types.is_date(type_):
        if isinstance(value, Name):
            return f"declare it {value.text} TIMESTAMP: a text that is a date is read as its beginning, in UTC"
        return "CAST it AS TIMESTAMP: the beginning of the day, in UTC"
    if type_ != pa.string():
        return None
    if isinstance(value, Name):
        return (
            f"declare it {value.text} TIMESTAMP: texts in files are read as such; of another form write TIMESTAMP BY"
            f" TO_TIMESTAMP({value.text}, 'yyyy/MM/dd HH:mm:ss')"
        )
    return "TO_TIMESTAMP(.., 'yyyy/MM/dd HH:mm:ss') reads a text"


def _clauses_of_a_server(statement: CreateSource, live: bool, catalog: Catalog) -> Iterator[tuple[str, TextSpan]]:
    if statement.connector.name.key == "http":
        yield "FROM HTTP ()", statement.connector.span
    if statement.retain is not None and not live:
        yield "RETAIN", statement.retain.span


CREATE_SOURCE = StatementKind(
    CreateSource, ("CREATE STREAM", "CREATE RELATION"), _read, _text, _bind, clauses_of_a_server=_clauses_of_a_server
)
