"""STREAM's own regression suite: its ten scripts, translated to CQL, must answer as the Stanford prototype did.

The suite lies beside the repository (`../shared/conformance/stream`) or where PENSTOCK_CONFORMANCE says; without it
the tests are skipped. Answers are compared per instant as netted bags. The prototype prints an instant only when a
later element closes it, so that the last instant is missing from some of its outputs: that, and nothing else, may be
missing here.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.language import bind_script
from penstock.runtime.local import run_local
from penstock.testing.cases import parse_value
from penstock.testing.compare import assert_same, check_shape, events_of
from penstock.testing.values import Event
from penstock.types import parse_type

HERE = Path(__file__).resolve().parent.parent
SUITE = Path(os.environ.get("PENSTOCK_CONFORMANCE", HERE.parent / "shared" / "conformance" / "stream"))
TYPES = {"integer": "INT", "float": "FLOAT", "byte": "STRING", "char": "STRING"}

pytestmark = pytest.mark.skipif(not SUITE.is_dir(), reason=f"no conformance suite at {SUITE}")


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
    match = re.fullmatch(r"register (stream|relation) (\w+) \((.*)\);?", text.strip())
    assert match, text
    columns = [column.split() for column in match[3].split(",")]
    return Declared(match[2], match[1] == "stream", [(c[0], TYPES[c[1].partition("(")[0]]) for c in columns])


def read_script(path: Path) -> tuple[str, dict[str, pa.Table]]:
    """A script of the suite as CQL, and the rows of its sources. Its query is called `q`."""
    tables: list[Declared] = []
    statements = ["SET integer_division = true;"]
    view = ""
    for line in path.read_text(encoding="ascii").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "table":
            tables.append(declared(value))
        elif key == "source":
            tables[-1].source = SUITE / "data" / Path(value).name
            statements += tables[-1].statements()
        elif key == "vquery":
            view = value.rstrip(";")
        elif key == "vtable":
            named = declared(value)
            statements.append(f"CREATE VIEW {named.name} ({', '.join(n for n, _ in named.columns)}) AS {view};")
        elif key == "query":
            statements.append(f"CREATE QUERY q AS {value.rstrip(';')};")
        else:
            assert not key or key.startswith("#") or key == "dest", f"a line of another kind: {line}"
    return "\n".join(statements), {f"{table.name}_in": table.table() for table in tables}


def read_expected(path: Path, types: tuple[pa.DataType, ...]) -> list[Event]:
    """Lines `[ts]:+:values` as events."""
    events: list[Event] = []
    for line in path.read_text(encoding="ascii").splitlines():
        match = re.fullmatch(r"\[(\d+)\]:([+-]):(.*)", line.strip())
        assert match, line
        cells = [cell.strip() for cell in match[3].split(",")]
        events.append((int(match[1]), match[2], tuple(map(parse_value, cells, types))))
    return events


@pytest.mark.parametrize("number", range(1, 11))
def test_stream_script(number: int) -> None:
    script, inputs = read_script(SUITE / "scripts" / f"test{number}")
    query = bind_script(script).queries[0]
    result = run_local([query], inputs, shards=2, seed=number)
    table = result.tables["q"]
    expected = read_expected(SUITE / "expected" / f"test{number}", query.root.schema.types)
    last = max(int(rows["ts"][-1].as_py()) for rows in inputs.values())
    left_out = {last} - {ts for ts, _, _ in expected}
    check_shape(events_of(query, table))
    assert_same(query, table, expected, ignore=left_out)
