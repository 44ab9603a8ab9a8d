"""Changes of text cases: queries that differ from what somebody wrote in an operator, a window, a join, a constant, and
inputs that hold limits, NULLs, duplicates and other timestamps.

A changed script may be nonsense. What matters is that it is refused with an error of ours, or else means the same to
the oracle and to the runtime.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from penstock.testing.scalars.values import FarDate, FarTimestamp, python_values

_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\d+(?:\.\d+)?|[A-Za-z_]\w*|<=>|<>|<=|>=|!=|\|\||\s+|.",
    re.DOTALL,
)
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>", "IS DISTINCT FROM")
_ARITHMETIC = ("+", "-", "*", "/", "%", "DIV")
_NUMBERS = ("0", "1", "2", "3", "7", "-1", "0.5", "1000", "2147483647", "NULL", "CAST(NULL AS INT)")
_STRINGS = ("''", "'a'", "'A '", "'%'", "'é'", "NULL")
_AGGREGATES = (
    "COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV", "VAR_POP", "MEDIAN", "MODE", "FIRST", "LAST", "ARRAY_AGG",
)  # fmt: skip
_WINDOWS = (
    "", "[NOW]", "[RANGE 1 SECOND]", "[RANGE 3 SECOND]", "[RANGE 1 MINUTE]", "[RANGE UNBOUNDED]", "[ROWS 1]",
    "[ROWS 2]", "[ROWS 3 SLIDE 2 ROWS]", "[RANGE 4 SECOND SLIDE 2 SECOND]", "[RANGE 2 SECOND SLIDE 5 SECOND]",
    "[RANGE 3 SECOND SLIDE 3 SECOND]", "[RANGE 2 SECOND INTERNAL]", "[RANGE 5 SECOND SLIDE 2 ROWS]",
    "[FREQUENCY 2 TUPLES]", "[RANGE 3 TUPLES, FREQUENCY 2 TUPLES]", "[FREQUENCY 3 SECONDS]",
)  # fmt: skip
_JOINS = (
    "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN", "NATURAL JOIN",
    "NATURAL LEFT JOIN", "NATURAL FULL JOIN",
)  # fmt: skip
_JOIN = re.compile(r"\b(?:(?:NATURAL|INNER|CROSS|LEFT|RIGHT|FULL|OUTER|SEMI|ANTI)\s+)*JOIN\b", re.IGNORECASE)
_SETS = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
_SET = re.compile(r"\b(?:UNION|EXCEPT|INTERSECT)\b(?:\s+ALL\b)?", re.IGNORECASE)
_WINDOW = re.compile(r"\[[^\[\]]*\]")
_STREAMS = ("ISTREAM", "DSTREAM", "RSTREAM")
_CALL = re.compile(r"\b(?:" + "|".join(_AGGREGATES) + r")\b(?=\s*\()", re.IGNORECASE)
_KEYWORDS = frozenset(
    """select from where group by having order limit offset as on using join left right full outer inner cross natural
    semi anti union except intersect all distinct and or not in exists any some is null like between case when then else
    end range rows slide now unbounded partition second seconds minute minutes frequency tuples with lateral true false
    asc desc nulls first last interval istream dstream rstream wstream restore filter internal preceding align
    to""".split()  # noqa: SIM905
)


def statements(script: str) -> list[str]:
    """The statements of `script`, without their semicolons."""
    found = [""]
    for token in _TOKEN.findall(script):
        if token == ";":
            found.append("")
        elif not token.startswith("--"):
            found[-1] += token
    return [text.strip() for text in found if text.strip()]


def changed_script(script: str, draw: random.Random) -> str:
    """`script` with one to three changes in its queries and views."""
    parts = statements(script)
    for _ in range(draw.choice((1, 1, 2, 3, 4))):
        places = [i for i, text in enumerate(parts) if _defines_a_query(text)]
        if not places:
            break
        place = draw.choice(places)
        head, body = _head_and_body(parts[place])
        names = [name for text in parts if (name := _source_name(text))]
        parts[place : place + 1] = _changed(head, body, names, draw)
    return ";\n".join(parts) + ";\n"


def changed_query(text: str, sources: Sequence[str], draw: random.Random) -> str:
    """A query with one to three changes. sources: what may be read beside what it reads."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        text = draw.choice(_CHANGES)(text, sources, draw)
    return text


def _defines_a_query(statement: str) -> bool:
    return re.match(r"CREATE\s+(?:QUERY|VIEW)\b", statement, re.IGNORECASE) is not None


def _source_name(statement: str) -> str | None:
    found = re.match(r"CREATE\s+(?:STREAM|(?:NON\s+RETROACTIVE\s+)?RELATION)\s+(\w+)", statement, re.IGNORECASE)
    return found[1] if found else None


def _head_and_body(statement: str) -> tuple[str, str]:
    """`CREATE QUERY q AS` and the query."""
    found = re.match(
        r"(CREATE\s+(?:QUERY|VIEW)\s+(?:`[^`]*`|\w+)(?:\s*\([^()]*\))?"
        r"(?:\s+INTO\s+\w+\s*\([^()]*\))?(?:\s+WITH\s*\([^()]*\))?\s+AS\b)(.*)",
        statement,
        re.IGNORECASE | re.DOTALL,
    )
    return (found[1], found[2].strip()) if found else (statement, "")


def _changed(head: str, body: str, sources: Sequence[str], draw: random.Random) -> list[str]:
    """The statements that stand in the place of one that defines a query."""
    if not body:
        return [head]
    if draw.random() < 0.08:
        view = f"v{draw.randrange(10**6)}"
        outer = draw.choice(("SELECT * FROM {}", "SELECT DISTINCT * FROM {}", "SELECT COUNT(*) AS n FROM {}",
                             "SELECT * FROM {} [ROWS 2]", "SELECT x.* FROM {0} AS x, {0} AS y"))  # fmt: skip
        return [f"CREATE VIEW {view} AS {body}", f"{head} {outer.format(view)}"]
    change = draw.choice(_CHANGES)
    return [f"{head} {change(body, sources, draw)}"]


# --- changes of a query's text ----------------------------------------------------------------------------------------

Change = Callable[[str, Sequence[str], random.Random], str]


def _replace_one(pattern: re.Pattern[str], body: str, options: Sequence[str], draw: random.Random) -> str:
    places = list(pattern.finditer(body))
    if not places:
        return body
    place = draw.choice(places)
    return body[: place.start()] + draw.choice(options) + body[place.end() :]


def _replace_token(body: str, chosen: Callable[[str], bool], other: Callable[[str], str], draw: random.Random) -> str:
    tokens = _TOKEN.findall(body)
    places = [i for i, token in enumerate(tokens) if chosen(token)]
    if places:
        place = draw.choice(places)
        tokens[place] = other(tokens[place])
    return "".join(tokens)


def _is_name(token: str) -> bool:
    return token.isidentifier() and token.lower() not in _KEYWORDS


def comparison(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_token(body, lambda t: t in _COMPARISONS, lambda _: f" {draw.choice(_COMPARISONS)} ", draw)


def arithmetic(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_token(body, lambda t: t in _ARITHMETIC, lambda _: f" {draw.choice(_ARITHMETIC)} ", draw)


def junction(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_token(
        body, lambda t: t.upper() in ("AND", "OR"), lambda t: "OR" if t.upper() == "AND" else "AND", draw
    )


def number(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_token(body, lambda t: t[0].isdigit(), lambda _: draw.choice(_NUMBERS), draw)


def string(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_token(body, lambda t: t.startswith("'"), lambda _: draw.choice(_STRINGS), draw)


def window(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_one(_WINDOW, body, _WINDOWS, draw)


def join(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_one(_JOIN, body, _JOINS, draw)


def set_operation(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_one(_SET, body, _SETS, draw)


def aggregate(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_one(_CALL, body, _AGGREGATES, draw)


def distinct(body: str, sources: Sequence[str], draw: random.Random) -> str:
    if draw.random() < 0.4 and re.search(r"\bDISTINCT\b", body, re.IGNORECASE):
        return _replace_one(re.compile(r"\bDISTINCT\b", re.IGNORECASE), body, ("",), draw)
    if draw.random() < 0.3:
        return _replace_one(re.compile(r"(?<=[A-Z])\((?=[a-z])"), body, ("(DISTINCT ",), draw)
    return _replace_one(re.compile(r"\bSELECT\b", re.IGNORECASE), body, ("SELECT DISTINCT",), draw)


def negation(body: str, sources: Sequence[str], draw: random.Random) -> str:
    if draw.random() < 0.4 and re.search(r"\bNOT\b", body, re.IGNORECASE):
        return _replace_one(re.compile(r"\bNOT\b", re.IGNORECASE), body, ("",), draw)
    word = draw.choice((r"\bWHERE\b", r"\bON\b", r"\bHAVING\b", r"\bAND\b", r"\bWHEN\b"))
    return _replace_token(body, lambda t: re.fullmatch(word, t, re.IGNORECASE) is not None, lambda t: f"{t} NOT", draw)


def membership(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_one(
        re.compile(r"\b(?:NOT\s+)?(?:IN|EXISTS)\b|(?:[<>=]+)\s*(?:ANY|ALL|SOME)\b", re.IGNORECASE),
        body,
        ("IN", "NOT IN", "= ANY", "<> ALL", "> ANY", "<= ALL", "EXISTS", "NOT EXISTS"),
        draw,
    )


def null_test(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_one(
        re.compile(r"\bIS\s+(?:NOT\s+)?NULL\b", re.IGNORECASE), body, ("IS NULL", "IS NOT NULL", "IS NOT TRUE"), draw
    )


def stream_operator(body: str, sources: Sequence[str], draw: random.Random) -> str:
    if re.search(r"\b[IDR]STREAM\b", body, re.IGNORECASE) and draw.random() < 0.7:
        return _replace_one(re.compile(r"\b[IDR]STREAM\b", re.IGNORECASE), body, (*_STREAMS, ""), draw)
    return f"{draw.choice(_STREAMS)}({body})"


def name(body: str, sources: Sequence[str], draw: random.Random) -> str:
    names = sorted({token for token in _TOKEN.findall(body) if _is_name(token)})
    return _replace_token(body, _is_name, lambda t: draw.choice(names), draw) if names else body


def wrapped_name(body: str, sources: Sequence[str], draw: random.Random) -> str:
    form = draw.choice((
        "COALESCE({}, 0)", "NULLIF({}, 1)", "-{}", "{} + 1", "CAST({} AS STRING)", "CAST({} AS DOUBLE)", "({} IS NULL)",
        "CASE WHEN {0} > 1 THEN {0} END", "CAST({} AS DECIMAL(9,2))", "{} % 2", "NULL", "GREATEST({}, 2)",
    ))  # fmt: skip
    found = list(re.finditer(r"\b[A-Za-z_]\w*\.[A-Za-z_]\w*\b|(?<=[ (,])[a-z]\w*\b(?=[ ,)<>=+*-])", body))
    found = [m for m in found if _is_name(m[0].split(".")[-1])]
    if not found:
        return body
    place = draw.choice(found)
    return body[: place.start()] + form.format(place[0]) + body[place.end() :]


def wrapped_query(body: str, sources: Sequence[str], draw: random.Random) -> str:
    form = draw.choice((
        "SELECT * FROM ({}) AS w", "SELECT DISTINCT * FROM ({}) AS w", "SELECT COUNT(*) AS n FROM ({}) AS w",
        "{} UNION ALL {}", "{} UNION {}", "{} EXCEPT {}", "{} INTERSECT ALL {}", "{} ORDER BY 1 LIMIT 2",
        "{} ORDER BY 1 DESC LIMIT 1 OFFSET 1", "SELECT w.* FROM ({}) AS w LEFT JOIN ({}) AS z ON FALSE",
        "SELECT * FROM ({}) AS w WHERE EXISTS ({})", "SELECT (SELECT COUNT(*) FROM ({}) AS w) AS n",
    ))  # fmt: skip
    return form.replace("{}", body)


def probed(body: str, sources: Sequence[str], draw: random.Random) -> str:
    """One more condition with a subquery over some source."""
    source, where = draw.choice(list(sources)), draw.choice(_WINDOWS[:9])
    names = sorted({token for token in _TOKEN.findall(body) if _is_name(token) and len(token) < 8}) or ["a"]
    form = draw.choice(
        (
            "EXISTS (SELECT 1 FROM {s} AS zz)",
            "NOT EXISTS (SELECT 1 FROM {s} AS zz WHERE zz.{n} = {m})",
            "{n} IN (SELECT zz.{n} FROM {s} AS zz)",
            "{n} NOT IN (SELECT zz.{m} FROM {s} AS zz)",
            "{n} > (SELECT COUNT(*) FROM {s} AS zz WHERE zz.{m} = {n})",
            "{n} >= ALL (SELECT zz.{m} FROM {s} AS zz)",
            "{n} < ANY (SELECT zz.{n} FROM {s} AS zz)",
            "({n}, {m}) IN (SELECT zz.{n}, zz.{m} FROM {s} AS zz)",
        )
    ).format(s=f"{source} {where}", n=draw.choice(names), m=draw.choice(names))
    word = draw.choice(("AND", "OR"))
    if re.search(r"\bWHERE\b", body, re.IGNORECASE):
        return _replace_one(re.compile(r"\bWHERE\b", re.IGNORECASE), body, (f"WHERE {form} {word}",), draw)
    return f"{body} WHERE {form}"


def crossed(body: str, sources: Sequence[str], draw: random.Random) -> str:
    """One more source in FROM."""
    more = f"{draw.choice(list(sources))} {draw.choice(_WINDOWS)} AS zz"
    return _replace_one(re.compile(r"\bFROM\b", re.IGNORECASE), body, (f"FROM {more},",), draw)


def dropped(body: str, sources: Sequence[str], draw: random.Random) -> str:
    return _replace_token(body, lambda t: not t.isspace(), lambda _: "", draw)


def doubled(body: str, sources: Sequence[str], draw: random.Random) -> str:
    """A part of the query stands in another place too."""
    tokens = _TOKEN.findall(body)
    start = draw.randrange(len(tokens))
    piece = tokens[start : start + draw.randint(1, 8)]
    place = draw.randrange(len(tokens))
    return "".join([*tokens[:place], " ", *piece, " ", *tokens[place:]])


_CHANGES: tuple[Change, ...] = (
    comparison, arithmetic, junction, number, number, string, window, window, window, join, join, set_operation,
    aggregate,
    aggregate, distinct, negation, membership, null_test, stream_operator, name, name, wrapped_name, wrapped_name,
    wrapped_query, probed, probed, crossed, dropped, doubled,
)  # fmt: skip


# --- changes of inputs ------------------------------------------------------------------------------------------------


def changed_inputs(inputs: dict[str, pa.Table], stamps: dict[str, str], draw: random.Random) -> dict[str, pa.Table]:
    """The inputs with other values, rows that are missing, doubled or in another order. stamps: by source its column of
    timestamps, which moves a little or not at all: what a window holds is decided by small differences."""
    return {name: _changed_table(table, stamps.get(name), draw) for name, table in inputs.items()}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, with dates and timestamps of any year."""
    columns = [python_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _changed_table(table: pa.Table, stamp: str | None, draw: random.Random) -> pa.Table:
    rows = rows_of(table)
    for _ in range(draw.randint(0, 3)):
        if not rows:
            break
        place = draw.randrange(len(rows))
        change = draw.random()
        if change < 0.2:
            rows.insert(place, dict(rows[place]))
        elif change < 0.3:
            rows.pop(place)
        elif change < 0.4 and stamp is not None:
            rows[place][stamp] = _moved(rows[place][stamp], table.schema.field(stamp).type, draw)
        else:
            column = draw.choice(table.schema)
            if column.name != stamp and not (
                pa.types.is_string(column.type) and rows[place][column.name] in ("+", "-")
            ):
                other = draw.choice(rows)[column.name]
                rows[place] = {**rows[place], column.name: draw.choice((other, *_limits(column.type)))}
    return pa.Table.from_pylist(rows, schema=table.schema)


def _moved(value: Any, type_: pa.DataType, draw: random.Random) -> Any:
    if value is None or not pa.types.is_integer(type_):
        return value
    return value + draw.choice((-2, -1, 1, 2, 20))


def _limits(type_: pa.DataType) -> tuple[Any, ...]:
    if pa.types.is_integer(type_):
        top = 2 ** (type_.bit_width - 1)
        return (None, None, 0, 1, -1, top - 1, -top)
    if pa.types.is_floating(type_):
        return (None, 0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 5e-324)
    if pa.types.is_decimal(type_):
        least = Decimal(1).scaleb(-type_.scale)
        top = Decimal("9" * type_.precision).scaleb(-type_.scale, Context(prec=type_.precision))
        return (None, Decimal(0), top, top.copy_negate(), least)
    if pa.types.is_string(type_):
        return (None, "", "a", "A", "é", "e\u0301", "𝄞", " x ", "%_", "1", "1e3", "NaN")
    if pa.types.is_boolean(type_):
        return (None, True, False)
    if pa.types.is_date(type_):
        return (None, FarDate(2**31 - 1), FarDate(-(2**31)))
    if pa.types.is_timestamp(type_):
        return (None, FarTimestamp(2**63 - 1), FarTimestamp(-(2**63)))
    return (None,)
