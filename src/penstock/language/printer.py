"""Print queries and clauses of statements as text, which parses to equal trees; layout and comments are not kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from penstock.language.clauses import AsOf, Connector, PromiseClause, StartClause, WrittenOption
from penstock.language.dialect import Cql
from penstock.language.limits import continues
from penstock.language.queries import (
    Align,
    AllItems,
    Count,
    DerivedSource,
    Duration,
    EmbeddedQuery,
    Extent,
    FrequencyClause,
    FrequentClause,
    FromSource,
    Item,
    JoinedSource,
    JoinKind,
    Length,
    LocalView,
    Mark,
    Name,
    OrderItem,
    PlanQuery,
    PreferenceClause,
    QueryTree,
    SampleClause,
    SelectQuery,
    SetQuery,
    SortedQuery,
    Star,
    StreamQuery,
    ToStream,
    ValidClause,
    ValuesQuery,
    WholeQuery,
    WindowClause,
    WindowTableClause,
    WithQuery,
)
from penstock.types import Interval


def print_query(tree: WholeQuery) -> str:
    """Return the text of one query."""
    if isinstance(tree, SelectQuery):
        return _select(tree)
    if isinstance(tree, SetQuery):
        return _set_operation(tree)
    if isinstance(tree, StreamQuery):
        return f"{_operator(tree.operator)}({print_query(tree.query)}){_operator_window(tree.operator)}"
    if isinstance(tree, ValuesQuery):
        return f"VALUES {values_text(tree.rows)}"
    if isinstance(tree, PlanQuery):
        return f"FROM PLAN {string_text(tree.text)}"
    if isinstance(tree, WithQuery):
        return f"WITH {', '.join(_local(v) for v in tree.views)} {print_query(tree.query)}"
    assert isinstance(tree, SortedQuery)
    text = _operand(tree.query) if isinstance(tree.query, SortedQuery | WithQuery) else print_query(tree.query)
    if isinstance(tree.order, AllItems):
        text += " ORDER BY ALL" + _direction(tree.order)
    elif tree.order:
        text += " ORDER BY " + ", ".join(_sort_key(k) for k in tree.order)
    if tree.limit is not None and tree.ties is None:
        text += f" LIMIT {scalar_text(tree.limit)}"
    text += f" OFFSET {scalar_text(tree.offset)}" if tree.offset is not None else ""
    if tree.limit is not None and tree.ties is not None:
        text += f" FETCH FIRST {scalar_text(tree.limit)} ROWS WITH TIES"
    return text


def _set_operation(tree: SetQuery) -> str:
    """Print a set operation; a UNION of many stands in a row, without brackets."""
    word = f" {tree.kind.value}{' ALL' if tree.all else ''}{word_text(' BY NAME', tree.by_name)} "
    behind = [tree.right]
    first = tree.left
    while isinstance(first, SetQuery) and continues(first, tree):
        behind.append(first.right)
        first = first.left
    return word.join(map(_operand, (first, *reversed(behind))))


def values_text(rows: Iterable[Sequence[exp.Expr]]) -> str:
    """Return the text of the rows behind VALUES."""
    return ", ".join(f"({', '.join(map(scalar_text, row))})" for row in rows)


def _operand(tree: QueryTree) -> str:
    text = print_query(tree)
    return text if isinstance(tree, SelectQuery | ValuesQuery | StreamQuery) else f"({text})"


def _local(view: LocalView) -> str:
    return f"{name_text(view.name)}{columns_text(view.columns)} AS ({print_query(view.query)})"


def _sort_key(key: OrderItem) -> str:
    return scalar_text(key.value) + _direction(key)


def _direction(key: OrderItem | AllItems) -> str:
    text = " DESC" if key.descending else ""
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
    if tree.sets:
        listed = (", ".join(scalar_text(tree.group[i]) for i in one) for one in tree.sets)
        text += f" GROUP BY GROUPING SETS ({', '.join(f'({one})' for one in listed)})"
    elif tree.group:
        text += " GROUP BY " + ", ".join(scalar_text(g) for g in tree.group)
    if tree.group_all is not None:
        text += " GROUP BY ALL"
    if tree.frequent is not None:
        text += _frequent(tree.frequent)
    text += f" HAVING {scalar_text(tree.having)}" if tree.having is not None else ""
    return text + ("" if tree.preference is None else _preference(tree.preference))


def _preference(clause: PreferenceClause) -> str:
    order = f"{clause.order} " if clause.order else ""
    text = f" WITH PREFERENCE {order}{', '.join(scalar_text(e) for e in clause.expressions)}"
    if clause.fade is not None:
        text += f" FADE FACTOR {_amount(clause.fade)}" + (f" PER {clause.per.interval}" if clause.per else "")
    if (budget := clause.budget) is not None:
        text += f" BUDGET {f'{budget.units} ' if budget.kind.startswith('PER') else ''}{budget.kind}"
        text += f" {budget.interval.interval}" if budget.interval else ""
    return text + (f" WINDOW {clause.window.interval}" if clause.window else "")


def _frequent(clause: FrequentClause) -> str:
    text = f" FREQUENT {clause.k}"
    if clause.by is not None:
        text += f" BY {scalar_text(clause.by)}"
    if clause.per:
        text += f" PER ({', '.join(scalar_text(p) for p in clause.per)})"
    if clause.above is not None:
        text += f" ABOVE {_amount(clause.above)}"
    return text + (" OR POSSIBLY" if clause.possibly else "")


def _item(item: Item) -> str:
    value = item.value
    if isinstance(value, Star):
        return _star(value)
    return scalar_text(value) + (f" AS {name_text(item.alias)}" if item.alias else "")


def _star(star: Star) -> str:
    text = f"{name_text(star.qualifier)}.*" if star.qualifier else "*"
    if star.pattern is not None:
        text = f"COLUMNS({string_text(star.pattern)})"
    text += f" EXCEPT{columns_text(star.excluded)}" if star.excluded else ""
    if star.replaced:
        text += f" REPLACE ({', '.join(map(_item, star.replaced))})"
    if star.renamed:
        renamed = (f"{name_text(one.column)} AS {name_text(one.name)}" for one in star.renamed)
        text += f" RENAME ({', '.join(renamed)})"
    return text


def _source(source: FromSource) -> str:
    if isinstance(source, JoinedSource):
        return _join(source)
    if isinstance(source, DerivedSource):
        text = f"{'LATERAL ' if source.lateral else ''}({print_query(source.query)})"
        if source.windows is not None:
            text = _window_table(source.windows, text)
        if source.called and source.alias:
            window = f" {window_text(source.window)}" if source.window else ""
            sample = _sample(source.sample) if source.sample else ""
            called = f"{name_text(source.called)} {name_text(source.alias)}"
            return f"{text} AS {called}{window}{sample}{columns_text(source.columns)}"
    else:
        text = ("GAPS OF " if source.gaps else "") + name_text(source.name)
        if source.items is not None:
            text += f" ({', '.join(map(_item, source.items))})" + (" (PERIOD)" if source.period else "")
        if source.valid is not None:
            text += " " + valid_text(source.valid)
        if source.least is not None:
            text += f" AT LEAST {source.least.interval}"
    if source.window:
        text += " " + window_text(source.window)
    if source.sample:
        text += _sample(source.sample)
    if source.alias:
        text += f" AS {name_text(source.alias)}"
    return text + (columns_text(source.columns) if isinstance(source, DerivedSource) else "")


def _window_table(clause: WindowTableClause, of: str) -> str:
    lengths = clause.lengths if clause.offset is None else (*clause.lengths, clause.offset)
    ticks = [str(one.interval) if isinstance(one, Duration) else str(one.value) for one in lengths]
    return f"{clause.kind.value}({', '.join((of, name_text(clause.time), *ticks))})"


def _sample(sample: SampleClause) -> str:
    def listed(columns: tuple[exp.Expr, ...]) -> str:
        return ", ".join(scalar_text(column) for column in columns)

    if sample.percent is not None:
        inside = _amount(sample.percent) + (f" BY {listed(sample.by)}" if sample.by else "")
    else:
        inside = f"{sample.rows} ROWS" + (f" PER {listed(sample.per)}" if sample.per else "")
        inside += f" WEIGHT {scalar_text(sample.weight)}" if sample.weight is not None else ""
    return f" SAMPLE({inside})" + (f" REPEATABLE({sample.seed})" if sample.seed is not None else "")


def valid_text(valid: ValidClause) -> str:
    """Return the text of a VALID clause."""
    if valid.length is not None:
        length = valid.length
        return f"VALID FOR {length.interval if isinstance(length, Duration) else _computed(length)}"
    if valid.begin is not None and valid.end is not None:
        word = "THROUGH" if valid.through else "TO"
        return f"VALID FROM {name_text(valid.begin)} {word} {name_text(valid.end)}"
    by = f" BY {', '.join(map(name_text, valid.by))}" if valid.by else ""
    return f"VALID UNTIL NEXT{by}" + (f" AT MOST {valid.at_most.interval}" if valid.at_most else "")


def _computed(length: Length) -> str:
    return scalar_text(length.value) + (f" {length.unit.name}" if length.unit else "")


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
    return text + (f" USING {columns_text(join.using).strip()}" if join.using else "")


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
    if window.at_most:
        parts.append(f"AT MOST {window.at_most.interval}")
    if window.open:
        parts.append("OPEN")
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


def _length(length: Duration | Count | Length, worded: bool) -> str:
    if isinstance(length, Duration):
        return str(length.interval)
    if isinstance(length, Length):
        return _computed(length)
    return f"{length.value} ROWS" if worded else str(length.value)


def _align(align: Align) -> str:
    to = align.to
    if isinstance(to, Interval):
        return str(to)
    return str(to) if isinstance(to, int) else f"TIMESTAMP {string_text(to)}"


def _frequency(frequency: FrequencyClause) -> str:
    every = frequency.every
    text = f"FREQUENCY {every.interval if isinstance(every, Duration) else f'{every.value} TUPLES'}"
    if frequency.partition:
        text += " PARTITIONED BY " + ", ".join(scalar_text(c) for c in frequency.partition)
    return text


def columns_text(names: tuple[Name, ...]) -> str:
    return f" ({', '.join(name_text(n) for n in names)})" if names else ""


def name_text(name: Name) -> str:
    text = "`" + name.text.replace("`", "``") + "`" if name.quoted else name.text
    return f"{name.schema}.{text}" if name.schema else text


def string_text(text: str) -> str:
    escaped = re.sub(r"(['\\])", r"\\\1", text)
    return f"'{escaped}'"


def _amount(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(float(value))


class ScalarGenerator(SparkGenerator):
    """Spark's generator, with a callback for a query inside an expression."""

    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **SparkGenerator.TRANSFORMS,
        EmbeddedQuery: lambda self, node: print_query(node.tree),
        exp.StrPosition: lambda self, node: self.func(
            "POSITION", node.args.get("substr"), node.this, node.args.get("position")
        ),
        exp.AtTimeZone: lambda self, node: f"{self.sql(node, 'this')} AT TIME ZONE {self.sql(node, 'zone')}",
        exp.BitwiseLeftShift: lambda self, node: self.binary(node, "<<"),
        exp.BitwiseRightShift: lambda self, node: self.binary(node, ">>"),
    }


def scalar_text(node: exp.Expr) -> str:
    """Return a scalar expression as CQL."""
    return str(ScalarGenerator(dialect=Cql()).generate(node))


# --- clauses of statements


def word_text(word: str, mark: Mark | None) -> str:
    return word if mark else ""


def where_text(condition: exp.Expr | None) -> str:
    return "" if condition is None else f" WHERE {scalar_text(condition)}"


def definition_text(query: WholeQuery) -> str:
    """Return what a query is: AS and its text, or FROM PLAN."""
    return print_query(query) if isinstance(query, PlanQuery) else f"AS {print_query(query)}"


def start_text(clause: StartClause | None) -> str:
    if clause is None:
        return ""
    at = f" {instant_text(clause.at)}" if clause.at else ""
    return f" START {clause.mode.value}{at}{word_text(' WAIT', clause.wait)}"


def as_of_text(clause: AsOf | None) -> str:
    return "" if clause is None else f" AS OF {instant_text(clause)}"


def instant_text(clause: AsOf) -> str:
    return str(clause.at) if isinstance(clause.at, int) else string_text(clause.at)


def connector_text(connector: Connector) -> str:
    return f"{name_text(connector.name)} ({options_text(connector.options)})"


def options_text(options: tuple[WrittenOption, ...]) -> str:
    return ", ".join(f"{_dotted(o.key)} {string_text(o.value)}" for o in options)


def promise_text(clause: PromiseClause) -> str:
    """Return the text of a promise of a stream; of REFERENCES behind a column that of FOREIGN KEY."""
    name = f"CONSTRAINT {name_text(clause.name)} " if clause.name else ""
    text = f"{name}{clause.kind.value}{columns_text(clause.columns)}"
    if clause.parent is not None:
        text += f" REFERENCES {name_text(clause.parent)}{columns_text(clause.parent_columns)}"
    text += word_text(" DESC", clause.descending)
    if clause.within is not None:
        text += f" WITHIN {_length(clause.within, True)}"
    return text + (f" {clause.mode.value}" if clause.mode else "")


def setting_text(name: Name, value: str) -> str:
    """Return the text of `name = value`."""
    return f"{_dotted(name)} = {string_text(value)}"


def _dotted(name: Name) -> str:
    """Return the name of a setting: those of Spark and of clients have dots."""
    return ".".join(name_text(replace(name, text=part)) for part in name.text.split("."))
