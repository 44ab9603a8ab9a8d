"""Syntax trees of statements: one frozen tree per statement, as `queries.py` has them for queries (docs/language.md).

A field that the binder does not know is rejected by `unsupported.py`, whose tables list the known ones: a new field
here or in `queries.py` is rejected until it is listed there.
"""

from __future__ import annotations

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
    Insert,
    OneTimeSelect,
    SetSetting,
)
from penstock.language.statements.live import (
    AlterAction,
    AlterQueryStatement,
    AlterSourceStatement,
    AlterSystemStatement,
    AsAction,
    Assignment,
    DeleteStatement,
    IntoAction,
    PauseAction,
    RenameAction,
    ResumeAction,
    RowsConfirmed,
    SetAction,
    SubscribeStatement,
    SwapAction,
    UpdateStatement,
)
from penstock.language.statements.statement import AccessRole, Statement

__all__ = [
    "AccessRole",
    "AlterAction",
    "AlterQueryStatement",
    "AlterSourceStatement",
    "AlterSystemStatement",
    "AsAction",
    "AsOf",
    "Assignment",
    "ColumnDefinition",
    "Connector",
    "CreateFunction",
    "CreateQuery",
    "CreateSource",
    "CreateSummary",
    "CreateView",
    "DeleteStatement",
    "DropStatement",
    "ErrorPolicy",
    "Existence",
    "ExplainStatement",
    "Insert",
    "IntoAction",
    "OneTimeSelect",
    "PauseAction",
    "RenameAction",
    "ResumeAction",
    "RetainClause",
    "RowsConfirmed",
    "SetAction",
    "SetSetting",
    "StartClause",
    "Statement",
    "SubscribeStatement",
    "SwapAction",
    "TimestampBy",
    "TypeText",
    "UpdateStatement",
    "WrittenOption",
]
