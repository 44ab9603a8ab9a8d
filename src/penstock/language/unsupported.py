"""Reject, with P0901 at its place, everything in a statement that the binder does not implement.

It works by tables of what IS implemented: fields of statements and kinds of scalar nodes with their arguments.
Everything else is rejected, so a clause that is added to the grammar is never ignored before the binder implements it
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from penstock.language.dialect import span_of
from penstock.language.queries import (
    Align,
    BudgetClause,
    Collapse,
    Count,
    DerivedSource,
    Duration,
    EmbeddedQuery,
    FrequencyClause,
    FrequentClause,
    Item,
    JoinedSource,
    Length,
    LocalView,
    Mark,
    Name,
    NamedSource,
    OrderItem,
    PlanQuery,
    PreferenceClause,
    SampleClause,
    SelectQuery,
    SetQuery,
    SortedQuery,
    Star,
    StreamQuery,
    ToStream,
    ValidClause,
    ValuesQuery,
    WindowClause,
    WithQuery,
)
from penstock.language.statements import (
    AlterQueryStatement,
    AlterSourceStatement,
    AlterSystemStatement,
    AsAction,
    AsOf,
    Assignment,
    ColumnDefinition,
    Connector,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateSummary,
    CreateView,
    DeleteStatement,
    DropStatement,
    ErrorPolicy,
    ExplainStatement,
    Insert,
    IntoAction,
    OneTimeSelect,
    PauseAction,
    RenameAction,
    ResumeAction,
    RetainClause,
    RowsConfirmed,
    SetAction,
    SetSetting,
    StartClause,
    Statement,
    SubscribeStatement,
    SwapAction,
    TimestampBy,
    TypeText,
    UpdateStatement,
    WrittenOption,
)
from penstock.language.text import LEAVES, TextSpan, fields_compared
from penstock.language.unsupported_scalars import Refusal, not_yet, scalar_refusals

_TREES = (Name.__module__, CreateSource.__module__, TypeText.__module__, DeleteStatement.__module__)

#: The fields that the binder reads of each kind of tree. Spans are not listed.
CARRIED_OUT: dict[type, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        Name: "text quoted schema",
        Duration: "interval",
        Count: "value",
        Length: "value unit",
        ValidClause: "length begin end through until_next by at_most",
        Align: "to",
        FrequencyClause: "every partition",
        WindowClause: "extent length partition span_limit slide align where internal frequency at_most open",
        ToStream: "operator restore window",
        Star: "qualifier",
        Item: "value alias",
        Mark: "",
        FrequentClause: "k by per above possibly",
        SampleClause: "percent by rows per weight seed",
        NamedSource: "name window sample alias items period valid gaps least",
        DerivedSource: "query window alias columns called lateral sample",
        JoinedSource: "left right kind on using natural",
        SelectQuery: "items source distinct wrapped frequency where group frequent having preference",
        ValuesQuery: "rows",
        PreferenceClause: "order expressions fade per budget window",
        BudgetClause: "kind units interval",
        Collapse: "rate depth",
        CreateSummary: "name stream columns granularity collapse method options existence",
        SetQuery: "left right kind all",
        StreamQuery: "operator query",
        SortedQuery: "query order limit offset",
        OrderItem: "value descending nulls_first",
        LocalView: "name columns query",
        WithQuery: "views query",
        PlanQuery: "text",
        ColumnDefinition: "name type",
        WrittenOption: "key value",
        Connector: "name options",
        TimestampBy: "column unit",
        ErrorPolicy: "policy",
        StartClause: "mode at wait",
        RetainClause: "length columns",
        CreateSource: "name is_stream columns connector timestamp operation slack on_error primary_key non_retroactive"
        " system_time ahead idle retain existence valid",
        CreateView: "name columns query existence",
        CreateQuery: "name query into start attributes existence",
        AsOf: "at",
        OneTimeSelect: "query as_of",
        Insert: "name rows columns",
        SetSetting: "name value",
        ExplainStatement: "query analyze name start sharing",
        DropStatement: "kind name if_exists cascade",
        CreateFunction: "kind name body parameters returns volatile existence",
        PauseAction: "with_state",
        ResumeAction: "start reset",
        SetAction: "options",
        RenameAction: "name",
        IntoAction: "into",
        AsAction: "query start reset",
        SwapAction: "name",
        AlterQueryStatement: "name action",
        AlterSourceStatement: "kind name options",
        AlterSystemStatement: "name value",
        Assignment: "column value",
        UpdateStatement: "name assignments where confirmed",
        RowsConfirmed: "count",
        DeleteStatement: "name where",
        SubscribeStatement: "name query snapshot progress as_of up_to",
        TypeText: "text",
    }.items()
}


@dataclass(frozen=True)
class Clause:
    """The name of a rejected field in messages, and its place."""

    name: str
    place: Callable[[Any], TextSpan]


def _own(attribute: str) -> Callable[[Any], TextSpan]:
    return lambda node: node if isinstance(node, TextSpan) else _span(getattr(node, attribute))


def _span(value: Any) -> TextSpan:
    if isinstance(value, TextSpan):
        return value
    if isinstance(value, exp.Expr):
        return span_of(value)
    span = getattr(value, "span", None)
    return span if isinstance(span, TextSpan) else TextSpan(0, 1)


#: Fields that are rejected by name; any other field outside CARRIED_OUT is rejected by its field name.
REFUSED: dict[tuple[type, str], Clause] = {}


def refusals(statement: object) -> list[Refusal]:
    """Return everything in a statement that is not implemented, with its place."""
    return list(_refusals(statement))


def _refusals(node: object) -> Iterator[Refusal]:
    if isinstance(node, exp.Expr):
        yield from scalar_refusals(node)
        for embedded in node.find_all(EmbeddedQuery):
            yield from _refusals(embedded.tree)
    elif isinstance(node, tuple):
        for part in node:
            yield from _refusals(part)
    elif (names := fields_compared(type(node))) is not None and _is_tree(node):
        # A statement in a file of its own is bound there.
        whole = frozenset(names if type(node).__module__ not in _TREES else ())
        carried_out = CARRIED_OUT.get(type(node), whole)
        for name in names:
            value = getattr(node, name)
            if name in carried_out:
                if type(value) not in LEAVES:
                    yield from _refusals(value)
            elif not _is_absent(value):
                clause = REFUSED.get((type(node), name))
                shown = clause.name if clause else name.replace("_", " ").upper()
                yield not_yet(shown, clause.place(node) if clause else _span(node))


def _is_tree(node: object) -> bool:
    return type(node).__module__ in _TREES or isinstance(node, Statement)


def _is_absent(value: object) -> bool:
    return value is None or value is False or value == ()
