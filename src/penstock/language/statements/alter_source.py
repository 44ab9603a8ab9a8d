"""ALTER STREAM and ALTER RELATION: attributes of a source, and what a stream promises."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.algebra.nodes.scans import OnError, Source
from penstock.errors import nearest
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.statements.attributes import NONE, SOURCE_ATTRIBUTES, bind_attributes
from penstock.language.binder.statements.names import source_named
from penstock.language.binder.statements.promises import bind_promises, drop_line, promise_line
from penstock.language.clauses import PromiseClause, WrittenOption
from penstock.language.commands import AlterSource
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.grammar.promises import begins_promise, read_promise
from penstock.language.printer import name_text, options_text, promise_text
from penstock.language.queries import Duration, Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement
from penstock.types import CALENDAR, Interval


@dataclass(frozen=True)
class AlterSourceStatement(Statement):
    """ALTER { STREAM | RELATION } name SET (key value, ...); ALTER STREAM name ADD promise; ... DROP CONSTRAINT c.

    Args:
        options: of SET; empty for ADD and DROP.
        added: of ADD.
        dropped: the constraint of DROP.
    """

    kind: str
    name: Name
    options: tuple[WrittenOption, ...] = ()
    added: PromiseClause | None = None
    dropped: Name | None = None

    @property
    def statement_kind(self) -> str:
        return f"ALTER {self.kind}"


def _read(parser: ClauseGrammar, head: Head) -> AlterSourceStatement:
    name = parser._name(f"the name of a {head.word.lower()}")
    following = parser._ahead(1)
    if head.word == "STREAM" and following is not None and parser._at("ADD") and begins_promise(following):
        parser._need("ADD")
        return AlterSourceStatement(head.word, name, added=read_promise(parser))
    if head.word == "STREAM" and parser._take("DROP", "CONSTRAINT"):
        return AlterSourceStatement(head.word, name, dropped=parser._name("the name of a constraint"))
    parser._need("SET")
    return AlterSourceStatement(head.word, name, parser._options())


def _text(statement: AlterSourceStatement) -> str:
    text = f"ALTER {statement.kind} {name_text(statement.name)}"
    if statement.added is not None:
        return f"{text} ADD {promise_text(statement.added)}"
    if statement.dropped is not None:
        return f"{text} DROP CONSTRAINT {name_text(statement.dropped)}"
    return f"{text} SET ({options_text(statement.options)})"


def _bind(statement: AlterSourceStatement, context: Context) -> AlterSource:
    source = source_named(statement.name, statement.kind, context)
    if statement.added is not None:
        return _add(statement.added, source, context)
    if statement.dropped is not None:
        return _drop(statement.dropped, source, context)
    owner = f"{statement.kind.lower()} {source.name}"
    values = bind_attributes(statement.options, SOURCE_ATTRIBUTES, owner, context)
    for written in statement.options:
        source = _with_attribute(source, written, values[written.key.key], context)
    return AlterSource(source.name, values, source)


def _add(clause: PromiseClause, source: Source, context: Context) -> AlterSource:
    promises = bind_promises((clause,), source, context)
    changed = replace(source, promises=promises)
    return AlterSource(source.name, {}, changed, promise_line(changed, promises[-1], context.catalog))


def _drop(name: Name, source: Source, context: Context) -> AlterSource:
    known = [promise.name for promise in source.promises]
    dropped = next((one for one in known if name.matches(one)), None)
    if dropped is None:
        context.fail("P0201", f"{source.name} has no constraint {name.text}", name.span, nearest(name.text, known))
    users = context.catalog.resting_on_promise(source.name, dropped)
    if users:
        hint = "drop what uses it first"
        context.fail("P0222", f"constraint {dropped} of {source.name} is used by {', '.join(users)}", name.span, hint)
    left = tuple(promise for promise in source.promises if promise.name != dropped)
    return AlterSource(source.name, {}, replace(source, promises=left), drop_line(source, dropped))


def _with_attribute(source: Source, written: WrittenOption, value: str, context: Context) -> Source:
    """Return the declaration with one attribute, a value in normal form. Raises BindingFailed with the errors
    recorded.
    """
    key, span = written.key.key, written.value_span
    removed = value == NONE
    if key == "on_error":
        return replace(source, on_error=OnError(value.upper()))
    if key == "rate_limit":
        if source.connector != "HTTP":
            context.fail("P0104", f"rate_limit is for sources FROM HTTP, this is {source.connector}", written.key.span)
        others = tuple(option for option in source.options if option[0] != key)
        return replace(source, options=others if removed else (*others, (key, value)))
    if key in ("slack", "retain", "observe_constraints") and not source.is_stream:
        context.fail("P0104", f"{key} is an attribute of streams, {source.name} is a relation", written.key.span)
    if key == "observe_constraints":
        return replace(source, observe=value == "on")
    if source.is_static:
        context.fail("P0104", f"{source.name} never changes, and has no {key}", written.key.span)
    if source.system_time and key in ("slack", "idle_timeout"):
        context.fail("P0103", f"{key} cannot be combined with SYSTEM TIME", written.key.span)
    domain = CALENDAR if key == "idle_timeout" else source.domain or CALENDAR
    interval = None if removed else Interval.parse(value)
    least = 0 if key == "slack" else 1
    length = None if interval is None else ticks(Duration(interval, span), domain, context, least)
    if key == "slack":
        return replace(source, slack=length or 0)
    if key == "retain":
        return replace(source, retain=length)
    return replace(source, idle=length, idle_advances=source.idle_advances and length is not None)


ALTER_SOURCE = StatementKind(
    AlterSourceStatement,
    ("ALTER STREAM", "ALTER RELATION"),
    _read,
    _text,
    _bind,
    lambda one: "ALTER of a stream or relation",
)
