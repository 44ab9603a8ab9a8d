"""Syntax trees of statements: one frozen tree per statement, as `queries.py` has them for queries (docs/language.md).

A field that the binder does not know is rejected by `unsupported.py`, whose tables list the known ones: a new field
here or in `queries.py` is rejected until it is listed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.language.statements.clauses import (
    AsOf,
    ColumnDefinition,
    Connector,
    ErrorPolicy,
    Existence,
    RetainClause,
    StartClause,
    TimestampBy,
    TypeText,
    WrittenOption,
)
from penstock.language.statements.declarations import (
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateSummary,
    CreateView,
    DropStatement,
    ExplainStatement,
    ExportStatement,
    Insert,
    OneTimeSelect,
    SetSetting,
    ShowStatement,
)
from penstock.language.statements.live import (
    AlterAction,
    AlterQueryStatement,
    AlterSourceStatement,
    AlterSystemStatement,
    AsAction,
    Assignment,
    CancelStatement,
    DeleteStatement,
    DescribeStatement,
    IntoAction,
    PauseAction,
    RenameAction,
    ResumeAction,
    RowsConfirmed,
    SetAction,
    SubscribeStatement,
    SwapAction,
    TransactionStatement,
    UpdateStatement,
)
from penstock.language.text import SourceText

__all__ = [
    "AlterAction",
    "AlterQueryStatement",
    "AlterSourceStatement",
    "AlterSystemStatement",
    "AsAction",
    "AsOf",
    "Assignment",
    "CancelStatement",
    "ColumnDefinition",
    "Connector",
    "CreateFunction",
    "CreateQuery",
    "CreateSource",
    "CreateSummary",
    "CreateView",
    "DeleteStatement",
    "DescribeStatement",
    "DropStatement",
    "ErrorPolicy",
    "Existence",
    "ExplainStatement",
    "ExportStatement",
    "Insert",
    "IntoAction",
    "OneTimeSelect",
    "PauseAction",
    "RenameAction",
    "ResumeAction",
    "RetainClause",
    "RowsConfirmed",
    "Script",
    "SetAction",
    "SetSetting",
    "ShowStatement",
    "StartClause",
    "Statement",
    "SubscribeStatement",
    "SwapAction",
    "TimestampBy",
    "TransactionStatement",
    "TypeText",
    "UpdateStatement",
    "WrittenOption",
]

Statement: TypeAlias = (
    CreateSource
    | CreateView
    | CreateQuery
    | CreateSummary
    | OneTimeSelect
    | CreateFunction
    | Insert
    | SetSetting
    | ExplainStatement
    | ExportStatement
    | ShowStatement
    | DropStatement
    | AlterQueryStatement
    | AlterSourceStatement
    | AlterSystemStatement
    | UpdateStatement
    | DeleteStatement
    | SubscribeStatement
    | CancelStatement
    | DescribeStatement
    | TransactionStatement
)


@dataclass(frozen=True)
class Script:
    """A parsed script: its statements in order."""

    source: SourceText
    statements: tuple[Statement, ...]
