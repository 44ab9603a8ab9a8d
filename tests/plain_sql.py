"""Plain SQL in three ways: over static relations, over relations with updates, and over streams under windows.

A file of `sql/` has relations and queries, a paragraph each:

    relation t (a INT, b STRING)
    1, 'x'
    NULL, 'y'

    SELECT b FROM t WHERE a IS NULL

    SELECT a DIV 2 AS h FROM t
    duckdb: SELECT a // 2 AS h FROM t

    SELECT a + 2147483647 AS s FROM t
    because: integers wrap
    -> -2147483648
    -> NULL

What a query answers is asked of DuckDB, in its own spelling where one is given; where Spark means something else the
answer is written down, with the reason. Relations get a history whose rows at the end are those of the file: rows come
at several instants, others come and go, or expire. Answers are looked at in the midst of it too. Behind `and no others`
a relation has no other rows than those of the file.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import Catalog, bind_query, bind_script
from penstock.testing.cases import CaseRun, input_table, parse_value
from penstock.testing.compare import assert_same
from penstock.testing.oracle import Answer, run_oracle
from penstock.testing.scalars.values import Row, close, key_of, order_key

FOLDER = Path(__file__).parent / "sql"
_RELATION = re.compile(r"relation (\w+) \((.*)\)( and no others)?$")
_CELL = re.compile(r"(?:^|,)(\s*'(?:[^']|'')*'\s*|[^,]*)")
#: How long a row of a window that expires lives.
_LENGTH = 10


class Way(Enum):
    STATIC = "static"
    UPDATED = "updated"
    GROWING = "growing"
    EXPIRING = "expiring"

    def declare(self, name: str, columns: str) -> str:
        if self is Way.STATIC:
            return f"CREATE RELATION {name} ({columns}) FROM MEMORY ();"
        if self is Way.UPDATED:
            made = "RELATION {0}_rows ({1}, op_ STRING, at_ INT) FROM MEMORY () TIMESTAMP BY at_ OPERATION BY op_"
        else:
            made = "STREAM {0}_rows ({1}, op_ STRING, at_ INT) FROM MEMORY () TIMESTAMP BY at_"
        names = ", ".join(column.split()[0] for column in _columns(columns))
        return f"CREATE {made}; CREATE VIEW {{0}} AS SELECT {names} FROM {{0}}_rows {self.window};".format(
            name, columns
        )

    @property
    def window(self) -> str:
        """A row `*` of an empty relation is an instant and nothing else."""
        if self is Way.GROWING:
            return "[RANGE UNBOUNDED WHERE op_ = '+']"
        return f"[RANGE {_LENGTH} SECOND]" if self is Way.EXPIRING else ""

    @property
    def instants(self) -> tuple[int, int]:
        """One in the midst of a history, and one at which its rows are those of the file."""
        return {Way.STATIC: (0, 0), Way.UPDATED: (3, 5), Way.GROWING: (3, 5), Way.EXPIRING: (10, 13)}[self]


def _columns(text: str) -> list[str]:
    """The column definitions of a declaration; commas inside parentheses part nothing."""
    return [column.strip() for column in re.split(r",(?![^(]*\))", text)]


@dataclass(frozen=True)
class Relation:
    name: str
    columns: str
    rows: list[list[str]]
    no_others: bool


@dataclass(frozen=True)
class Asked:
    """A query. duckdb: how DuckDB spells it; answer: its rows, where DuckDB is not asked."""

    file: str
    line: int
    text: str
    duckdb: str
    answer: list[list[str]] | None

    def __str__(self) -> str:
        return f"{self.file}-{self.line}"


@dataclass(frozen=True)
class Change:
    """A row of a history comes (+) or goes (-) at an instant. A row that expires goes by itself."""

    at: int
    sign: str
    row: tuple[Any, ...]


@dataclass
class Suite:
    """A file: its relations, its queries, and the histories of its relations."""

    name: str
    relations: list[Relation] = field(default_factory=list)
    queries: list[Asked] = field(default_factory=list)

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        found = bind_script(self._script(Way.STATIC)).catalog.sources.values()
        rows = {relation.name.lower(): relation.rows for relation in self.relations}
        return {source.name: input_table(source, rows[source.name.lower()]) for source in found}

    def _script(self, way: Way) -> str:
        return "\n".join(way.declare(relation.name, relation.columns) for relation in self.relations)

    @cached_property
    def catalogs(self) -> dict[Way, Catalog]:
        return {way: bind_script(self._script(way)).catalog for way in Way}

    @cached_property
    def histories(self) -> dict[tuple[Way, str], list[Change]]:
        alone = {relation.name.lower() for relation in self.relations if relation.no_others}
        return {
            (way, name): history(way, table, name.lower() in alone, random.Random(f"{self.name} {way.value} {name}"))
            for way in Way
            for name, table in self.tables.items()
        }

    def snapshot(self, way: Way, at: int) -> dict[str, pa.Table]:
        """What the relations hold at an instant."""
        return {name: held(way, self.histories[way, name], at, table.schema) for name, table in self.tables.items()}

    def inputs(self, way: Way) -> dict[str, pa.Table]:
        """The histories as rows of sources."""
        if way is Way.STATIC:
            return dict(self.tables)
        return {f"{name}_rows": as_rows(self.histories[way, name], t.schema) for name, t in self.tables.items()}

    @cached_property
    def second(self) -> SecondOpinion:
        return SecondOpinion()

    def bind(self, asked: Asked, way: Way) -> Query:
        return bind_query(asked.text, self.catalogs[way])


def read(path: Path) -> Suite:
    suite = Suite(path.stem)
    lines = [*path.read_text(encoding="utf-8").splitlines(), ""]
    paragraph: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            _add(suite, number - len(paragraph), paragraph)
            paragraph = []
    return suite


def _add(suite: Suite, line: int, paragraph: list[str]) -> None:
    if match := _RELATION.match(paragraph[0]):
        suite.relations.append(
            Relation(match[1], match[2], [_cells(row) for row in paragraph[1:]], match[3] is not None)
        )
        return
    text = [part for part in paragraph if not part.startswith(("duckdb: ", "because: ", "->"))]
    other = [part.removeprefix("duckdb: ") for part in paragraph if part.startswith("duckdb: ")]
    reasons = [part for part in paragraph if part.startswith("because: ")]
    answer = [_cells(part.removeprefix("->")) for part in paragraph if part.startswith("->")]
    assert not (answer and not reasons), f"{suite.name}:{line}: an answer that is written down has a reason"
    query = "\n".join(text)
    suite.queries.append(Asked(suite.name, line, query, "\n".join(other) or query, answer if reasons else None))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.findall(line)] if line.strip() else []


# --- histories --------------------------------------------------------------------------------------------------------


def history(way: Way, table: pa.Table, alone: bool, draw: random.Random) -> list[Change]:
    """Changes after which the rows are those of `table`, in order of time, the first at 1. Of an empty table too:
    something comes, so that there is an instant, and goes. alone: no rows come but those."""
    rows = [tuple(row.values()) for row in table.to_pylist()]
    others = [] if alone else _others(rows, table, draw)
    if way is Way.STATIC:
        found = [Change(0, "+", row) for row in rows]
    elif way is Way.GROWING:
        found = [Change(draw.randint(1, 5) if i else 1, "+", row) for i, row in enumerate(rows)]
        found = found or [Change(1, "*", others[0])]
    elif way is Way.UPDATED:
        found = [change for row in rows for change in _comes(row, draw)]
        found += [change for i, row in enumerate(others) for change in _comes_and_goes(row, 1 if i else 0, draw)]
    else:
        found = [Change(draw.randint(9, 13) if i else 13, "+", row) for i, row in enumerate(rows)]
        found += [Change(draw.randint(1, 3) if i else 1, "+", row) for i, row in enumerate(others)]
    return sorted(found, key=lambda change: (change.at, change.sign == "-"))


def _comes(row: tuple[Any, ...], draw: random.Random) -> list[Change]:
    """A row that is there at the end, and may have come and gone before."""
    if draw.random() < 0.3:
        at = sorted(draw.sample(range(1, 6), 3))
        return [Change(at[0], "+", row), Change(at[1], "-", row), Change(at[2], "+", row)]
    return [Change(draw.randint(1, 5), "+", row)]


def _comes_and_goes(row: tuple[Any, ...], least: int, draw: random.Random) -> list[Change]:
    """least: 0 for a row that comes at the first instant."""
    one = draw.randint(1, 4) if least else 1
    return [Change(one, "+", row), Change(draw.randint(one + 1, 5), "-", row)]


def _others(rows: list[tuple[Any, ...]], table: pa.Table, draw: random.Random) -> list[tuple[Any, ...]]:
    """Rows made of the values of several, which are not there at the end; of none, a row of NULLs."""
    empty = tuple([None] * len(table.schema))
    if not rows:
        return [empty]
    return [tuple(draw.choice(rows)[i] for i in range(len(empty))) for _ in range(max(2, len(rows) // 2))]


def held(way: Way, changes: Sequence[Change], at: int, schema: pa.Schema) -> pa.Table:
    found: Counter[Row] = Counter()
    rows: dict[Row, Row] = {}
    for change in changes:
        if change.at > at or change.sign == "*" or (way is Way.EXPIRING and change.at + _LENGTH <= at):
            continue
        key = key_of(change.row)
        rows[key] = change.row
        found[key] += 1 if change.sign == "+" else -1
    assert all(count >= 0 for count in found.values()), "a history takes away a row that is not there"
    left = [rows[key] for key in found.elements()]
    return pa.Table.from_arrays(
        [pa.array([row[i] for row in left], f.type) for i, f in enumerate(schema)], schema=schema
    )


def as_rows(changes: Sequence[Change], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([change.row[i] for change in changes], f.type) for i, f in enumerate(schema)]
    signs = pa.array([change.sign for change in changes], pa.string())
    stamps = pa.array([change.at for change in changes], pa.int32())
    return pa.Table.from_arrays([*columns, signs, stamps], names=[*schema.names, "op_", "at_"])


# --- answers ----------------------------------------------------------------------------------------------------------


def rows_at(answer: Answer, at: int) -> list[Row]:
    """R(at), from the changes that lead to it. A stream of results is what has come until then."""
    found: Counter[Row] = Counter()
    rows: dict[Row, Row] = {}
    for ts, op, row in answer.events:
        if ts <= at:
            rows[key_of(row)] = row
            found[key_of(row)] += -1 if op == "-" else 1
    assert all(count >= 0 for count in found.values()), f"rows are taken back that are not there: {found}"
    return [rows[key] for key in found.elements()]


class SecondOpinion:
    """DuckDB over snapshots of the relations, each in a schema of its own."""

    def __init__(self) -> None:
        self._database = duckdb.connect()
        self._database.execute(
            "SET default_null_order = 'nulls_first_on_asc_last_on_desc'; SET TimeZone = 'UTC'; SET threads = 1"
        )
        self._known: set[str] = set()

    def rows(self, query: str, name: str, tables: Mapping[str, pa.Table]) -> list[Row]:
        if name not in self._known:
            self._known.add(name)
            self._database.execute(f"CREATE SCHEMA {name}")
            for table, rows in tables.items():
                self._database.register("arrived", rows)
                self._database.execute(f"CREATE TABLE {name}.{table} AS SELECT * FROM arrived")
        self._database.execute(f"SET search_path = '{name}'")
        return [tuple(map(_plain, row)) for row in self._database.execute(query).fetchall()]


def _plain(value: Any) -> Any:
    """A value without what only its client adds: a time zone, an exact decimal where the other has a double."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return float(value) if isinstance(value, Decimal) else value


def assert_rows(found: Sequence[Row], expected: Sequence[Row], what: str) -> None:
    """Equal as bags, doubles nearly."""

    def ordered(rows: Sequence[Row]) -> list[Row]:
        plain = [tuple(map(_plain, row)) for row in rows]
        return sorted(plain, key=lambda row: [order_key(round(v, 6) if isinstance(v, float) else v) for v in row])

    one, other = ordered(found), ordered(expected)
    same = len(one) == len(other) and all(
        len(a) == len(b) and close(a, b, 1e-9) for a, b in zip(one, other, strict=True)
    )
    assert same, f"{what}\nfound    {one}\nexpected {other}"


def expected_rows(suite: Suite, asked: Asked, way: Way, at: int) -> list[Row]:
    """What the query answers over what the relations hold at an instant: the answer that is written down, or DuckDB's.
    In the midst of a history, where nothing is written down, the oracle's over static relations."""
    if asked.answer is None:
        return suite.second.rows(asked.duckdb, f"{way.value}_{at}", suite.snapshot(way, at))
    query = suite.bind(asked, Way.STATIC)
    if at == way.instants[1]:
        types = query.root.schema.types
        return [tuple(parse_value(cell, t) for cell, t in zip(row, types, strict=True)) for row in asked.answer]
    return rows_at(run_oracle(query, suite.snapshot(way, at)), 0)


def chosen_run(asked: Asked, way: Way) -> CaseRun:
    """Some way to run a query: in one batch, or cut in pieces over several shards."""
    draw = random.Random(f"{asked} {way.value}")
    if way is Way.STATIC or draw.random() < 0.4:
        return CaseRun(optimized=draw.random() < 0.8)
    return CaseRun(draw.randint(1, 3), draw.randint(0, 99), reload=draw.random() < 0.1, optimized=draw.random() < 0.9)


def one_way(asked: Asked) -> Way:
    """Of the ways, queries take turns."""
    return random.Random(str(asked)).choice(list(Way))


def check(suite: Suite, asked: Asked, ways: Sequence[Way]) -> None:
    """The oracle answers as is expected, at the end and in the midst, and the local runtime as the oracle."""
    for way in ways:
        query, inputs = suite.bind(asked, way), suite.inputs(way)
        answer = run_oracle(query, inputs, drain=way is Way.EXPIRING)
        for at in sorted(set(way.instants)):
            shown = {
                name: [*map(tuple, map(dict.values, t.to_pylist()))] for name, t in suite.snapshot(way, at).items()
            }
            what = f"{asked}: {asked.text}\n{way.value}, at {at}, over {shown}"
            assert_rows(rows_at(answer, at), expected_rows(suite, asked, way, at), what)
        result = chosen_run(asked, way).answer([query], inputs, drain=way is Way.EXPIRING)
        assert_same(query, result.tables[query.name], answer)
