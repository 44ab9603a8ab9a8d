"""What a server shows of its queries and of the statements that run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import missing_rows
from penstock.connectors.sources.memory import typed_table
from penstock.control.command_log import Transaction
from penstock.control.drafting.catalog_text import declared_text
from penstock.control.drafting.versions import with_plan
from penstock.control.engine import EngineVersion
from penstock.control.life.listed_query import ListedQuery, awaited_instant, shown_change, shown_state
from penstock.control.outcomes import CommandOutcome
from penstock.control.phases import Phase
from penstock.control.row_changes import late_rows
from penstock.errors import Notice, PenstockError, as_name, counted
from penstock.language.catalog import Catalog, QueryStatus
from penstock.redaction import redacted_text
from penstock.server.service import CommandView, QueryView, RowsPosted, StatementView, UnboundView
from penstock.server.statements.running_statements import RunningStatement
from penstock.server_reports import kind_of_rows, listed_table
from penstock.types import TimeDomain, type_name


def query_view(one: ListedQuery, version: EngineVersion) -> QueryView:
    """Return a query as it is listed."""
    stored, kept, bound = one.stored, one.query, one.bound
    tick = version.heartbeats.get(kept.place)
    schema = () if bound is None else tuple((f.name, type_name(f.type)) for f in bound.output_schema)
    selected = () if bound is None else tuple((name, type_name(type_)) for name, type_ in bound.selected_columns)
    error = PenstockError(kept.code, kept.message) if kept.code else None
    return QueryView(
        stored.name,
        str(stored.id),
        shown_state(one, version),
        redacted_text(stored.text),
        bound is not None and bound.root.is_stream,
        schema,
        kept.sink.connector,
        None if bound is None or tick is None else bound.domain.show(tick),
        version.rows.get(kept.place),
        stored.attributes,
        error,
        one.share,
        awaited_instant(one, version),
        shown_change(one, version),
        selected,
    )


def bound_query(one: ListedQuery) -> Query:
    """Return a query with the choices of its plan. Raises PenstockError P0601 for one that needs attention."""
    if one.bound is None:
        message = f"query {one.stored.name} cannot be bound by this version: {one.query.message}"
        raise PenstockError("P0601", message, hint="correct it with ALTER QUERY .. AS; GET /v1/queries has its error")
    return with_plan(one.bound, one.stored.wished_plan)


def unbound_views(bound: Catalog) -> tuple[UnboundView, ...]:
    """Return what cannot be bound, queries aside: these are listed with the others."""
    found = (*bound.unbound.values(), *bound.unbound_functions.values())
    return tuple(
        UnboundView(one.kind, one.name, redacted_text(one.text), PenstockError(one.code, one.reason, hint=one.hint))
        for one in found
        if one.kind != "QUERY"
    )


def table_of_queries(
    listed: Iterable[ListedQuery], version: EngineVersion, written: Mapping[str, str], marks: Mapping[str, str]
) -> pa.Table:
    """Return queries as SHOW QUERIES lists them.

    Args:
        written: by name, the statements as they were registered.
        marks: by name, the remarks on queries that run as they should.
    """
    views = [(query_view(one, version), declared_text(one.stored, written.get(one.stored.name))) for one in listed]
    return listed_table(
        "QUERIES",
        [
            (
                view.name,
                view.state,
                kind_of_rows(view.is_stream),
                view.sink,
                _remark(view, marks),
                redacted_text(text),
            )
            for view, text in views
        ],
    )


def queries_as_lines(table: pa.Table) -> list[str]:
    """Return the same as text, a query a line: its statement, and behind it what is to be known beside that."""
    rows = zip(table["statement"].to_pylist(), table["remark"].to_pylist(), strict=True)
    return [text if remark is None else f"{text} -- {remark}" for text, remark in rows]


def promise_texts(unused: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, str]:
    """Return by query the remark of SHOW QUERIES on promises that were added since it was registered. unused: these, as
    pairs of stream and name."""
    return {
        query: f"would use {', '.join(f'{name} of {stream}' for stream, name in promises)}: register it again"
        for query, promises in unused.items()
    }


def constraints_as_lines(rows: Sequence[tuple[str, ...]], unused: Mapping[str, Sequence[tuple[str, str]]]) -> list[str]:
    """Return the statements of SHOW CONSTRAINTS, with the queries behind them that were registered before.

    Args:
        rows: (name of the constraint, the statement that adds it).
        unused: by query, pairs of stream and name.
    """
    users: dict[str, list[str]] = {}
    for query, promises in unused.items():
        for stream, name in promises:
            line = f"ALTER STREAM {as_name(stream)} ADD CONSTRAINT {as_name(name)} "
            users.setdefault(line, []).append(query)
    found = []
    for _, text in rows:
        would = [query for line, queries in users.items() if text.startswith(line) for query in queries]
        found.append(f"{text} -- not used by {', '.join(would)}, registered before" if would else text)
    return found


def _remark(view: QueryView, marks: Mapping[str, str]) -> str | None:
    """Return the remark on a query beside its statement; None for one that runs as it should."""
    remark = None if view.state == QueryStatus.RUNNING.value else view.state
    if remark is not None:
        # How much it has read, or until when it waits, or why it failed.
        remark += "" if view.share is None else f" {view.share:.0%}"
        remark += "" if view.first is None else f" until {view.first}"
        remark += "" if view.error is None else f": {view.error.code} {_first_line(view.error.message)}"
    if view.change is not None and view.state == QueryStatus.WAITING.value:
        remark = f"{remark}: {view.change}"
    else:
        remark = view.change or remark
    return remark or marks.get(view.name)


def _first_line(text: str) -> str:
    return redacted_text(text.partition("\n")[0])


def statement_view(one: RunningStatement) -> StatementView:
    """Return a one-time query or a subscription that runs."""
    began = moment(int(one.began * 1e6))
    return StatementView(one.id, one.kind, began, one.caller.name, redacted_text(one.text))


def moment(microseconds: int) -> str:
    """Return an instant of the wall clock as text, given in microseconds since 1970."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown_tick(domain: TimeDomain | None, tick: int | None) -> str | None:
    """Return a tick as its time domain shows it, None where it is not known."""
    return None if domain is None or tick is None else domain.show(tick)


def posted(source: Source, rows: pa.Table, beat: int | None, added: bool, position: str | None) -> RowsPosted:
    """Return the answer to a post.

    Args:
        beat: up to which tick the source was complete before it.
        added: whether the post was new.
        position: of the rows.
    """
    if not source.has_timestamps:
        return RowsPosted(rows.num_rows, not added, position=position)
    late = late_rows(source, typed_table(source, rows), beat) if added else 0
    return RowsPosted(rows.num_rows, not added, late, shown_tick(source.domain, beat), position)


def plan_change_text(one: ListedQuery) -> str:
    """Return the lines of EXPLAIN on a change of a query or its plan; an empty text where there is none."""
    beside = one.query.beside
    if beside is None:
        return ""
    subject = "plan" if beside.definition is None else "query"
    step = f"the new {subject} runs beside the former one, and takes over when nothing is missing that its windows need"
    if beside.waits:
        rows = missing_rows(one.missing) if one.missing else "the last rows of its windows"
        step = f"the new {subject} begins beside the former one, and takes over, with {rows}"
    if beside.phase is Phase.ENDING:
        step = f"the new {subject} has taken over, and the former one ends when time goes on"
    coming = one.query.coming
    text = "" if coming is None else f"\n{redacted_text(coming.text)}"
    return f"-- {one.stored.name}: change of the {subject}\n{step}{text}\n"


def command_view(transaction: Transaction, text: str, outcome: CommandOutcome) -> CommandView:
    """Return a command of the log as it is listed."""
    return CommandView(
        outcome.number,
        moment(transaction.at),
        transaction.who,
        redacted_text(text),
        outcome.state.value,
        outcome.version,
        outcome.error,
        outcome.share,
    )


def late_notice(source: str, rows: int, late: int) -> Notice:
    """Return the notice of an INSERT or COPY on its late rows, of which a post answers the number."""
    hint = "late rows are in no result; a stream that is declared with ORDER WITHIN waits for such"
    return Notice(f"{late:,} of {counted(rows, 'row')} of {source} came late", hint)
