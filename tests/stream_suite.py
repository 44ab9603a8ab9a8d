"""Reads the scripts of STREAM's own regression suite: their tables, views and queries as CQL.

The suite lies beside the repository (`../shared/conformance/stream`) or where PENSTOCK_CONFORMANCE says. A script is
lines `key : value`: `table` declares a source and `source` names its data file, `vquery` and `vtable` make a view,
`query` and `dest` a query. Sets of tables by name (`A Union B`) become queries over all their columns.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.testing.cases import parse_value
from penstock.types import parse_type

HERE = Path(__file__).resolve().parent.parent
SUITE = Path(os.environ.get("PENSTOCK_CONFORMANCE", HERE.parent / "shared" / "conformance" / "stream"))
TYPES = {"integer": "INT", "float": "FLOAT", "byte": "STRING", "char": "STRING"}

_SETS = re.compile(r"(\w+)\s+(union all|union|except|intersect)\s+(\w+)", re.IGNORECASE)


@dataclass
class Declared:
    """A table of a script: its name, kind and columns, and its data file."""

    name: str
    is_stream: bool
    columns: list[tuple[str, str]]
    source: Path | None = None

    def statements(self) -> list[str]:
        """The source with its update columns, and a view under the script's name that hides them."""
        update = "ts INT" if self.is_stream else "ts INT, op STRING"
        columns = ", ".join(f"{name} {type_}" for name, type_ in self.columns)
        kind, tail = ("STREAM", "") if self.is_stream else ("RELATION", " OPERATION BY op")
        return [
            f"CREATE {kind} {self.name}_in ({update}, {columns}) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND{tail};",
            f"CREATE VIEW {self.name} AS SELECT {', '.join(name for name, _ in self.columns)} FROM {self.name}_in;",
        ]

    def table(self) -> pa.Table:
        """The rows of the data file; its first line gives the types (i, f, b, cN), which the declaration repeats."""
        assert self.source is not None
        with self.source.open(encoding="ascii", newline="") as file:
            reader = csv.reader(file)
            width = len(next(reader))
            rows = [row for row in reader if row]
        fixed = [("ts", "INT")] if self.is_stream else [("ts", "INT"), ("op", "STRING")]
        assert width == len(fixed) + len(self.columns)
        named = [(name, parse_type(type_)) for name, type_ in fixed + self.columns]
        arrays = [pa.array([parse_value(row[i], t) for row in rows], t) for i, (_, t) in enumerate(named)]
        return pa.Table.from_arrays(arrays, names=[name for name, _ in named])


def declared(text: str) -> Declared:
    match = re.fullmatch(r"register (stream|relation) (\w+) \((.*)\)\s*;?", text.strip(), re.IGNORECASE)
    assert match, text
    columns = [column.split() for column in match[3].split(",")]
    return Declared(match[2], match[1].lower() == "stream", [(c[0], TYPES[c[1].partition("(")[0]]) for c in columns])


@dataclass
class Script:
    """A script as CQL. tables: its sources in order; queries: its queries' names, `x_out` for `dest : x` or else
    `q`."""

    text: str
    tables: list[Declared]
    queries: list[str]

    def inputs(self) -> dict[str, pa.Table]:
        """The rows of the data files."""
        return {f"{table.name}_in": table.table() for table in self.tables}


def read_script(path: Path) -> Script:
    """A script of the suite as CQL."""
    tables: list[Declared] = []
    statements = ["SET integer_division = true;"]
    queries: list[str] = []
    view = ""
    for key, value in _lines(path):
        if key == "table":
            tables.append(declared(value))
        elif key == "source":
            tables[-1].source = SUITE / "data" / Path(value).name
            statements += tables[-1].statements()
        elif key == "vquery":
            view = _query(value)
        elif key == "vtable":
            named = declared(value)
            statements.append(f"CREATE VIEW {named.name} ({', '.join(n for n, _ in named.columns)}) AS {view};")
        elif key == "query":
            queries.append("q")
            statements.append(f"CREATE QUERY q AS {_query(value)};")
        elif key == "dest" and queries and value.isidentifier():
            queries[-1] = f"{value}_out"
            statements[-1] = statements[-1].replace("CREATE QUERY q ", f"CREATE QUERY {value}_out ", 1)
        else:
            assert key == "dest", f"a line of another kind: {key}: {value}"
    return Script("\n".join(statements), tables, queries)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text(encoding="ascii").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key and not key.startswith("#"):
            yield key, value


def _query(text: str) -> str:
    """The query without its semicolon; `A Union B` as a query."""
    query = text.rstrip("; ")
    found = _SETS.fullmatch(query)
    return f"SELECT * FROM {found[1]} {found[2].upper()} SELECT * FROM {found[3]}" if found else query
