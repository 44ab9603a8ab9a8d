"""Random worlds: the local runtime answers as the oracle does, however its input is cut, and so do rewritten plans.

`--cases N` tries N cases per test, `--case-seed S` another sequence of them. A failure prints the shrunk case as a
`.cqltest` file, ready for `tests/scripts/`, and the run that fails.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.algebra import Algebra
from penstock.algebra.nodes.base import is_static
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.local.schedule import Arrivals
from penstock.testing.cases import CaseRun, case_arrivals, case_inputs, made_up, parse_case
from penstock.testing.compare import assert_same, first_difference, show_events
from penstock.testing.oracle import Answer, run_oracle
from penstock.testing.random.worlds import FLAVOURS, Flavour, RandomCase, random_case
from penstock.tree import walk

T = TypeVar("T")
Inputs = dict[str, pa.Table]
Check = Callable[[BoundScript, Inputs, Arrivals | None, CaseRun, bool], object]

CASES = 10
SOAK_CASES = 2000
SHRINK_SECONDS = 30


class Drawn:
    """`Choices` that Hypothesis draws, and shrinks toward the first alternatives."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self._draw(st.integers(0, len(options) - 1))]

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) >= 100 - percent


@st.composite
def worlds(draw: st.DrawFn, flavour: Flavour) -> tuple[RandomCase, CaseRun, bool]:
    """A case, a way to run it, and whether to drain."""
    choices = Drawn(draw)
    case = random_case(choices, flavour)
    seed = choices.integer(0, 1000) if choices.chance(70) else None
    rows = None if seed is not None else choices.pick((None, 1, 2, 3))
    guesses = choices.integer(0, 1000) if choices.chance(50) else None
    strategy = Strategy.PATTERN if choices.chance(60) else choices.pick(tuple(Strategy))
    thresholds = choices.integer(0, 1000) if choices.chance(50) else None
    run = CaseRun(
        choices.integer(1, 3), seed, rows, choices.chance(20), not choices.chance(20), guesses, strategy, thresholds
    )
    return case, run, choices.chance(50)


def explore(check: Check, flavour: Flavour, count: int, seed: int | None) -> None:
    """Try `check` on `count` random worlds."""

    told: dict[str, str] = {}
    first = 0.0

    def attempt(world: tuple[RandomCase, CaseRun, bool]) -> None:
        nonlocal first
        case, run, drain = world
        text = f"{run}, drain={drain}\n{case.render()}"
        # Shrinking stops in time: after that only what is known to fail fails.
        if text not in told and not (told and time.monotonic() > first + SHRINK_SECONDS):
            try:
                bound = bind_script("\n".join(case.statements))
                if case.origin and told_at_zero(bound):
                    return
                parsed = parse_case(case.render())
                check(bound, case_inputs(parsed, bound), case_arrivals(parsed, bound), run, drain)
            except Exception as error:
                first = first or time.monotonic()
                told[text] = f"{text}\n{type(error).__name__}: {error}"
        if text in told:
            raise AssertionError(told[text])

    test = settings(max_examples=count, derandomize=seed is None, phases=(Phase.generate, Phase.shrink))(
        given(worlds(flavour))(attempt)
    )
    if seed is not None:
        test = hypothesis.seed(seed)(test)
    test()


def told_at_zero(bound: BoundScript) -> bool:
    """Whether a stream of static relations alone is read, whose elements come at tick 0: far from all others the oracle
    would have to go through what lies between."""
    nodes = (node for query in bound.queries for node in walk(query.root) if isinstance(node, Algebra))
    return any(node.is_stream and is_static(node) for node in nodes)


def runtime_is_oracle(
    bound: BoundScript, inputs: Inputs, arrivals: Arrivals | None, run: CaseRun, drain: bool
) -> dict[str, Answer]:
    """Check the local runtime; return what the oracle answers, by query."""
    result = run.answer(bound.queries, inputs, drain, arrivals)
    answers = {query.name: run_oracle(query, inputs, drain, arrivals=arrivals) for query in bound.queries}
    for query in bound.queries:
        answer = answers[query.name]
        assert_same(query, result.tables[query.name], answer)
        for name, reasons in answer.rejected.items():
            assert dict(result.rejected.get(name, {})) == reasons, f"rejected of {name}: {result.rejected}"
        # A query knows only of its own sources.
        assert {name: result.late.get(name, 0) for name in answer.late} == dict(answer.late)
    return answers


def optimised_is_written(
    bound: BoundScript,
    inputs: Inputs,
    arrivals: Arrivals | None,
    run: CaseRun,
    drain: bool,
    answers: Mapping[str, Answer],
) -> None:
    """What is supposed of the sources decides between plans, and must not decide about answers. answers: of the queries
    as they are written."""
    known = Statistics() if run.guesses is None else made_up(bound.queries, run.guesses)
    for query in bound.queries:
        written = answers[query.name]
        plan = optimize(query.root, check=True, planning=run.strategy.planning(known))
        rewritten = run_oracle(query, inputs, drain, plan, arrivals)
        ts = first_difference(written.events, rewritten.events)
        shown = [show_events(answer.events, query.domain) for answer in (written, rewritten)]
        assert ts is None, "\n".join([f"differs at {ts}; written:", *shown[0], "rewritten:", *shown[1]])


def both_are_oracle(bound: BoundScript, inputs: Inputs, arrivals: Arrivals | None, run: CaseRun, drain: bool) -> None:
    optimised_is_written(bound, inputs, arrivals, run, drain, runtime_is_oracle(bound, inputs, arrivals, run, drain))


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: f.name)
def test_the_local_runtime_and_rewritten_plans_answer_as_the_oracle(
    flavour: Flavour, case_count: int | None, case_seed: int | None
) -> None:
    """Both of the same worlds: drawing one, binding it and its answers take as long as the two checks."""
    explore(both_are_oracle, flavour, case_count or CASES, case_seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: f.name)
def test_many_more_cases(flavour: Flavour, case_count: int | None, case_seed: int | None) -> None:
    """Unless told otherwise with a seed of the day, which a failure names by its case."""
    explore(both_are_oracle, flavour, case_count or SOAK_CASES, case_seed or dt.date.today().toordinal())
