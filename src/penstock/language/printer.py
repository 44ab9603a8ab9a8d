"""Print statements as text, which parses to an equal statement; layout and comments are not kept."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from penstock.language.dialect import Cql
from penstock.language.limits import continues
from penstock.language.queries import (
    Align,
    Count,
    DerivedSource,
    Duration,
    EmbeddedQuery,
    Extent,
    FrequencyClause,
    FromSource,
    Item,
    JoinedSource,
    JoinKind,
    LocalView,
    Name,
    NamedSource,
    OrderItem,
    QueryTree,
    SelectQuery,
    SetQuery,
    SortedQuery,
    Star,
    StreamQuery,
    ToStream,
    WindowClause,
    WithQuery,
)
from penstock.language.statements import (
    AsOf,
    Connector,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateView,
    DropStatement,
    ExplainStatement,
    Insert,
    OneTimeSelect,
    SetSetting,
    ShowStatement,
    Statement,
)
from penstock.types import Interval


def print_statement(statement: Statement) -> str:
    """Return the text of one statement, without its semicolon."""
    if isinstance(statement, CreateSource):
        return _create_source(statement)
    if isinstance(statement, CreateView):
        return f"CREATE VIEW {_name(statement.name)}{_columns(statement.columns)} AS {print_query(statement.query)}"
    if isinstance(statement, CreateQuery):
        into = f" INTO {_connector(statement.into)}" if statement.into else ""
        return f"CREATE QUERY {_name(statement.name)}{into} AS {print_query(statement.query)}"
    if isinstance(statement, OneTimeSelect):
        return print_query(statement.query) + _as_of(statement.as_of)
    if isinstance(statement, CreateFunction):
        return _create_function(statement)
    if isinstance(statement, Insert):
        rows = ", ".join("(" + ", ".join(scalar_text(v) for v in row) + ")" for row in statement.rows)
        return f"INSERT INTO {_name(statement.name)} VALUES {rows}"
    if isinstance(statement, SetSetting):
        return f"SET {_dotted(statement.name)} = {_string(statement.value)}"
    if isinstance(statement, ExplainStatement):
        return f"EXPLAIN {'ANALYZE ' if statement.analyze else ''}{print_query(statement.query)}"
    if isinstance(statement, ShowStatement):
        return f"SHOW {statement.kind}"
    assert isinstance(statement, DropStatement)
    return f"DROP {statement.kind} {_name(statement.name)}"


def _as_of(clause: AsOf | None) -> str:
    if clause is None:
        return ""
    return f" AS OF {clause.at if isinstance(clause.at, int) else _string(clause.at)}"


def _create_function(statement: CreateFunction) -> str:
    given = statement.parameters
    types = "" if given is None else f" ({', '.join(p.text for p in given)})"
    returns = f" RETURNS {statement.returns.text}" if statement.returns else ""
    volatile = " VOLATILE" if statement.volatile else ""
    name = _name(statement.name)
    return f"CREATE {statement.kind} {name}{types}{returns}{volatile} AS {_string(statement.body)}"


def print_query(tree: QueryTree) -> str:
    """Return the text of one query."""
    if isinstance(tree, SelectQuery):
        return _select(tree)
    if isinstance(tree, SetQuery):
        return _set_operation(tree)
    if isinstance(tree, StreamQuery):
        return f"{_operator(tree.operator)}({print_query(tree.query)}){_operator_window(tree.operator)}"
    if isinstance(tree, WithQuery):
        return f"WITH {', '.join(_local(v) for v in tree.views)} {print_query(tree.query)}"
    assert isinstance(tree, SortedQuery)
    text = _operand(tree.query) if isinstance(tree.query, SortedQuery | WithQuery) else print_query(tree.query)
    if tree.order:
        text += " ORDER BY " + ", ".join(_sort_key(k) for k in tree.order)
    text += f" LIMIT {scalar_text(tree.limit)}" if tree.limit is not None else ""
    return text + (f" OFFSET {scalar_text(tree.offset)}" if tree.offset is not None else "")


def _set_operation(tree: SetQuery) -> str:
    """Print a set operation; a UNION of many stands in a row, without brackets."""
    word = f" {tree.kind.value}{' ALL' if tree.all else ''} "
    behind = [tree.right]
    first = tree.left
    while isinstance(first, SetQuery) and continues(first, tree):
        behind.append(first.right)
        first = first.left
    return word.join(map(_operand, (first, *reversed(behind))))


def _operand(tree: QueryTree) -> str:
    text = print_query(tree)
    return text if isinstance(tree, SelectQuery | StreamQuery) else f"({text})"


def _local(view: LocalView) -> str:
    return f"{_name(view.name)}{_columns(view.columns)} AS ({print_query(view.query)})"


def _sort_key(key: OrderItem) -> str:
    text = scalar_text(key.value) + (" DESC" if key.descending else "")
    return text + ("" if key.nulls_first is None else " NULLS FIRST" if key.nulls_first else " NULLS LAST")


def _operator(operator: ToStream) -> str:
    return operator.operator.value + (" RESTORE" if operator.restore else "")


def _operator_window(operator: ToStream) -> str:
    return window_text(operator.window) if operator.window else ""


def _select(tree: SelectQuery) -> str:
    items = ", ".join(_item(i) for i in tree.items)
    if tree.wrapped:
        items = f"{_operator(tree.wrapped)}({items}){_operator_window(tree.wrapped)}"
    text = f"SELECT {'DISTINCT ' if tree.distinct else ''}{items}"
    if tree.frequency:
        text += f" [{_frequency(tree.frequency)}]"
    if tree.source is not None:
        text += f" FROM {_source(tree.source)}"
    if tree.where is not None:
        text += f" WHERE {scalar_text(tree.where)}"
    if tree.group:
        text += " GROUP BY " + ", ".join(scalar_text(g) for g in tree.group)
    return text + (f" HAVING {scalar_text(tree.having)}" if tree.having is not None else "")


def _item(item: Item) -> str:
    value = item.value
    if isinstance(value, Star):
        return f"{_name(value.qualifier)}.*" if value.qualifier else "*"
    return scalar_text(value) + (f" AS {_name(item.alias)}" if item.alias else "")


def _source(source: FromSource) -> str:
    if isinstance(source, JoinedSource):
        return _join(source)
    if isinstance(source, DerivedSource):
        text = f"{'LATERAL ' if source.lateral else ''}({print_query(source.query)})"
        if source.called and source.alias:
            window = f" {window_text(source.window)}" if source.window else ""
            return f"{text} AS {_name(source.called)} {_name(source.alias)}{window}{_columns(source.columns)}"
    else:
        text = _name(source.name)
    if source.window:
        text += " " + window_text(source.window)
    if isinstance(source, NamedSource) and source.sample:
        text += f" SAMPLE({_amount(source.sample.percent)})"
    if source.alias:
        text += f" AS {_name(source.alias)}"
    return text + (_columns(source.columns) if isinstance(source, DerivedSource) else "")


def _join(join: JoinedSource) -> str:
    right = _source(join.right)
    if isinstance(join.right, JoinedSource):
        right = f"({right})"
    word = f"{join.kind.value} JOIN"
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
        word = f"LEFT {word}"
    text = f"{_source(join.left)} {'NATURAL ' if join.natural else ''}{word} {right}"
    if join.on is not None:
        text += f" ON {scalar_text(join.on)}"
    return text + (f" USING {_columns(join.using).strip()}" if join.using else "")


def window_text(window: WindowClause) -> str:
    """Return the text of a window in its brackets."""
    parts: list[str] = []
    if window.partition:
        parts.append("PARTITION BY " + ", ".join(scalar_text(c) for c in window.partition))
    if window.extent is not None:
        length = "" if window.length is None else f" {_length(window.length, window.extent is not Extent.ROWS)}"
        parts.append(f"{window.extent.value}{length}")
    if window.partition and window.extent is Extent.UNBOUNDED:
        parts[-1] = "ROWS UNBOUNDED"
    if window.span_limit:
        parts.append(f"RANGE {window.span_limit.interval}")
    if window.slide:
        parts.append(f"SLIDE {_length(window.slide, True)}")
    if window.align:
        parts.append(f"ALIGN TO {_align(window.align)}")
    if window.where is not None:
        parts.append(f"WHERE {scalar_text(window.where)}")
    if window.internal:
        parts.append("INTERNAL")
    text = " ".join(parts)
    if window.frequency:
        text += (", " if text else "") + _frequency(window.frequency)
    return f"[{text}]"


def _length(length: Duration | Count, worded: bool) -> str:
    if isinstance(length, Duration):
        return str(length.interval)
    return f"{length.value} ROWS" if worded else str(length.value)


def _align(align: Align) -> str:
    to = align.to
    if isinstance(to, Interval):
        return str(to)
    return str(to) if isinstance(to, int) else f"TIMESTAMP {_string(to)}"


def _frequency(frequency: FrequencyClause) -> str:
    every = frequency.every
    text = f"FREQUENCY {every.interval if isinstance(every, Duration) else f'{every.value} TUPLES'}"
    if frequency.partition:
        text += " PARTITIONED BY " + ", ".join(scalar_text(c) for c in frequency.partition)
    return text


def _create_source(statement: CreateSource) -> str:
    kind = "STREAM" if statement.is_stream else "RELATION"
    columns = [f"{_name(c.name)} {c.type}" for c in statement.columns]
    if statement.primary_key:
        columns.append(f"PRIMARY KEY {_columns(statement.primary_key).strip()}")
    retroactive = "NON RETROACTIVE " if statement.non_retroactive else ""
    text = f"CREATE {retroactive}{kind} {_name(statement.name)} ({', '.join(columns)})"
    text += f" FROM {_connector(statement.connector)}"
    if by := statement.timestamp:
        text += f" TIMESTAMP BY {_name(by.column)}" + (f" UNIT {by.unit.name}" if by.unit else "")
    if statement.system_time:
        text += " SYSTEM TIME"
    if statement.operation:
        text += f" OPERATION BY {_name(statement.operation)}"
    if statement.slack:
        text += f" ORDER WITHIN {statement.slack.interval}"
    if statement.ahead:
        text += f" ADVANCE AT MOST {statement.ahead.interval}"
    if statement.idle:
        text += f" IDLE TIMEOUT {statement.idle.interval}"
    return text + (f" ON ERROR {statement.on_error.policy}" if statement.on_error else "")


def _connector(connector: Connector) -> str:
    options = ", ".join(f"{_dotted(o.key)} {_string(o.value)}" for o in connector.options)
    return f"{_name(connector.name)} ({options})"


def _dotted(name: Name) -> str:
    """Return the name of a setting: those of Spark and of clients have dots."""
    return ".".join(_name(replace(name, text=part)) for part in name.text.split("."))


def _columns(names: tuple[Name, ...]) -> str:
    return f" ({', '.join(_name(n) for n in names)})" if names else ""


def _name(name: Name) -> str:
    return "`" + name.text.replace("`", "``") + "`" if name.quoted else name.text


def _string(text: str) -> str:
    escaped = re.sub(r"(['\\])", r"\\\1", text)
    return f"'{escaped}'"


def _amount(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(float(value))


class _Generator(SparkGenerator):
    """Spark's generator, with a callback for a query inside an expression."""

    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **SparkGenerator.TRANSFORMS,
        EmbeddedQuery: lambda self, node: print_query(node.tree),
        exp.StrPosition: lambda self, node: self.func(
            "POSITION", node.args.get("substr"), node.this, node.args.get("position")
        ),
    }


def scalar_text(node: exp.Expr) -> str:
    """Return a scalar expression as CQL."""
    return str(_Generator(dialect=Cql()).generate(node))
