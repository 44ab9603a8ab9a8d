"""Print statements as text, which parses to an equal statement; layout and comments are not kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.language.printer import (
    columns_text,
    name_text,
    print_query,
    scalar_text,
    string_text,
    valid_text,
    values_text,
)
from penstock.language.queries import Mark, Name, PlanQuery, QueryTree
from penstock.language.statements import (
    AlterAction,
    AlterQueryStatement,
    AlterSourceStatement,
    AlterSystemStatement,
    AsAction,
    AsOf,
    Connector,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateSummary,
    CreateView,
    DeleteStatement,
    DropStatement,
    Existence,
    ExplainStatement,
    Insert,
    IntoAction,
    OneTimeSelect,
    PauseAction,
    RenameAction,
    ResumeAction,
    RetainClause,
    SetAction,
    SetSetting,
    StartClause,
    Statement,
    SubscribeStatement,
    UpdateStatement,
    WrittenOption,
)


def shared_text(statement: Statement) -> str:
    """Return the text of a statement that is in no file of its own."""
    return _PRINTED[type(statement)](statement)


def _create_view(statement: CreateView) -> str:
    head = f"{_create('VIEW', statement.name, statement.existence)}{columns_text(statement.columns)}"
    return f"{head} AS {print_query(statement.query)}"


def _drop(statement: DropStatement) -> str:
    exists, cascade = _word(" IF EXISTS", statement.if_exists), _word(" CASCADE", statement.cascade)
    return f"DROP {statement.kind}{exists} {name_text(statement.name)}{cascade}"


def _alter_source(statement: AlterSourceStatement) -> str:
    return f"ALTER {statement.kind} {name_text(statement.name)} SET ({_options(statement.options)})"


def _explain(statement: ExplainStatement) -> str:
    words = "EXPLAIN" + _word(" ANALYZE", statement.analyze) + _word(" START", statement.start)
    words += _word(" SHARING", statement.sharing)
    if statement.name is not None:
        return f"{words} QUERY {name_text(statement.name)}"
    assert statement.query is not None
    return f"{words} {print_query(statement.query)}"


def _setting(statement: SetSetting | AlterSystemStatement) -> str:
    return f"{_dotted(statement.name)} = {string_text(statement.value)}"


def _word(word: str, mark: Mark | None) -> str:
    return word if mark else ""


def _create(kind: str, name: Name, existence: Existence | None) -> str:
    replaced = "OR REPLACE " if existence is Existence.OR_REPLACE else ""
    exists = "IF NOT EXISTS " if existence is Existence.IF_NOT_EXISTS else ""
    return f"CREATE {replaced}{kind} {exists}{name_text(name)}"


def _create_query(statement: CreateQuery) -> str:
    text = _create("QUERY", statement.name, statement.existence)
    text += f" INTO {_connector(statement.into)}" if statement.into else ""
    text += _start(statement.start)
    text += f" WITH ({_options(statement.attributes)})" if statement.attributes else ""
    return f"{text} {_defined(statement.query)}"


def _defined(query: QueryTree) -> str:
    """Return what a query is: AS and its text, or FROM PLAN."""
    return print_query(query) if isinstance(query, PlanQuery) else f"AS {print_query(query)}"


def _action(action: AlterAction) -> str:
    if isinstance(action, PauseAction):
        return "PAUSE" + _word(" WITH STATE", action.with_state)
    if isinstance(action, ResumeAction):
        return f"RESUME{_start(action.start)}" + _word(" RESET", action.reset)
    if isinstance(action, SetAction):
        return f"SET ({_options(action.options)})"
    if isinstance(action, RenameAction):
        return f"RENAME TO {name_text(action.name)}"
    if isinstance(action, IntoAction):
        return f"INTO {_connector(action.into)}"
    if isinstance(action, AsAction):
        return f"{_defined(action.query)}{_start(action.start)}" + _word(" RESET", action.reset)
    return f"SWAP WITH {name_text(action.name)}"


def _start(clause: StartClause | None) -> str:
    if clause is None:
        return ""
    return (
        f" START {clause.mode.value}" + (f" {_instant(clause.at)}" if clause.at else "") + _word(" WAIT", clause.wait)
    )


def _rows(statement: Insert | UpdateStatement | DeleteStatement) -> str:
    name = name_text(statement.name)
    if isinstance(statement, Insert):
        return f"INSERT INTO {name}{columns_text(statement.columns)} VALUES {values_text(statement.rows)}"
    where = "" if statement.where is None else f" WHERE {scalar_text(statement.where)}"
    if isinstance(statement, DeleteStatement):
        return f"DELETE FROM {name}{where}"
    values = ", ".join(f"{name_text(a.column)} = {scalar_text(a.value)}" for a in statement.assignments)
    confirmed = "" if statement.confirmed is None else f" CONFIRM {statement.confirmed.count} ROWS"
    return f"UPDATE {name} SET {values}{where}{confirmed}"


def _subscribe(statement: SubscribeStatement) -> str:
    if statement.name is not None:
        text = f"SUBSCRIBE TO {name_text(statement.name)}"
    else:
        assert statement.query is not None
        text = f"SUBSCRIBE TO ({print_query(statement.query)})"
    shape = [word for word, mark in (("SNAPSHOT", statement.snapshot), ("PROGRESS", statement.progress)) if mark]
    text += f" WITH ({', '.join(shape)})" if shape else ""
    return text + _as_of(statement.as_of) + (f" UP TO {_instant(statement.up_to)}" if statement.up_to else "")


def _as_of(clause: AsOf | None) -> str:
    return "" if clause is None else f" AS OF {_instant(clause)}"


def _instant(clause: AsOf) -> str:
    return str(clause.at) if isinstance(clause.at, int) else string_text(clause.at)


def _create_function(statement: CreateFunction) -> str:
    given = statement.parameters
    types = "" if given is None else f" ({', '.join(p.text for p in given)})"
    returns = f" RETURNS {statement.returns.text}" if statement.returns else ""
    volatile = " VOLATILE" if statement.volatile else ""
    name = _create(statement.kind, statement.name, statement.existence)
    return f"{name}{types}{returns}{volatile} AS {string_text(statement.body)}"


def _create_source(statement: CreateSource) -> str:
    kind = "STREAM" if statement.is_stream else "RELATION"
    columns = [f"{name_text(c.name)} {c.type}" for c in statement.columns]
    if statement.primary_key:
        columns.append(f"PRIMARY KEY {columns_text(statement.primary_key).strip()}")
    retroactive = "NON RETROACTIVE " if statement.non_retroactive else ""
    text = f"{_create(retroactive + kind, statement.name, statement.existence)} ({', '.join(columns)})"
    text += f" FROM {_connector(statement.connector)}"
    if by := statement.timestamp:
        text += f" TIMESTAMP BY {name_text(by.column)}" + (f" UNIT {by.unit.name}" if by.unit else "")
    if statement.system_time:
        text += " SYSTEM TIME"
    if statement.operation:
        text += f" OPERATION BY {name_text(statement.operation)}"
    if statement.slack:
        text += f" ORDER WITHIN {statement.slack.interval}"
    if statement.ahead:
        text += f" ADVANCE AT MOST {statement.ahead.interval}"
    if statement.idle:
        text += f" IDLE TIMEOUT {statement.idle.interval}"
    text += f" ON ERROR {statement.on_error.policy}" if statement.on_error else ""
    text += f" {valid_text(statement.valid)}" if statement.valid else ""
    return text + _retain(statement.retain)


def _create_summary(statement: CreateSummary) -> str:
    text = f"{_create('SUMMARY', statement.name, statement.existence)} ON {name_text(statement.stream)}"
    text += columns_text(statement.columns)
    levels = [] if statement.granularity is None else [f"GRANULARITY {statement.granularity.interval}"]
    if statement.collapse is not None:
        levels.append(f"COLLAPSE ({statement.collapse.rate}, {statement.collapse.depth})")
    text += f" WITH {' AND '.join(levels)}" if levels else ""
    text += f" USING {statement.method}" if statement.method else ""
    return text + (f" ({_options(statement.options)})" if statement.options else "")


def _retain(clause: RetainClause | None) -> str:
    return "" if clause is None else f" RETAIN {clause.length.interval}{columns_text(clause.columns)}"


def _connector(connector: Connector) -> str:
    return f"{name_text(connector.name)} ({_options(connector.options)})"


def _options(options: tuple[WrittenOption, ...]) -> str:
    return ", ".join(f"{_dotted(o.key)} {string_text(o.value)}" for o in options)


def _dotted(name: Name) -> str:
    """Return the name of a setting: those of Spark and of clients have dots."""
    return ".".join(name_text(replace(name, text=part)) for part in name.text.split("."))


#: By class of a tree, the function that prints it.
_PRINTED: Mapping[type[Statement], Callable[[Any], str]] = {
    CreateSource: _create_source,
    CreateView: _create_view,
    CreateQuery: _create_query,
    CreateFunction: _create_function,
    CreateSummary: _create_summary,
    OneTimeSelect: lambda one: print_query(one.query) + _as_of(one.as_of),
    Insert: _rows,
    UpdateStatement: _rows,
    DeleteStatement: _rows,
    SetSetting: lambda one: f"SET {_setting(one)}",
    AlterSystemStatement: lambda one: f"ALTER SYSTEM SET {_setting(one)}",
    AlterSourceStatement: _alter_source,
    AlterQueryStatement: lambda one: f"ALTER QUERY {name_text(one.name)} {_action(one.action)}",
    DropStatement: _drop,
    SubscribeStatement: _subscribe,
    ExplainStatement: _explain,
}
