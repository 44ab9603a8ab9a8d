"""One-time queries: the local runtime answers R at one instant as the oracle does, for the queries of all text cases
and for random ones, at instants before, within and after the input."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from test_property import explore

from penstock.errors import PenstockError
from penstock.language.scripts import BoundScript, SelectOnce, bind_script
from penstock.runtime.local.one_time import answer_once, answer_over
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.one_time import as_of, check_once, rows_of
from penstock.testing.oracle import run_oracle
from penstock.testing.random.worlds import FLAVOURS, Flavour

SCRIPTS = Path(__file__).parents[1] / "scripts"
CASES = [path for path in sorted(SCRIPTS.rglob("*.cqltest")) if path.parent.name not in ("errors", "one_time")]
#: An update past these cannot be walked through by the oracle instant by instant.
_LONG = 100_000


def _sometimes(bound: BoundScript, inputs: dict[str, pa.Table], name: str, within: int) -> None:
    """Answer the queries now, at instants of their answers, and at one before or behind these. within: how many of
    their instants."""
    draw = random.Random(name)
    for query in bound.queries:
        try:
            answer = run_oracle(query, inputs)
        except PenstockError:
            continue  # an error at some instant: which instants have one is tested elsewhere
        ticks = sorted({ts for ts, _, _ in answer.events})
        chosen = {None, *draw.sample(ticks, min(within, len(ticks)))}
        if ticks:
            chosen.add(draw.choice((ticks[0] - 1, (answer.final or 0) + draw.choice((1, 3)))))
        for tick in sorted(chosen, key=lambda t: (t is not None, t or 0)):
            check_once(as_of(query, tick), inputs)


@pytest.mark.spread(8)
@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_queries_of_the_text_cases_at_an_instant(path: Path) -> None:
    _check_case(path, 1)


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_queries_of_the_text_cases_at_many_instants(path: Path) -> None:
    _check_case(path, 20)


def _check_case(path: Path, within: int) -> None:
    case = parse_case(path.read_text(encoding="utf-8"), path.name)
    if case.arrivals:
        pytest.skip("a one-time query reads its inputs at once, without a clock")
    bound = bind_script(case.script)
    _sometimes(bound, case_inputs(case, bound), path.name, within)


def _random_world(bound: BoundScript, inputs: dict[str, pa.Table], arrivals: object, run: object, drain: bool) -> None:
    if arrivals is None:
        _sometimes(bound, inputs, str(len(inputs)), 2)


@pytest.mark.spread(2)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: f.name)
def test_random_queries_at_an_instant(flavour: Flavour, case_count: int | None, case_seed: int | None) -> None:
    explore(_random_world, flavour, case_count or 4, case_seed)


def test_the_same_relation_is_read_once() -> None:
    bound = bind_script(
        """CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
           INSERT INTO S VALUES (1, 1), (2, 2);
           SELECT x.a, y.a FROM S [RANGE 5 SECONDS] AS x, S [RANGE 5 SECONDS] AS y WHERE x.a < y.a"""
    )
    (action,) = bound.actions
    assert isinstance(action, SelectOnce)
    found = answer_once(action.query, action.memory, {})
    assert found.table.column_names == ["a", "a_1"] and rows_of(found.table) == [(1, 2)] and found.tick == 2


def test_no_rows_at_all() -> None:
    bound = bind_script(
        """CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
           SELECT a FROM S; SELECT COUNT(*) AS n, SUM(a) AS s FROM S [RANGE 1 SECOND]; SELECT a FROM S AS OF 7"""
    )
    answers = [answer_once(a.query, a.memory, {}) for a in bound.actions if isinstance(a, SelectOnce)]
    assert [rows_of(a.table) for a in answers] == [[], [(0, None)], []]
    assert [a.tick for a in answers] == [None, None, 7]


def test_system_time_is_stamped_when_it_is_read() -> None:
    bound = bind_script(
        """CREATE STREAM S (a INT) FROM MEMORY () SYSTEM TIME; INSERT INTO S VALUES (1), (2);
           SELECT SUM(a) AS s FROM S [RANGE 1 SECOND]"""
    )
    (action,) = bound.actions
    assert isinstance(action, SelectOnce)
    assert rows_of(answer_once(action.query, action.memory, {}).table) == [(3,)]


def test_an_answer_over_tables_has_the_declared_types() -> None:
    bound = bind_script(
        "CREATE STREAM S (ts TIMESTAMP, a DECIMAL(5,2)) FROM MEMORY () TIMESTAMP BY ts; SELECT a, ts FROM S LIMIT 3"
    )
    (action,) = bound.actions
    assert isinstance(action, SelectOnce)
    inputs = {
        "S": pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "a": pa.array([None], pa.decimal128(5, 2))})
    }
    assert answer_over(action.query, inputs).table.schema == action.query.output_schema
