"""Operators of one kind that advance in one call answer as each alone does."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution import executor
from penstock.physical.operators.base.contract import Operator
from penstock.physical.operators.base.owned_rows import OwnedRows, unshared
from penstock.physical.operators.joins.store_join import StoreJoin
from penstock.physical.operators.joins.window_store import StoreReader
from penstock.physical.operators.streams.changes import Changes
from penstock.physical.operators.updates import Updates
from penstock.runtime.live import LiveEngine
from penstock.testing.compare import events_of
from penstock.testing.thresholds import lowered

JOINT: tuple[type[Operator], ...] = (Updates, StoreJoin, Changes)
RELATIONS = 6
#: Relations whose rows are known by a key, by all columns, and by a key that is not replaced.
RULES = (
    "CREATE RELATION R{i} (ts INT, k INT, c VARCHAR, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND",
    "CREATE RELATION R{i} (ts INT, k INT, c VARCHAR, op VARCHAR) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND"
    " OPERATION BY op",
    "CREATE RELATION R{i} (ts INT, k INT, c VARCHAR, op VARCHAR, PRIMARY KEY (k)) FROM MEMORY ()"
    " TIMESTAMP BY ts UNIT SECOND OPERATION BY op",
)
QUERIES = (
    "SELECT S.k, S.a, R{i}.c FROM S [RANGE 4 SECONDS], R{i} WHERE S.k = R{i}.k",
    "SELECT S.k, S.a, R{i}.c FROM S [RANGE 9 SECONDS], R{i} WHERE S.k = R{i}.k",
    "SELECT S.k, S.a, R{i}.c FROM S [RANGE 1 SECONDS], R{i} WHERE S.k = R{i}.k",
    "SELECT R{i}.c, S.a FROM R{i}, S [RANGE 7 SECONDS] WHERE S.k = R{i}.k",
    "ISTREAM(SELECT S.k, S.a, R{i}.c FROM S [RANGE 4 SECONDS], R{i} WHERE S.k = R{i}.k)",
    "DSTREAM(SELECT S.k, S.a, R{i}.c FROM S [RANGE 4 SECONDS], R{i} WHERE S.k = R{i}.k)",
    "SELECT k, c FROM R{i}",
    "SELECT S.k, COUNT(*) AS n FROM S [RANGE 4 SECONDS], R{i} WHERE S.k = R{i}.k GROUP BY S.k",
    "SELECT S.k, S.a FROM S [RANGE 4 SECONDS], R{i} WHERE S.k = R{i}.k AND S.a <> 3",
)


class Run:
    """A drawn history of registrations and rows. joint: calls that advanced several operators, by class; errors: of
    such calls."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.events: dict[str, list[Any]] = {}
        self.joint: Counter[str] = Counter()
        self.errors: list[Exception] = []

    def go(self, rounds: int = 32) -> Run:
        draw = self.draw
        live = LiveEngine(draw.randint(1, 2))
        rules = [draw.choice(RULES) for _ in range(RELATIONS)]
        declared = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;" + "".join(
            f"{rule.format(i=i)};" for i, rule in enumerate(rules)
        )
        names = ", ".join(f"R{i}" for i in range(RELATIONS))
        for leaf in leaves(
            bind_script(f"{declared} CREATE QUERY q AS SELECT S.k FROM S [NOW], {names};").queries[0].root
        ):
            assert isinstance(leaf, Scan)
            live.declare(leaf.source)
        queries: dict[str, Query] = {}
        for second in range(1, rounds):
            if draw.random() < 0.9:
                count = draw.choice((0, 3, 30))
                rows = [[second] * count, *([draw.randrange(5) for _ in range(count)] for _ in range(2))]
                live.insert("S", _batch(rows, ["ts", "k", "a"]))
            for i, rule in enumerate(rules):
                if draw.random() < 0.8:
                    live.insert(f"R{i}", self._updates(second, rule))
            for name, table in live.round().items():
                self.events.setdefault(name, []).extend(events_of(queries[name], table))
            if draw.random() < 0.1:
                live = LiveEngine.restored(pickle.loads(pickle.dumps(live.snapshot())))
            if draw.random() < 0.5 and len(queries) < 12:
                name = f"q{second}"
                text = draw.choice((*QUERIES[:1] * 5, *QUERIES[1:3] * 2, *QUERIES)).format(i=draw.randrange(RELATIONS))
                queries[name] = bind_script(f"{declared} CREATE QUERY {name} AS {text};").queries[0]
                table = live.register(queries[name], Start(draw.choice((StartMode.WARM, StartMode.NOW))))
                self.events.setdefault(name, []).extend(events_of(queries[name], table))
            elif draw.random() < 0.1 and queries:
                name = draw.choice(sorted(queries))
                live.drop(name)
                del queries[name]
        return self

    def _updates(self, second: int, rule: str) -> pa.RecordBatch:
        draw, count = self.draw, self.draw.choice((1, 1, 2, 6))
        columns: list[list[Any]] = [[second] * count, [draw.choice((0, 1, 2, 3, 4, None)) for _ in range(count)]]
        columns.append([draw.choice(("x", "y", "it's", None)) for _ in range(count)])
        if "OPERATION" in rule:
            columns.append([draw.choice("++-") for _ in range(count)])
            return _batch(columns, ["ts", "k", "c", "op"])
        return _batch(columns, ["ts", "k", "c"])


def _batch(columns: Sequence[list[Any]], names: list[str]) -> pa.RecordBatch:
    types = {"c": pa.string(), "op": pa.string()}
    arrays = [pa.array(c, types.get(name, pa.int32())) for name, c in zip(names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


@contextmanager
def noted(run: Run) -> Iterator[None]:
    """Note joint calls in `run`."""
    before = {kind: kind.__dict__["advance_jointly"] for kind in JOINT}

    def watch(kind: type[Operator]) -> staticmethod[..., Any]:
        own = before[kind].__func__

        def advance(operators: Sequence[Operator], moments: Any) -> Any:
            try:
                advanced = own(operators, moments)
            except Exception as error:
                run.errors.append(error)
                raise
            run.joint[kind.__name__] += any(rows for rows in advanced.emitted.values())
            if kind is StoreJoin:
                readers = (one._readers.values() for place, one in enumerate(operators) if place in advanced.emitted)
                run.joint["several lengths"] += len({reader.length for both in readers for reader in both}) > 1
            return advanced

        return staticmethod(advance)

    for kind in JOINT:
        kind.advance_jointly = watch(kind)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind in JOINT:
            kind.advance_jointly = before[kind]  # type: ignore[method-assign]


def alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the run in which every operator advances by itself."""
    run = Run(seed)
    with monkeypatch.context() as patch, noted(run):
        patch.setattr(executor.JointTurns, "ready", lambda _self, first, _finished: [first])
        run.go()
    assert not run.joint
    return run


def _sorted(events: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {name: sorted(map(repr, found)) for name, found in events.items()}


@pytest.mark.spread(2)
@pytest.mark.parametrize("seed", range(1, 5))
def test_operators_answer_together_as_each_does_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(seed, monkeypatch)
    run = Run(seed)
    with noted(run):
        run.go()
    assert not run.errors and all(run.joint[kind.__name__] for kind in JOINT) and run.joint["several lengths"]
    assert _sorted(run.events) == _sorted(expected.events)
    assert sum(map(len, run.events.values())) > 100


@pytest.mark.parametrize("limit", (0, 3))
def test_operators_with_more_rows_advance_alone(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(7, monkeypatch)
    run = Run(7)
    places = ("physical.operators.updates.FEW_ROWS", "physical.operators.joins.store_join.FEW_ROWS")
    with lowered(dict.fromkeys(places, limit)), noted(run):
        run.go()
    assert not run.errors and _sorted(run.events) == _sorted(expected.events)


def test_a_round_with_many_results_is_left_to_each_join(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(8, monkeypatch)
    run = Run(8)
    with lowered({"physical.operators.joins.store_join._MOST_AT_ONCE": 5}), noted(run):
        run.go()
    assert not run.errors and _sorted(run.events) == _sorted(expected.events)


@pytest.mark.parametrize("most", (0, 12))
def test_rows_that_leave_windows_are_indexed_where_chains_are_long(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(10, monkeypatch)
    run, indexed = Run(10), Counter[str]()
    leaving = StoreReader.leaving

    def counted(reader: StoreReader, after: int, heartbeat: int) -> Any:
        indexed[str(reader.length)] += 1
        return leaving(reader, after, heartbeat)

    monkeypatch.setattr(StoreReader, "leaving", counted)
    with lowered({"physical.operators.joins.window_store._MOST_IN_CHAINS": most}), noted(run):
        run.go()
    assert not run.errors and _sorted(run.events) == _sorted(expected.events)
    assert len(indexed) > 2, indexed


@pytest.mark.spread(3)
@pytest.mark.parametrize("method", ("take", "split", "in_order", "fingerprints", "marked"))
def test_an_error_in_the_common_call_leaves_each_operator_as_it_was(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third call of a method fails: each operator then advances alone, and nothing is lost or done twice."""
    expected = alone(9, monkeypatch)
    run, calls = Run(9), Counter[str]()
    own = getattr(OwnedRows, method)

    def failing(*given: Any) -> Any:
        calls[method] += 1
        if calls[method] % 3 == 0:
            raise MemoryError("no memory")
        return own(*given)

    monkeypatch.setattr(OwnedRows, method, failing)
    with noted(run):
        run.go()
    assert run.errors
    assert _sorted(run.events) == _sorted(expected.events)


def test_rows_that_stay_do_not_keep_those_of_all_operators_in_memory() -> None:
    rows = Elements((pa.array(range(10_000)), pa.array(["x" * 100] * 10_000)), *(2 * [_numbers(10_000)]))
    (part, *_) = OwnedRows(rows, _numbers(10_000)).split(10_000)
    copied = unshared(part)
    assert sum(b.size for c in copied.columns for b in c.buffers() if b) < 1_000
    assert copied.ts.base is None


def _numbers(count: int) -> Any:
    return np.arange(count, dtype=np.int64)
