"""The summary of the state of a query before it runs: lines of text, and the same as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.base import Algebra, TimeModelWindow, operators
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.boundedness import Boundedness, Grade, together
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import SourceStatistics, Statistics, seconds
from penstock.deep_trees import deep
from penstock.errors import counted
from penstock.physical.plan.plan import Plan, Step
from penstock.physical.plan.state.state_parts import TIMES, StateInput, StatePart, width
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import planned
from penstock.physical.planning.state_size.parts import StepState
from penstock.storage.documents import Document

# --- Estimate the state of a plan before it runs: whether it is bounded, by what, and about how many bytes.
#
# `state_of` walks the steps of a plan; each spec returns the parts of state that its operator stores (`Spec.state`).
# Sizes follow from the estimates of the inputs (`algebra/properties/statistics.py`): rates, lengths of windows and
# numbers of distinct values; they are good for an order of magnitude. State bounded by the number of some values is as
# large as the statistics have these values; unbounded state is shown as it is after an hour.

#: What each step of a plan computes, by its number.
StepNodes = Mapping[int, Algebra] | Sequence[Algebra]


def state_of(plan: Plan, nodes: StepNodes, statistics: Statistics) -> tuple[StepState, ...]:
    """Return the steps of `plan` that store state; nodes: what each computes (`planner.planned`)."""
    computed: dict[int, StateInput] = {}
    steps = []
    fresh: set[int] = set()
    for step in plan.steps:
        inputs = tuple(computed[edge.step] for edge in step.inputs)
        output = _output(step, nodes[step.id], inputs, statistics)
        computed[step.id] = output
        parts = [by_promises(part, nodes[step.id], statistics) for part in step.spec.state(inputs, output)]
        arrives = any(edge.step in fresh for edge in step.inputs)
        if step.stage == 0 or (arrives and step.spec.forwards_early):
            fresh.add(step.id)
        if arrives and step.spec.holds_early:
            parts.append(_ahead(step, inputs, plan))
        parts = [part for part in parts if part.rows > 0]
        if parts:
            steps.append(StepState(step, tuple(parts)))
    return tuple(steps)


def by_promises(part: StatePart, node: Algebra, statistics: Statistics) -> StatePart:
    """Return state of a step that computes `node` with the bound by promises, where all rows of its stream that are
    stored end by these."""
    rates = {name: statistics.of(source).rate for name, source in declared_sources(node).items()}
    ended = [bound for bound in node.ended(lambda name: rates.get(name, 1.0)) if bound.source == part.bound.source]
    if part.bound.grade <= Grade.PROMISED or not ended or any(bound.grade > Grade.PROMISED for bound in ended):
        return part
    expected = [bound.rows for bound in ended if bound.rows is not None]
    rows = min(part.rows, sum(expected)) if len(expected) == len(ended) else part.rows
    nbytes = part.nbytes * rows / part.rows if part.rows else part.nbytes
    return replace(part, rows=rows, nbytes=nbytes, bound=together(ended))


def _output(step: Step, node: Algebra, inputs: tuple[StateInput, ...], statistics: Statistics) -> StateInput:
    output = step.spec.passed_on(inputs, StateInput(node, node.boundedness, estimate(node, statistics), step.types))
    lanes = step.spec.panes(inputs)
    if lanes is None or node.domain is None:
        return output
    # Elements that share group and interval are one: at most one per group and boundary.
    windows = (window for window in operators(node) if isinstance(window, TimeModelWindow) and window.judges_alone)
    period = max(seconds(window.slide or 0, node.domain) for window in windows)
    expected = output.expected
    rate = min(expected.rate, output.values(lanes.group) / period) if period else expected.rate
    elements = expected.rate / rate if rate else 1.0
    expected = Estimate(rate, expected.length, expected.distinct)
    return replace(output, expected=expected, lanes=lanes, elements=elements, period=period)


def _ahead(step: Step, inputs: Sequence[StateInput], plan: Plan) -> StatePart:
    """Return the elements that wait until the heartbeat has passed them: those within the slack of their source."""
    sources = [plan.sources[name] for name in sorted(step.sources) if plan.sources[name].slack]
    waits = max((seconds(s.slack, s.domain) for s in sources if s.domain), default=0.0)
    each = [(waits * child.expected.rate, width(child.types) + TIMES) for child in inputs]
    names = ", ".join(source.name for source in sources)
    return StatePart(
        "elements ahead of the heartbeat",
        sum(rows for rows, _ in each),
        sum(rows * nbytes for rows, nbytes in each),
        Boundedness(Grade.BOUNDED, f"ORDER WITHIN of {names}", length=waits),
    )


_GRADES = {
    Grade.FIXED: "bounded",
    Grade.BOUNDED: "bounded",
    Grade.PROMISED: "bounded by promises",
    Grade.KEYS: "bounded by values",
    Grade.UNBOUNDED: "unbounded",
}


@dataclass(frozen=True)
class QueryState:
    """The state that one query will store. rates: of its streams, (source, rows a second, whether the rate is
    known)."""

    query: str
    steps: tuple[StepState, ...]
    rates: tuple[tuple[str, float, bool], ...]

    @property
    def bound(self) -> Boundedness:
        return together(step.bound for step in self.steps)

    @property
    def bounded(self) -> bool:
        return self.bound.grade < Grade.UNBOUNDED

    @property
    def nbytes(self) -> float:
        return sum(step.nbytes for step in self.steps)

    @property
    def rows(self) -> float:
        return sum(step.rows for step in self.steps)

    @property
    def verdict(self) -> str:
        """Return such as `bounded by RANGE 10 SECOND of S; about 64.2 kB (S with 1 row/s, the default)`."""
        if not self.steps:
            return "none"
        bound = self.bound
        grade = {Grade.UNBOUNDED: "unbounded: it keeps", Grade.KEYS: "bounded only by"}.get(bound.grade, "bounded by")
        after = " after an hour" if bound.grade is Grade.UNBOUNDED else ""
        return f"{grade} {bound.by}; about {size_text(self.nbytes)}{after}{self._assumed}"

    @property
    def _assumed(self) -> str:
        rates = [
            f"{name} with {rate:g} {'row' if rate == 1 else 'rows'}/s{'' if known else ', the default'}"
            for name, rate, known in self.rates
        ]
        return f" ({'; '.join(rates)})" if rates else ""

    def text(self) -> str:
        """Return the verdict, then the parts of every operator; ends with a newline."""
        lines = [self.verdict, *([f"  hint: {self.bound.hint}"] if self.bound.hint else [])]
        for step in self.steps:
            for part in step.parts:
                size = f"{counted(part.rows, 'row')}, {size_text(part.nbytes)}"
                lines.append(f"  {step.name}: {part.what}, {size}; {_GRADES[part.bound.grade]}: {part.bound.by}")
        return "".join(f"{line}\n" for line in lines)

    def as_json(self) -> Document:
        bound = self.bound
        return {
            "bounded": _GRADES[bound.grade],
            "by": bound.by if self.steps else "",
            "hint": bound.hint,
            "rows": round(self.rows),
            "bytes": round(self.nbytes),
            "assumed": {name: {"rate": rate, "known": known} for name, rate, known in self.rates},
            "operators": [
                {
                    "operator": step.name,
                    "parts": [
                        {
                            "what": part.what,
                            "rows": round(part.rows),
                            "bytes": round(part.nbytes),
                            "bounded": _GRADES[part.bound.grade],
                            "by": part.bound.by,
                        }
                        for part in step.parts
                    ],
                }
                for step in self.steps
            ],
        }


@deep
def query_state(
    query: Query, statistics: Statistics, strategy: Strategy = Strategy.PATTERN, optimized: Algebra | None = None
) -> QueryState:
    """Return the state that `query` will keep when it runs alone. optimized: its plan, where that is known."""
    root = optimized or optimize(query.root, planning=strategy.planning(statistics))
    steps = state_of(*planned([replace(query, root=root)], statistics, strategy), statistics)
    sources = declared_sources(root)
    timed = [source for _, source in sorted(sources.items()) if not source.is_static]
    known = {
        name: found for name, found in statistics.sources.items() if found != SourceStatistics(distinct=found.distinct)
    }
    rates = tuple((s.name, statistics.of(s).rate, s.name.lower() in known) for s in timed)
    return QueryState(query.name, steps, rates)


@dataclass(frozen=True)
class JobState:
    """The estimated state of a whole job before it starts. horizons: by operator, the seconds of its time until its
    state has its full size, infinite where that does not follow from windows, though it is bounded; operators that may
    grow for ever are left out. unbounded: by query whose state has no bound, the state it stores."""

    horizons: Mapping[str, float]
    unbounded: Mapping[str, Boundedness]


def job_state(plan: Plan, nodes: StepNodes, statistics: Statistics) -> JobState:
    """Return the state of a plan from its steps (`planner.plan_part`): no query is planned again."""
    horizons: dict[str, float] = {}
    unbounded: dict[str, list[Boundedness]] = {}
    for step in state_of(plan, nodes, statistics):
        if step.bound.grade <= Grade.BOUNDED:
            horizons[step.name] = math.inf if step.horizon is None else step.horizon
        elif step.bound.grade is Grade.UNBOUNDED:
            for query in sorted(step.step.queries):
                unbounded.setdefault(query, []).append(step.bound)
    return JobState(horizons, {query: together(bounds) for query, bounds in unbounded.items()})


def size_text(nbytes: float) -> str:
    """Return a size such as `64.2 kB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.1f} TB"
