"""EXPLAIN SHARING: which steps a query has in common with others, which nearly and why not, and what that saves.

A step of the query is *shared* if others read it too, *equal* if others have one that computes the same and which is
not merged with it, and *near* if they have one that differs in lengths, grains and predicates alone, its own or below
it. A query that is not registered is planned as it would be now; it shares what others have that has no past at once,
the rest when it has caught up or its windows have passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source, over_sources
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.control.entities.system import SystemView
from penstock.physical.plan.identity import near_keys, step_keys
from penstock.physical.plan.plan import Plan, Step
from penstock.physical.plan.spec import Memory, Ticks
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import Generation, choices_of, grains_of, plan_part
from penstock.storage.documents import Document

_HISTORY = "what it emits depends on more than its live rows"
_ROUNDED = "its input is rounded floating point, which differs in its last bits"
_INPUTS = "its inputs are not shared"
_IMMATURE = "one of the two has not seen all of its windows yet, or is not as far; they are merged with a later change"


@dataclass(frozen=True)
class SharedStep:
    """A step of a query.

    Args:
        others: the other queries that use it, or have one like it.
        why: why it is not shared, empty if it is.
        nbytes, seconds: its state and its work, where they are measured.
    """

    kind: str
    parameters: str
    stage: int
    others: tuple[str, ...]
    why: str = ""
    nbytes: int | None = None
    seconds: float | None = None

    def as_json(self) -> Document:
        return {
            "kind": self.kind,
            "parameters": self.parameters,
            "stage": self.stage,
            "queries": list(self.others),
            "why": self.why or None,
            "state_bytes": self.nbytes,
            "seconds": self.seconds,
        }

    @property
    def text(self) -> str:
        shown = f"{self.kind} (stage {self.stage}{'; ' if self.parameters else ''}{self.parameters})"
        size = f", {self.nbytes} bytes" if self.nbytes else ""
        return f"  {shown} with {', '.join(self.others)}{size}{': ' if self.why else ''}{self.why}"


@dataclass(frozen=True)
class SharingReport:
    """What a query shares. own: how many steps are like none of others; is_registered: it runs, and what it saves is
    measured."""

    query: str
    is_registered: bool
    shared: Sequence[SharedStep] = ()
    equal: Sequence[SharedStep] = ()
    near: Sequence[SharedStep] = ()
    own: int = 0

    @property
    def saved_bytes(self) -> int:
        """Return how much more state there would be if the query had its own copy of what it shares: all of it. A query
        that is not registered would share it."""
        return sum(step.nbytes or 0 for step in self.shared)

    @property
    def saved_seconds(self) -> float:
        return sum(step.seconds or 0.0 for step in self.shared)

    def as_json(self) -> Document:
        return {
            "query": self.query,
            "registered": self.is_registered,
            "shared": [step.as_json() for step in self.shared],
            "equal": [step.as_json() for step in self.equal],
            "near": [step.as_json() for step in self.near],
            "own_steps": self.own,
            "saved_bytes": self.saved_bytes,
            "saved_seconds": self.saved_seconds,
        }

    @property
    def text(self) -> str:
        titles = ("shared:" if self.is_registered else "would be shared:", "equal, not shared:", "nearly the same:")
        lines: list[str] = []
        for title, steps in zip(titles, (self.shared, self.equal, self.near), strict=True):
            lines += [title, *(step.text for step in steps)] if steps else []
        lines.append(f"steps like none of another query: {self.own}")
        lines.append(f"saved by sharing: {self.saved_bytes} bytes of state, {self.saved_seconds:.3f} s of work so far")
        return "\n".join(lines)


@dataclass
class _Steps:
    """The steps of a plan, by what they compute."""

    plan: Plan
    tokens: Mapping[int, str]
    near: Mapping[int, str]
    by_id: Mapping[int, Step] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = {step.id: step for step in self.plan.steps}

    @staticmethod
    def of(plan: Plan) -> _Steps:
        # Equal steps of one plan are numbered; here they are the same.
        tokens = {number: key.partition("-")[0] for number, key in step_keys(plan, births=False).items()}
        return _Steps(plan, tokens, near_keys(plan))

    def varying(self, step: Step) -> dict[str, str]:
        """Return the lengths, grains and predicates of a step and of what is below it in its stage or the ingest."""
        found: dict[str, set[str]] = {}
        waiting = [step]
        while waiting:
            one = waiting.pop()
            inputs = [self.by_id[edge.step] for edge in one.inputs]
            waiting += inputs
            if one.spec.varying:
                domain = next((self.plan.sources[name].domain for name in sorted(one.sources)), None)
                for name, value in one.spec.describe().items():
                    parts = value if isinstance(value, tuple) else (value,)
                    ticks = [part.show(domain) for part in parts if isinstance(part, Ticks)]
                    if ticks or value == "unbounded":
                        found.setdefault(name.removesuffix("s"), set()).update(ticks or ["unbounded"])
            if one.spec.condition is not None:
                shown = one.spec.expressions_text([below.names for below in inputs], one.names)
                found.setdefault("predicate", set()).update(shown.values())
        return {name: ", ".join(sorted(values)) for name, values in found.items()}


def sharing_of(view: SystemView, query: Query, is_registered: bool, name: str = "") -> SharingReport:
    """Return what a query shares with those that run.

    Args:
        name: of a registered query, as it was declared; by default that of `query`.
    """
    name = name or query.name
    running = view.figures.run.plan
    there = None if running is None else _Steps.of(running)
    if is_registered:
        mine = there
        steps = [] if running is None else [step for step in running.steps if name in view.readers[step.id]]
    else:
        mine = _Steps.of(_planned(query, running))
        steps = list(mine.plan.steps)
    if mine is None or there is None:
        return SharingReport(name, is_registered, own=len(steps))
    report = _Report(view, name, mine, there, is_registered)
    for step in steps:
        if step.spec.answered is None:
            report.add(step)
    return SharingReport(name, is_registered, report.shared, report.equal, report.near, report.own)


def _planned(query: Query, running: Plan | None) -> Plan:
    """Return the plan of a query beside those that run, over their sources: an engine reads posted rows from where it
    keeps them."""
    sources: Mapping[str, Source] = {} if running is None else running.sources
    standing = () if running is None else choices_of(running)
    statistics, strategy = Statistics(), Strategy.PATTERN
    root = optimize(over_sources(query.root, sources), planning=strategy.planning(statistics))
    ready = replace(query, root=root)
    grains = grains_of([ready], statistics, strategy, live=True, standing=standing)
    generation = Generation(-1, [ready], statistics, grains)
    return plan_part(generation, strategy).plan


class _Report:
    """The steps of a query as they are looked at, inputs first."""

    def __init__(self, view: SystemView, name: str, mine: _Steps, there: _Steps, is_registered: bool) -> None:
        self._view, self._name, self._mine, self._there, self._is_registered = view, name, mine, there, is_registered
        self.shared: list[SharedStep] = []
        self.equal: list[SharedStep] = []
        self.near: list[SharedStep] = []
        self.own = 0
        #: Those of its steps that are shared, with the others that use them.
        self._others: dict[int, frozenset[str]] = {}

    def add(self, step: Step) -> None:
        others = self._users([step]) if self._is_registered else ()
        if others:
            self._share(step, others, step)
            return
        token, stage = self._mine.tokens[step.id], step.stage
        twins = [
            one
            for one in self._there.plan.steps
            if self._there.tokens[one.id] == token and one.stage == stage and (one is not step) and self._users([one])
        ]
        if twins:
            why = self._obstacle(step, twins)
            if not why and not self._is_registered:
                self._share(step, self._users(twins), twins[0])
            else:
                self.equal.append(self._shown(step, self._users(twins), why or _IMMATURE))
            return
        near = self._near(step)
        if near:
            self.near.append(self._shown(step, self._users(near), self._difference(step, near[0])))
        else:
            self.own += 1

    def _share(self, step: Step, others: tuple[str, ...], measured: Step) -> None:
        self._others[step.id] = frozenset(others)
        self.shared.append(self._shown(step, others, "", measured))

    def _users(self, steps: Iterable[Step]) -> tuple[str, ...]:
        """Return the other queries that use some of the running steps."""
        found = {name for step in steps for name in self._view.readers[step.id]}
        return tuple(sorted(found - {self._name} if self._is_registered else found))

    def _obstacle(self, step: Step, twins: Sequence[Step]) -> str:
        """Return why a step can never be merged with what computes the same; empty if it can."""
        if step.spec.memory is Memory.HISTORY:
            return _HISTORY
        reads_rounded = step.spec.reads and step.spec.memory is Memory.ROUNDED
        below = (self._mine.by_id[edge.step].spec.memory for edge in step.inputs)
        if not reads_rounded and Memory.ROUNDED in below:
            return _ROUNDED
        users = set(self._users(twins))
        if any(not users & self._others.get(edge.step, frozenset()) for edge in step.inputs):
            return _INPUTS
        return ""

    def _near(self, step: Step) -> list[Step]:
        """Return steps of others that differ in lengths, grains or predicates alone; of windows and selections, those
        of the same kind."""
        key = self._mine.near[step.id]
        kind = type(step.spec)
        return [
            one
            for one in self._there.plan.steps
            if self._there.near[one.id] == key
            and type(one.spec) is kind
            and one.stage == step.stage
            and one is not step
            and self._users([one])
        ]

    def _difference(self, step: Step, other: Step) -> str:
        mine, theirs = self._mine.varying(step), self._there.varying(other)
        found = [
            f"{name} {mine.get(name, 'none')} here, {theirs.get(name, 'none')} there"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]
        return "; ".join(found) or _INPUTS

    def _shown(self, step: Step, others: tuple[str, ...], why: str, measured: Step | None = None) -> SharedStep:
        run, source = self._view.figures.run, measured if measured is not None else step
        key = run.keys.get(source.id) if measured is not None or self._is_registered else None
        state = None if key is None else self._view.state_of_steps.get(key)
        seconds = None if key is None else self._view.seconds_of_steps.get(key)
        domain = next((self._mine.plan.sources[name].domain for name in sorted(step.sources)), None)
        shown = []
        for name, value in step.spec.describe().items():
            parts = value if isinstance(value, tuple) else (value,)
            if any(parts):
                shown.append(f"{name}: " + ", ".join(p.show(domain) if isinstance(p, Ticks) else p for p in parts))
        return SharedStep(
            step.spec.title, "; ".join(shown), step.stage, others, why, None if state is None else state[1], seconds
        )
