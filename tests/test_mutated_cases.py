"""Text cases and plain SQL with changes: the local runtime answers as the oracle does, and what is refused is refused
with an error of ours.

`--cases N` tries N changed cases, `--case-seed S` another sequence. A failure prints the script, inputs and run.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError
from penstock.language.scripts import bind_query, bind_script
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.local.schedule import Arrivals
from penstock.testing import thresholds
from penstock.testing.cases import Case, CaseRun, case_arrivals, case_inputs, parse_case
from penstock.testing.compare import assert_same
from penstock.testing.oracle import Answer, run_oracle
from tests.clause_mutants import recombined
from tests.mutated_scripts import changed_inputs, changed_query, changed_script, rows_of, statements
from tests.plain_sql import FOLDER, Suite, Way, read
from tests.test_property import Inputs

SCRIPTS = Path(__file__).parent / "scripts"
CASES, MANY_CASES = 50, 6000
QUERIES, MANY_QUERIES = 80, 8000
#: Seconds of processor time for one oracle, which computes every instant anew, and for one run.
PATIENCE = 4.0


class OutOfTime(Exception):
    """A changed window may hold more instants than the oracle can compute."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@cache
def text_cases() -> tuple[Case, ...]:
    """The cases that define a query, whatever of them is refused left out. The answer of a preference under a budget
    depends on the number of shards: those are drawn at random by tests of their own."""
    files = [file for file in SCRIPTS.rglob("*.cqltest") if file.parent.name != "preferences"]
    found = [parse_case(f.read_text(encoding="utf-8"), str(f.relative_to(SCRIPTS))) for f in files]
    return tuple(sorted((c for c in found if c.script and c.expects), key=lambda case: case.name))


@dataclass
class Tally:
    """What became of the changed cases. compared: queries with an answer; failed: both sides failed alike."""

    refused: int = 0
    compared: int = 0
    failed: int = 0
    too_long: int = 0
    problems: list[str] = field(default_factory=list)


def random_run(draw: random.Random) -> CaseRun:
    seed = draw.randrange(1000) if draw.random() < 0.6 else None
    return CaseRun(
        shards=draw.randint(1, 3),
        seed=seed,
        batch_rows=None if seed is not None else draw.choice((None, 1, 2, 3)),
        reload=draw.random() < 0.2,
        optimized=draw.random() < 0.8,
        guesses=draw.randrange(1000) if draw.random() < 0.5 else None,
        strategy=draw.choice((Strategy.PATTERN, Strategy.PATTERN, *Strategy)),
    )


@cache
def suites() -> tuple[Suite, ...]:
    return tuple(read(path) for path in sorted(FOLDER.glob("*.sqltest")))


def attempt(case: Case, draw: random.Random, tally: Tally) -> None:
    """Change `case` in some way and hold the runtime against the oracle."""
    script = case.script
    if draw.random() < 0.9:
        by_grammar = recombined(case.script, draw) if draw.random() < 0.5 else None
        script = by_grammar or changed_script(case.script, draw)
    run, drain, told = random_run(draw), draw.random() < 0.5, f"{case.name}\n{script}"
    try:
        bound = bind_script(script)
    except PenstockError:
        tally.refused += 1
        return
    except Exception as error:
        tally.problems.append(f"{told}\nis refused with {type(error).__name__}: {error}")
        return
    inputs = case_inputs(case, bound)
    arrivals = case_arrivals(case, bound)
    if arrivals is None and not any(map(_is_beyond_pairs, inputs.values())) and draw.random() < 0.6:
        sources = bound.catalog.sources.values()
        stamps = {s.name: s.columns.names[s.timestamp] for s in sources if s.timestamp is not None}
        inputs = changed_inputs(inputs, stamps, draw)
    shown = "\n".join(f"{name}: {rows_of(table)}" for name, table in inputs.items())
    try:
        _compare(bound.queries, inputs, arrivals, run, drain, tally)
    except OutOfTime:
        tally.too_long += 1
    except Exception as error:
        tally.problems.append(f"{told}{shown}\n{run}, drain={drain}\n{type(error).__name__}: {error}")


def _is_beyond_pairs(table: Any) -> bool:
    """Return whether the sum of doubles of a table may have more bits than a pair of doubles holds (106): what is left
    when the large ones have gone is then not exact (docs/decisions/exact-sums.md), and the oracle is."""
    return any(
        len(sizes) > 1 and max(sizes) / min(sizes) > 2.0**52
        for name, type_ in zip(table.schema.names, table.schema.types, strict=True)
        if pa.types.is_floating(type_)
        for sizes in [[abs(value) for value in table[name].to_pylist() if value and math.isfinite(value)]]
    )


def attempt_plain(draw: random.Random, tally: Tally) -> None:
    """Change a query of the plain suite; beside it stand its relations, or the streams of which they are windows."""
    suite = draw.choice(suites())
    asked, way = draw.choice(suite.queries), draw.choice((Way.STATIC, Way.UPDATED, Way.GROWING, Way.EXPIRING))
    streams = way in (Way.GROWING, Way.EXPIRING) and draw.random() < 0.5
    beside = [f"{relation.name}_rows" if streams else relation.name for relation in suite.relations]
    text, run, drain = changed_query(asked.text, beside, draw), random_run(draw), draw.random() < 0.5
    inputs = suite.inputs(way)
    if draw.random() < 0.4:
        inputs = changed_inputs(inputs, dict.fromkeys(inputs, "at_") if way is not Way.STATIC else {}, draw)
    told = f"{asked}, {way.value}\n{text}\n{ ({name: rows_of(table) for name, table in inputs.items()}) }"
    try:
        query = bind_query(text, suite.catalogs[way])
    except PenstockError:
        tally.refused += 1
        return
    except Exception as error:
        tally.problems.append(f"{told}\nis refused with {type(error).__name__}: {error}")
        return
    try:
        _compare((query,), inputs, None, run, drain, tally)
    except OutOfTime:
        tally.too_long += 1
    except Exception as error:
        tally.problems.append(f"{told}\n{run}, drain={drain}\n{type(error).__name__}: {error}")


def _compare(
    queries: Sequence[Query], inputs: Inputs, arrivals: Arrivals | None, run: CaseRun, drain: bool, tally: Tally
) -> None:
    for query in queries:
        expected: Answer | PenstockError
        with limited(PATIENCE):
            try:
                expected = run_oracle(query, inputs, drain, arrivals=arrivals)
            except PenstockError as error:
                expected = error
            except OverflowError:  # a date behind the year 9999, which Python has none for
                raise OutOfTime from None
        try:
            with limited(PATIENCE * 5):
                result = run.answer([query], inputs, drain, arrivals)
        except OutOfTime:
            raise AssertionError("the run takes far longer than the oracle") from None
        except PenstockError as error:
            code = expected.code if isinstance(expected, PenstockError) else "an answer"
            assert code == error.code, f"the run fails with {error.code}, the oracle has {code}: {error}"
            tally.failed += 1
            continue
        assert isinstance(expected, Answer), f"the oracle fails, the run does not: {expected}"
        assert_same(query, result.tables[query.name], expected)
        tally.compared += 1


def explore(attempts: Callable[[random.Random, Tally], None], count: int, seed: int) -> None:
    """Make `count` attempts, half of them with the sizes at which state changes its ways drawn small."""
    tally = Tally()
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        with thresholds.lowered(thresholds.small(number) if draw.random() < 0.5 else {}):
            attempts(draw, tally)
        if len(tally.problems) >= 5:
            break
    assert not tally.problems, "\n\n".join(tally.problems)
    assert tally.compared > tally.too_long and tally.refused, tally


def changed_case(draw: random.Random, tally: Tally) -> None:
    attempt(draw.choice(text_cases()), draw, tally)


@pytest.mark.timeout(600)
def test_changed_cases(case_count: int | None, case_seed: int | None) -> None:
    explore(changed_case, case_count or CASES, case_seed or 1)


@pytest.mark.timeout(600)
def test_changed_plain_queries(case_count: int | None, case_seed: int | None) -> None:
    explore(attempt_plain, case_count or QUERIES, case_seed or 1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_more_changed_cases(
    case_count: int | None, case_seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless told otherwise with a seed of the day, which a failure names by its script."""
    explore(changed_case, case_count or MANY_CASES, case_seed or dt.date.today().toordinal())


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_more_changed_plain_queries(
    case_count: int | None, case_seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    explore(attempt_plain, case_count or MANY_QUERIES, case_seed or dt.date.today().toordinal())


def test_statements_are_told_apart() -> None:
    assert statements("SELECT ';' AS a; -- no; statement\nSELECT `a;b` FROM t;") == [
        "SELECT ';' AS a",
        "SELECT `a;b` FROM t",
    ]
