"""STREAM's Linear Road script, whole, over a generated expressway: forty views that feed each other, and three answers.

The script is the Stanford group's own (`linearroad.script`); its data files are not, so `expressway.py` makes some.
There is no expected output: the oracle's is what counts.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest
from expressway import expressway
from stream_suite import SUITE, Script, read_script

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import Answer, run_oracle

pytestmark = pytest.mark.skipif(not SUITE.is_dir(), reason=f"no conformance suite at {SUITE}")

TOLLS, ACCIDENTS, BALANCES = "tollstr_out", "accnot_out", "accbal_out"


@cache
def script() -> Script:
    return read_script(SUITE / "linearroad.script")


@cache
def queries() -> dict[str, Query]:
    return {query.name: query for query in bind_script(script().text).queries}


@cache
def inputs() -> dict[str, pa.Table]:
    return {f"{name}_in": table for name, table in expressway().items()}


@cache
def answer(name: str) -> Answer:
    return run_oracle(queries()[name], inputs())


def test_the_script_is_read_whole() -> None:
    assert list(queries()) == script().queries == [TOLLS, ACCIDENTS, BALANCES]
    assert script().text.count("CREATE VIEW") > 35
    assert {f"{table.name}_in" for table in script().tables} == set(inputs())


def test_something_happens_on_the_road() -> None:
    """Otherwise equal answers would say little: tolls are charged and paid, and an accident is told."""
    tolls = {row[0]: row[2] for _, _, row in answer(TOLLS).events}
    assert len(tolls) >= 5
    assert min(tolls.values()) > 0
    assert answer(ACCIDENTS).events
    balances = [row[1] for _, _, row in answer(BALANCES).events]
    assert any(balance in tolls.values() for balance in balances)


@pytest.mark.parametrize(("shards", "seed"), [(1, None), (2, 1)], ids=["one batch", "cut, two shards"])
def test_every_answer_is_the_oracles(shards: int, seed: int | None) -> None:
    result = run_local(list(queries().values()), inputs(), shards=shards, seed=seed)
    for name, query in queries().items():
        assert_same(query, result.tables[name], answer(name))


def test_the_same_seed_makes_the_same_traffic() -> None:
    assert expressway(seed=3) == expressway(seed=3)
    assert expressway(seed=3) != expressway(seed=4)
