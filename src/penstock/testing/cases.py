"""Text cases: a script, its input, and the expected answer of every query, in one readable file (`.cqltest`).

    # A window holds an element for its length.
    statement
    CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
    CREATE QUERY q AS SELECT a FROM S [RANGE 2 SECOND];

    input S
    1, 10
    2, NULL

    advance

    input S
    4, 30

    expect q
    ts, op, a
    1, +, 10
    ...

A line `heartbeat 5` between the rows of an input is a heartbeat: the ADVANCE of a server, and `punctuate a = 1` a
punctuation.
Rows of `input S by clock` begin with one more cell: their arrival by the wall clock, in seconds since 1970 or as a
timestamp. `advance` is a pause between batches: answers may not depend on it, and the runner cuts the input there and
at many other positions. `expect q drain` is the answer when time continues after the input. `answer 2` is the answer of
the second one-time SELECT of the script, in its order where it has one. `late S 2` is the number of late rows of S,
`rejected R 1 duplicate primary key` the number of updates of R that are rejected for that reason (no line: none).
`error P0901 3:14` after a statement means that it is refused with that code at that line and column of the statement;
several lines are several errors.

Contract: `run_case(path)` checks the file against the oracle and against the local runtime, cut at many positions and
on several shards; it raises AssertionError (or PenstockError) with the difference.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.algebra.properties.heartbeats import PlacedHeartbeat, heartbeats_of, with_heartbeats
from penstock.algebra.properties.statistics import SourceStatistics, Statistics
from penstock.connectors.sources.memory import inserted_rows
from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.values.calendar import day_of, moment_of
from penstock.expressions.values.intervals import from_text
from penstock.language.binder.statements.punctuations import read_punctuation
from penstock.language.scripts import BoundScript, SelectOnce, bind_script
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.local.one_time import answer_over
from penstock.runtime.local.runtime import LocalResult, plan_local, run_local
from penstock.runtime.local.schedule import Arrivals
from penstock.testing.compare import assert_same, first_difference, show_events
from penstock.testing.one_time import assert_same_rows, rows_of
from penstock.testing.oracle import run_oracle, run_oracle_once
from penstock.testing.scalars.values import Event, FarDate, FarTimestamp
from penstock.testing.thresholds import lowered, small
from penstock.types import CALENDAR, TimeDomain

_HEADER = re.compile(
    r"(?P<kind>statement|advance)$|(?P<input>input) (?P<source>\w+)(?P<clock> by clock)?$"
    r"|(?P<expect>expect) (?P<query>\w+)(?P<drain> drain)?$|(?P<answer>answer) (?P<number>\d+)$"
    r"|(?P<rejected>rejected) (?P<relation>\w+) (?P<times>\d+) (?P<reason>.+)$"
    r"|(?P<late>late) (?P<stream>\w+) (?P<count>\d+)$|(?P<error>error) (?P<code>P\d{4})(?: (?P<place>\d+:\d+))?$"
)
#: How lines of heartbeats and punctuations begin.
_HEARTBEAT = "heartbeat "
_PUNCTUATION = "punctuate "
_CELL = re.compile(r"(?:^|,)(\s*'(?:[^']|'')*'\s*|[^,]*)")


@dataclass(frozen=True)
class Expect:
    """The expected answer of one query: the header of the result's columns, and its rows as text."""

    query: str
    drain: bool
    header: list[str]
    rows: list[list[str]]
    line: int


@dataclass(frozen=True)
class ExpectedAnswer:
    """The expected answer of the one-time SELECT with this number: its header, and its rows as text."""

    number: int
    header: list[str]
    rows: list[list[str]]
    line: int


@dataclass(frozen=True)
class ExpectedErrors:
    """A statement that must fail, and its errors: (code, `line:column` or None)."""

    script: str
    errors: list[tuple[str, str | None]]


@dataclass
class Case:
    """A parsed file.

    `inputs`: source -> its batches -> rows as text; `heartbeats`: source -> the rows before one, its line, its
    arrival; `arrivals`: for sources by clock, the arrival time of each row in microseconds.
    """

    name: str
    script: str = ""
    inputs: dict[str, list[list[list[str]]]] = field(default_factory=dict)
    heartbeats: dict[str, list[tuple[int, str, int]]] = field(default_factory=dict)
    arrivals: dict[str, list[int]] = field(default_factory=dict)
    expects: list[Expect] = field(default_factory=list)
    answers: list[ExpectedAnswer] = field(default_factory=list)
    refused: list[ExpectedErrors] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)


#: Plans by what they depend on in a `CaseRun`.
Plans = dict[tuple[bool, int | None, Strategy, int | None], Plan]


@dataclass(frozen=True)
class CaseRun:
    """One way to run a case on the local runtime; no answer may depend on it.

    `guesses`: seed of random statistics for planning, None for observed ones. `thresholds`: seed of small values for
    the sizes at which algorithms switch, None for the values that users have.
    """

    shards: int = 1
    seed: int | None = None
    batch_rows: int | None = None
    reload: bool = False
    optimized: bool = True
    guesses: int | None = None
    strategy: Strategy = Strategy.PATTERN
    thresholds: int | None = None

    def answer(
        self,
        queries: Sequence[Query],
        inputs: Mapping[str, pa.Table],
        drain: bool,
        arrivals: Arrivals | None = None,
        plans: Plans | None = None,
    ) -> LocalResult:
        """Return the result. plans: those of other runs of the same queries over the same inputs; takes this one's."""
        planned = (self.optimized, self.guesses, self.strategy, self.thresholds)
        with lowered({} if self.thresholds is None else small(self.thresholds)):
            plan = None if plans is None else plans.get(planned)
            if plan is None:
                statistics = None if self.guesses is None else made_up(queries, self.guesses)
                plan = plan_local(queries, inputs, self.optimized, statistics, self.strategy)
                if plans is not None:
                    plans[planned] = plan
            return run_local(
                queries,
                inputs,
                self.shards,
                drain,
                self.seed,
                self.batch_rows,
                reload=self.reload,
                arrivals=arrivals,
                plan=plan,
            )


def made_up(queries: Sequence[Query], seed: int) -> Statistics:
    """Return random statistics of all sources of `queries`, so that joins take other orders and shapes."""
    draw = random.Random(seed)
    sources = {name.lower(): source for name, source in declared_sources(*(query.root for query in queries)).items()}
    known = {
        name: SourceStatistics(
            10.0 ** draw.uniform(-2, 3), {f.name.lower(): float(draw.randint(1, 500)) for f in source.columns}
        )
        for name, source in sorted(sources.items())
    }
    return Statistics(known, draw.choice((1, 4)))


RUNS = (
    CaseRun(),
    CaseRun(batch_rows=1),
    CaseRun(2, seed=1, guesses=1),
    CaseRun(3, seed=2, optimized=False),
    CaseRun(2, batch_rows=2, reload=True, guesses=2, thresholds=1),
    CaseRun(2, seed=3, strategy=Strategy.DIRECT),
    CaseRun(2, seed=4, reload=True, strategy=Strategy.NEGATIVE),
)


def parse_case(text: str, name: str = "case") -> Case:
    """Parse the case in `text`.

    Raises:
        ValueError: a line belongs to no block.
    """
    case = Case(name)
    statement: list[str] | None = None
    batch = 0
    for header, line, body in _blocks(text):
        if header["kind"] == "statement":
            statement = body
            case.script += "\n".join(body) + "\n"
        elif header["kind"] == "advance":
            batch += 1
        elif header["input"]:
            batches = case.inputs.setdefault(header["source"], [])
            batches.extend([] for _ in range(batch + 1 - len(batches)))
            for row in _rows(body):
                came, cells = (_arrival(row[0]), row[1:]) if header["clock"] else (0, row)
                if cells[0].startswith((_HEARTBEAT, _PUNCTUATION)):
                    before = sum(map(len, batches))
                    beat = before, cells[0], came
                    case.heartbeats.setdefault(header["source"], []).append(beat)
                    continue
                batches[batch].append(cells)
                if header["clock"]:
                    case.arrivals.setdefault(header["source"], []).append(came)
        elif header["expect"]:
            rows = _rows(body)
            case.expects.append(Expect(header["query"], bool(header["drain"]), rows[0], rows[1:], line))
        elif header["answer"]:
            rows = _rows(body)
            case.answers.append(ExpectedAnswer(int(header["number"]), rows[0], rows[1:], line))
        elif header["late"]:
            case.late[header["stream"]] = int(header["count"])
        elif header["rejected"]:
            case.rejected.setdefault(header["relation"], {})[header["reason"]] = int(header["times"])
        else:
            _refuse(case, statement, (header["code"], header["place"]))
    return case


def _refuse(case: Case, statement: list[str] | None, error: tuple[str, str | None]) -> None:
    if statement is None:
        raise ValueError(f"{case.name}: an error without a statement before it")
    script = "\n".join(statement) + "\n"
    if case.script.endswith(script):  # the first error of this statement: it is not part of the script
        case.script = case.script.removesuffix(script)
        case.refused.append(ExpectedErrors(script, []))
    case.refused[-1].errors.append(error)


def _blocks(text: str) -> list[tuple[Mapping[str, Any], int, list[str]]]:
    """Return (header, its line number, body) of every block; comment lines become empty ones."""
    blocks: list[tuple[Mapping[str, Any], int, list[str]]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = "" if raw.startswith("#") else raw.rstrip()
        if match := _HEADER.match(line):
            blocks.append((match.groupdict(), number, []))
        elif blocks:
            blocks[-1][2].append(line)
        elif line:
            raise ValueError(f"line {number} precedes the first block: {line}")
    return blocks


def _rows(body: list[str]) -> list[list[str]]:
    """Split lines into comma-separated cells; a cell in single quotes may contain commas, and a punctuation any."""
    found = []
    for line in (line for line in body if line.strip()):
        cells, separator, punctuation = line.partition(_PUNCTUATION)
        if separator and (not cells.strip() or (cells.count(",") == 1 and cells.rstrip().endswith(","))):
            found.append([*filter(None, [cells.strip(" ,")]), separator + punctuation.strip()])
        else:
            found.append([cell.strip() for cell in _CELL.findall(line)])
    return found


# --- values -----------------------------------------------------------------------------------------------------------


def parse_value(text: str, type_: pa.DataType) -> Any:
    """Return the Python value of a cell for an Arrow type; NULL is None."""
    if text == "NULL":
        return None
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_floating(type_):
        return pa.scalar(float(text), type_).as_py()
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_date(type_):
        return _date(text)
    if pa.types.is_timestamp(type_):
        when = _timestamp(text)
        return when if type_.tz or isinstance(when, FarTimestamp) else when.replace(tzinfo=None)
    if pa.types.is_duration(type_):
        return from_text(pa.array([text], pa.string()))[0].as_py()
    if pa.types.is_binary(type_):
        return bytes.fromhex(text.removeprefix("0x"))
    if text.startswith("'"):
        text = text[1:-1].replace("''", "'")
    return _nested(json.loads(text), type_) if pa.types.is_nested(type_) else text


def _nested(value: Any, type_: pa.DataType) -> Any:
    """Convert what JSON parsed of an array or struct, its values like those of cells."""
    if value is None:
        return None
    if pa.types.is_list(type_):
        return [_nested(member, type_.value_type) for member in value]
    if pa.types.is_struct(type_):
        return {field.name: _nested(value[field.name], field.type) for field in type_}
    return (
        value
        if pa.types.is_string(type_)
        else parse_value(
            str(value).lower() if value in (True, False) and pa.types.is_boolean(type_) else str(value), type_
        )
    )


def _date(text: str) -> dt.date | FarDate:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        days = day_of(text)
        if days is None:
            raise
        return FarDate(days)


def _timestamp(text: str) -> dt.datetime | FarTimestamp:
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        ticks = moment_of(text)
        if ticks is None:
            raise
        return FarTimestamp(ticks)
    return when if when.tzinfo else when.replace(tzinfo=dt.UTC)


def parse_tick(text: str, domain: TimeDomain) -> int:
    if domain != CALENDAR:
        return int(text)
    when = _timestamp(text)
    if isinstance(when, FarTimestamp):
        return int(when)
    return (when - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _arrival(text: str) -> int:
    return int(text) * 1_000_000 if text.isdigit() else parse_tick(text, CALENDAR)


def input_table(source: Source, rows: Sequence[Sequence[str]]) -> pa.Table:
    """Return rows of text as a table of the declared columns."""
    arrays = [
        pa.array([parse_value(row[i], column.type) for row in rows], column.type)
        for i, column in enumerate(source.columns)
    ]
    return pa.Table.from_arrays(arrays, names=list(source.columns.names))


def expected_events(query: Query, expect: Expect) -> list[Event]:
    """Return the rows of an `expect` block as events of `query`."""
    assert tuple(expect.header) == query.output_names, f"{query.name} has the columns {', '.join(query.output_names)}"
    fixed = 1 if query.root.is_stream else 2
    types = query.root.schema.types
    events: list[Event] = []
    for row in expect.rows:
        assert len(row) == len(expect.header), f"{len(expect.header)} cells, not {', '.join(row)}"
        values = tuple(parse_value(cell, t) for cell, t in zip(row[fixed:], types, strict=True))
        events.append((parse_tick(row[0], query.domain), row[1] if fixed == 2 else None, values))
    return events


# --- running ----------------------------------------------------------------------------------------------------------


def run_case(path: str | Path, runs: Sequence[CaseRun] = RUNS) -> None:
    """Check one `.cqltest` file on the oracle and, in every way of `runs`, on the local runtime."""
    file = Path(path)
    check_case(parse_case(file.read_text(encoding="utf-8"), file.name), runs)


def check_case(case: Case, runs: Sequence[CaseRun] = RUNS) -> None:
    bound = bind_script(case.script, one_time=True)
    for refused in case.refused:
        _check_refused(case, bound, refused)
    inputs = case_inputs(case, bound)
    queries = {query.name.lower(): query for query in bound.queries}
    plans: Plans = {}
    for drain in sorted({expect.drain for expect in case.expects}):
        chosen = [expect for expect in case.expects if expect.drain == drain]
        for expect in chosen:
            _check_oracle(case, queries[expect.query.lower()], expect, inputs, case_arrivals(case, bound))
        for run in runs:
            _check_local(case, bound, chosen, inputs, drain, run, plans)
    _check_answers(case, bound, inputs)


def _check_answers(case: Case, bound: BoundScript, inputs: Mapping[str, pa.Table]) -> None:
    queries = [action.query for action in bound.actions if isinstance(action, SelectOnce)]
    for expected in case.answers:
        query = queries[expected.number - 1]
        assert tuple(expected.header) == query.output_names, f"{case.name}:{expected.line}: {query.output_names}"
        cells = [zip(row, query.output_schema.types, strict=True) for row in expected.rows]
        rows = [tuple(parse_value(text, type_) for text, type_ in row) for row in cells]
        try:
            assert_same_rows(query, run_oracle_once(query, inputs), rows)
            assert_same_rows(query, rows_of(answer_over(query, inputs).table), rows)
        except AssertionError as error:
            raise AssertionError(f"{case.name}:{expected.line}: {error}") from None


def _check_refused(case: Case, bound: BoundScript, refused: ExpectedErrors) -> None:
    try:
        bind_script(refused.script, catalog=bound.catalog, one_time=True)
    except PenstockError as error:
        found = error.errors if isinstance(error, ScriptErrors) else (error,)
        places = [f"{e.position.line}:{e.position.column}" if e.position else None for e in found]
        placed = [place is not None for _, place in refused.errors]
        errors = [(e.code, place if has else None) for e, place, has in zip(found, places, placed, strict=False)]
        assert errors == refused.errors and len(found) == len(refused.errors), f"{case.name}: other errors:\n{error}"
        return
    raise AssertionError(f"{case.name}: no error for\n{refused.script}")


def _placed(source: Source, rows: int, line: str, arrival: int) -> PlacedHeartbeat:
    """Return the heartbeat or punctuation of a line behind some rows."""
    if line.startswith(_PUNCTUATION):
        punctuation = read_punctuation(line.removeprefix(_PUNCTUATION), source)
        return PlacedHeartbeat(rows, 0, arrival, punctuation.as_text())
    assert source.domain is not None, f"{source.name} has no time"
    return PlacedHeartbeat(rows, parse_tick(line.removeprefix(_HEARTBEAT), source.domain), arrival)


def case_inputs(case: Case, bound: BoundScript) -> dict[str, pa.Table]:
    """Return the rows of each source by name: those that the script INSERTs first, then those of the `input` blocks."""
    given = {name.lower(): batches for name, batches in case.inputs.items()}
    unknown = set(given) - {source.name.lower() for source in bound.catalog.sources.values()}
    assert not unknown, f"{case.name}: input for {', '.join(sorted(unknown))}, which is not declared"
    beats = {name.lower(): placed for name, placed in case.heartbeats.items()}
    inputs: dict[str, pa.Table] = {}
    for source in bound.catalog.sources.values():
        inserted = inserted_rows(source, bound.catalog.memory.get(source.name.lower(), ()))
        batches = [input_table(source, batch) for batch in given.get(source.name.lower(), [])]
        placed = heartbeats_of(inserted.schema)
        for before, text, came in beats.get(source.name.lower(), ()):
            placed.append(_placed(source, inserted.num_rows + before, text, came))
        inputs[source.name] = with_heartbeats(pa.concat_tables([inserted, *batches]), placed)
    return inputs


def case_arrivals(case: Case, bound: BoundScript) -> Arrivals | None:
    """Return the arrival times of the rows by the wall clock, None where the case has no clock; sources without rows
    have none.
    """
    if not case.arrivals:
        return None
    given = {name.lower(): found for name, found in case.arrivals.items()}
    return {source.name: given.get(source.name.lower(), []) for source in bound.catalog.sources.values()}


def _check_oracle(
    case: Case, query: Query, expect: Expect, inputs: Mapping[str, pa.Table], arrivals: Arrivals | None
) -> None:
    answer = run_oracle(query, inputs, expect.drain, arrivals=arrivals)
    expected = expected_events(query, expect)
    if first_difference(expected, answer.events) is not None:
        shown = "\n".join(show_events(answer.events, query.domain))
        raise AssertionError(f"{case.name}:{expect.line}: the oracle's answer of {query.name}:\n{shown}")
    known = {name: count for name, count in case.late.items() if name in answer.late}
    assert known == {name: answer.late[name] for name in known}, f"{case.name}: late rows {answer.late}"
    rejected = {name: case.rejected.get(name, {}) for name in answer.rejected}
    assert answer.rejected == rejected, f"{case.name}: rejected rows {answer.rejected}"


def _check_local(
    case: Case,
    bound: BoundScript,
    expects: list[Expect],
    inputs: Mapping[str, pa.Table],
    drain: bool,
    run: CaseRun,
    plans: Plans,
) -> None:
    result = run.answer(bound.queries, inputs, drain, case_arrivals(case, bound), plans)
    for query, expect in ((q, e) for q in bound.queries for e in expects if e.query.lower() == q.name.lower()):
        try:
            assert_same(query, result.tables[query.name], expected_events(query, expect))
        except AssertionError as error:
            raise AssertionError(f"{case.name}:{expect.line} on the local runtime, {run}: {error}") from None
    found = {name: result.late.get(name, 0) for name in case.late}
    assert found == case.late, f"{case.name}: {run}: late rows {found}"
    rejected = {name: dict(reasons) for name, reasons in result.rejected.items() if reasons}
    assert rejected == case.rejected, f"{case.name}: {run}: rejected rows {rejected}"
