"""A call that advances several operators fails at any point: nothing is lost, done twice or answered wrongly."""

from __future__ import annotations

import inspect
import logging
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.physical.execution.flow_counts import FlowCounts
from penstock.physical.execution.step_failures import StepFailures
from penstock.physical.operators.base.contract import JointAdvance, Operator
from penstock.physical.operators.joins.store_join import StoreJoin
from penstock.runtime.live import LiveEngine
from penstock.runtime.monitoring.reports import ShardReport, report_from_json
from penstock.testing.compare import events_of
from tests.physical.test_joint_turns import JOINT, RULES, _batch

RELATIONS = 4
DECLARED = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;" + "".join(
    f"{RULES[(0, 0, 1, 1)[i]].format(i=i)};" for i in range(RELATIONS)
)
TEXTS = (
    *(f"SELECT S.k, S.a, R{i}.c FROM S [RANGE 4 SECONDS], R{i} WHERE S.k = R{i}.k" for i in range(RELATIONS)),
    "SELECT R1.c, S.a FROM R1, S [RANGE 7 SECONDS] WHERE S.k = R1.k",
    "DSTREAM(SELECT S.k, S.a, R2.c FROM S [RANGE 4 SECONDS], R2 WHERE S.k = R2.k)",
    "SELECT k, c FROM R1",
)
#: The round whose joint calls fail, and how many follow it.
FAILING, ROUNDS = 9, 16
Phase = Callable[..., Any]


def rows_of(live: LiveEngine, second: int) -> None:
    draw = random.Random(second)
    count = (3, 12)[second % 2]
    # Also rows that are further than the slowest source, which wait for their time.
    ts = [second + (second % 3 == 0) * draw.randrange(2) for _ in range(count)]
    live.insert(
        "S", _batch([sorted(ts), *([draw.randrange(4) for _ in range(count)] for _ in range(2))], ["ts", "k", "a"])
    )
    for i in range(RELATIONS):
        if second in (FAILING - 1, FAILING) or i != second % 5:
            size = draw.choice((1, 2, 4))
            columns: list[list[Any]] = [[second] * size, [draw.choice((0, 1, 2, 3, None)) for _ in range(size)]]
            columns.append([draw.choice(("x", "y", None)) for _ in range(size)])
            names = ["ts", "k", "c"]
            if i > 1:
                columns.append([draw.choice("++-") for _ in range(size)])
                names.append("op")
            live.insert(f"R{i}", _batch(columns, names))


def started() -> tuple[bytes, dict[str, Query]]:
    """An engine before the round whose calls fail."""
    live = LiveEngine(1)
    for leaf in leaves(
        bind_script(f"{DECLARED} CREATE QUERY q AS SELECT S.k FROM S [NOW], R0, R1, R2, R3;").queries[0].root
    ):
        assert isinstance(leaf, Scan)
        live.declare(leaf.source)
    queries = {
        f"q{i}": bind_script(f"{DECLARED} CREATE QUERY q{i} AS {text};").queries[0] for i, text in enumerate(TEXTS)
    }
    for query in queries.values():
        live.register(query, Start(StartMode.NOW))
    for second in range(1, FAILING):
        rows_of(live, second)
        live.round()
    return pickle.dumps(live.snapshot()), queries


class Failure:
    """Let call number `at` of any function within a phase of the joint calls of a class fail; None: count them."""

    def __init__(self, kind: type[Operator], phase: str, at: int | None) -> None:
        self.kind, self.phase, self.at, self.calls, self.failed = kind, phase, at, 0, False

    def within(self, phase: str, work: Callable[[], Any]) -> Any:
        if phase != self.phase or self.failed:
            return work()
        sys.setprofile(self._event)
        try:
            return work()
        finally:
            sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, arg: object) -> None:
        # A generator that goes on is no call; what it calls is.
        if event not in ("call", "c_call") or arg is sys.setprofile or frame.f_code.co_flags & inspect.CO_GENERATOR:
            return
        self.calls += 1
        if self.calls - 1 == self.at:
            self.failed = True
            raise MemoryError("no memory")


@contextmanager
def failing(failure: Failure | None) -> Iterator[None]:
    if failure is None:
        yield
        return
    before = failure.kind.__dict__["advance_jointly"]

    def advance(operators: Sequence[Operator], moments: Any) -> JointAdvance:
        advanced: JointAdvance = failure.within("compute", lambda: before.__func__(operators, moments))
        return JointAdvance(advanced.emitted, lambda: failure.within("settle", advanced.settle))

    failure.kind.advance_jointly = staticmethod(advance)  # type: ignore[method-assign]
    try:
        yield
    finally:
        failure.kind.advance_jointly = before  # type: ignore[method-assign]


def answers(state: bytes, queries: dict[str, Query], failure: Failure | None) -> dict[str, list[str]] | None:
    """The answers from the failing round on; None where the round has failed."""
    live = LiveEngine.restored(pickle.loads(state))
    found: dict[str, list[str]] = {name: [] for name in queries}
    for second in range(FAILING, ROUNDS):
        rows_of(live, second)
        try:
            with failing(failure if second == FAILING else None):
                tables = live.round()
        except MemoryError:
            return None
        for name, table in tables.items():
            found[name] += map(repr, events_of(queries[name], table))
    return {name: sorted(events) for name, events in found.items()}


def compare(kind: type[Operator], phase: str, start: int, every: int) -> Counter[str]:
    """Let each call fail in turn, from one of `every` on; return how often the round has failed, or answered right."""
    state, queries = started()
    expected = answers(state, queries, None)
    counted = Failure(kind, phase, None)
    assert expected is not None and answers(state, queries, counted) == expected
    found: Counter[str] = Counter()
    for at in range(start, counted.calls, every):
        failure = Failure(kind, phase, at)
        got = answers(state, queries, failure)
        assert failure.failed and (got is None or got == expected), f"call {at} of {counted.calls}"
        found["right" if got else "ended"] += 1
    return found


@pytest.mark.parametrize("kind", JOINT, ids=lambda kind: kind.__name__)
@pytest.mark.spread(128)
@pytest.mark.parametrize("start", range(128))
def test_a_failure_at_any_call_of_the_computation_changes_no_answer(kind: type[Operator], start: int) -> None:
    found = compare(kind, "compute", start, 128)
    assert found["right"] > 3 and not found["ended"]


@pytest.mark.parametrize("kind", JOINT, ids=lambda kind: kind.__name__)
@pytest.mark.spread(6)
@pytest.mark.parametrize("start", range(6))
def test_a_failure_while_state_is_exchanged_never_goes_unnoticed(kind: type[Operator], start: int) -> None:
    """What is half exchanged would answer wrongly: so the round fails, from where it is tried again or given up."""
    found = compare(kind, "settle", start, 6)
    assert found["ended"] and not found["right"]


def test_a_failure_while_state_is_exchanged_ends_the_queries_whose_state_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state, _ = started()
    live = LiveEngine.restored(pickle.loads(state))
    executors = [row[0] for row in live._job.stages]
    failures = StepFailures()
    before, concerned = StoreJoin.advance_jointly, set[int]()

    def failing_settle(operators: Sequence[StoreJoin], moments: Any) -> JointAdvance:
        def settle() -> None:
            raise MemoryError("no memory")

        advanced = before(operators, moments)
        concerned.update(id(operators[place]) for place in advanced.emitted)
        return JointAdvance(advanced.emitted, settle)

    monkeypatch.setattr(StoreJoin, "advance_jointly", staticmethod(failing_settle))
    executors = [row[0] for row in live._job.stages]
    operators = {step.id: one._operators[step.id] for one in executors for step in one._graph.steps}
    rows_of(live, FAILING)
    tables = live.round(failures=failures)
    steps = [step for step in live._job.plan.steps if id(operators.get(step.id)) in concerned]
    queries = {query for step in steps for query in step.queries}
    assert len(steps) == RELATIONS and failures.errors.keys() == queries < live._job.plan.queries.keys()
    assert {error.code for error in failures.errors.values()} == {"P0601"}
    # The last two queries read no join of four relations.
    assert {name for name, table in tables.items() if table.num_rows} <= {"q4", "q6"}


def test_a_failed_call_is_counted_and_each_cause_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state, _ = started()
    live = LiveEngine.restored(pickle.loads(state))
    causes = ["one"]

    def failing_call(operators: Sequence[StoreJoin], moments: Any) -> JointAdvance:
        raise MemoryError(causes[-1])

    monkeypatch.setattr(StoreJoin, "advance_jointly", staticmethod(failing_call))
    with caplog.at_level(logging.WARNING, "penstock.runtime"):
        for second in range(3):
            causes += ["another"] * (second == 2)
            rows_of(live, FAILING + second)
            live.round()
    run = live.figures().run
    counts = Counter[str]()
    for (key, _), work in run.work.items():
        counts[key] += work.joint_errors
    alike = {step.id for step in live._job.plan.steps if counts[run.keys[step.id]]}
    assert len(alike) == RELATIONS and max(counts[run.keys[n]] for n in alike) == 3
    assert {live._job.plan.step(n).spec.title for n in alike} == {"Join"}
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2 and "MemoryError: one" in logged[0] and "MemoryError: another" in logged[1]


def test_errors_of_joint_calls_travel_with_the_reports_of_tasks() -> None:
    counts = FlowCounts()
    counts.note_joint_error([3, 5], ValueError("x" * 1_000))
    report = report_from_json(ShardReport(1, 0, {}, {}, counts=counts).as_json())
    assert report.counts.joint_errors == counts.joint_errors
    assert counts.joint_errors.keys() == {3, 5} and len(counts.joint_errors[3]) == 500
