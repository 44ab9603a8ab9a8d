"""Sharing across time: steps that queries of different births have in common become one [bulletin 2.2] [cidr 3.2].

The parts of a plan (`plan_parts.py`) are planned each by itself. Two steps of different parts are *twins* if they
compute the same, births left out, in one stage, and all their inputs are shared already. Of twins one is run, and the
consumers of the others read it.

Law: the answers of every query are those that it gives alone. Twins without memory have no past, so they are shared
always. Twins that remember the live tuples (`Memory.LIVE`) are merged when

- both are *mature*: time has gone on by their need since they began, so that every tuple which is live now, or will be,
  came after they did (`Algebra.needs`); one that has read its past is mature at once, and so is one that began with its
  sources;
- both are at one heartbeat: that of the sources below them. A query that also reads a slower source advances its steps
  later. What a twin emitted before the merge is in the state of its consumers, and what it would have emitted after it
  is what the other emits.

Twins that remember what came since a declaration (`Memory.DECLARED`: the checks of promises) are merged at once, into
the first of them: a query that begins later has checked nothing, and is to know what the others know.

A window store, a log of rows and a store of panes (`Spec.keeps_rows`) emit nothing; what their readers see is which
rows they have, each those of its own window. So two of them need not be at one heartbeat: one is merged into another
one that has all rows which its readers need, and which keeps them from then on. A query with a longer window than any
before it thus begins with a store of its own, which its past or time fills; when it is mature, it becomes the store of
all.

Where it ends, with a counter-example each:

- δ* of DISTINCT, over a window of 10 ticks: copies of x come at 85, 90 and 93. One twin emits x for [85, 95), and at 95
  for [95, 103). One that began at 86 emits x for [90, 100), and will for [100, 103): merged at 96 into the first, its
  consumers would lack that piece. Only operators are merged that emit what is valid now in one form, whatever was there
  before.
- A sum of DOUBLE is 0.1 + 0.2 - 0.2 + 0.3 for one twin and 0.1 + 0.3 for the other, and differs in the last bit: a
  consumer of the second that receives the first one's negative tuple does not find the row. Such sums are merged
  only where no row is retracted (RSTREAM), and nothing above them is.
- GROUP BY a DOUBLE shows -0.0 if that came first and has left since, 0.0 for a twin that began later.
- The first rows of each shard, where rows lie in the shards in which their senders put them: what came in several tasks
  for one twin came in one for the other that read it as its past. Each would retract rows that the other never had.
- Row windows of queries that began NOW: no length of time makes them mature.
- A volatile function draws again for each query.
- Of two stores for 10 and 20 ticks at 100, the shorter one has no row of 85. Merged into it, the longer reader would
  miss that row. The store of a reader at 100 has none of 85 either that a reader at 92 still needs for 10 ticks.
- SAMPLE of another percentage is another step. User-defined aggregates and WSTREAM remember more than live tuples.

What is merged is recorded by the keys of state (`physical/plan/identity.py`), as the state of the others is gone: a
restart plans every part by itself, and finds the merged steps again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.algebra import Algebra
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import Needs
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import AggregateCall, Expression
from penstock.physical.execution.progress import Progress, SourceProgress
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan, Step
from penstock.physical.plan.spec import Memory
from penstock.tree import Node

#: By the key of a step, the name of the state that it shares since it was merged: a key that one of the steps had which
#: share it; it stays while they do. Where the state lies under another key, that is at `MOVED` + name.
Merges = Mapping[str, str]
MOVED = "moved "


def state_of(key: str, merges: Merges) -> str:
    """Return the key under which the state of the step with a key lies."""
    name = merges.get(key, key)
    return merges.get(MOVED + name, name)


@dataclass(frozen=True)
class SharableStep:
    """A step that may be shared: it and all below it remember live tuples at most.

    Args:
        token: of what it computes, births left out.
        key: of its own state.
        needs: of what it computes, by source.
        memory: what of the past its output depends on.
    """

    step: Step
    token: str
    key: str
    needs: Needs
    memory: Memory

    @cached_property
    def ticks(self) -> int:
        """Return how long rows of a source matter to it, at most."""
        return max([need.ticks or 0 for need in self.needs.values()])

    @cached_property
    def keeps(self) -> bool:
        """Return whether it has a past, so that it is shared only when it is mature."""
        return self.memory is not Memory.NOTHING


@dataclass(frozen=True)
class Beginning:
    """What maturity depends on of the queries of one birth.

    Args:
        ahead: by source, the largest timestamp that was read before they began and which they have not seen; absent
            where they have seen everything that they need.
        begun: by source of `ahead`, a tick that is not before their first element of it; absent until one has come.
    """

    ahead: Mapping[str, int] = field(default_factory=dict)
    begun: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def cut_off(sources: Iterable[str], progress: Progress) -> Beginning:
        """Return the beginning of queries that see nothing of what has been read of `sources`."""
        highs = {name: progress.get(name, SourceProgress()).high for name in sources}
        return Beginning({name: high for name, high in highs.items() if high is not None})

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return the beginning as the record of an epoch has it."""
        return {"ahead": dict(self.ahead), "begun": dict(self.begun)}

    def after(self, progress: Progress) -> Beginning:
        """Return the same, at a later progress."""
        if len(self.begun) == len(self.ahead):
            return self
        waiting = [name for name in self.ahead if name not in self.begun]
        highs = {name: progress.get(name, SourceProgress()).high for name in waiting}
        came = {name: high for name, high in highs.items() if high is not None and high > self.ahead[name]}
        return replace(self, begun={**self.begun, **came}) if came else self

    def is_mature(self, needs: Needs, sources: Collection[str], heartbeat: int) -> bool:
        """Return whether a step over `sources` that needs `needs` has the state of one that was always there."""
        if any(name in self.ahead and name not in self.begun for name in sources):
            return False  # time has not begun for it
        for name in self.ahead.keys() & sources:
            need = needs.get(name)
            ticks = 0 if need is None else need.ticks
            if ticks is None or (need is not None and need.rows) or heartbeat - ticks < self.begun[name]:
                return False
        return True


@dataclass(frozen=True)
class Standing:
    """How far the sources and the queries of a plan are, between two rounds. queries: by query, its heartbeat."""

    progress: Progress
    queries: Mapping[str, int]

    def at_its_sources(self, step: Step, sources: Mapping[str, Source], queries: Iterable[str]) -> int | None:
        """Return the heartbeat of the sources below `step` if that is where `queries` have brought it, None else."""
        seen = [(sources[name], self.progress.get(name, SourceProgress())) for name in step.sources]
        if not seen or any(progress.ended for _, progress in seen):
            return None
        heartbeat = min(progress.heartbeat(source.slack) for source, progress in seen)
        return heartbeat if heartbeat == max(self.queries[query] for query in queries) else None

    def has_ended(self, sources: Iterable[str]) -> bool:
        """Return whether one of `sources` has ended."""
        return any(self.progress.get(name, SourceProgress()).ended for name in sources)


def sharable_steps(plan: Plan, nodes: Mapping[int, Algebra]) -> dict[int, SharableStep]:
    """Return the steps of a part that may be shared, by their numbers, inputs first.

    Args:
        nodes: by step, the relation or stream that it computes.
    """
    found: dict[int, SharableStep] = {}
    tokens, keys = step_keys(plan, births=False), step_keys(plan)
    closed: set[int] = set()
    for step in plan.steps:
        memory = step.spec.memory
        # What reads a rounded store may itself be rounded.
        is_rounded = step.spec.reads and memory is Memory.ROUNDED
        below = all(edge.step in found and (is_rounded or edge.step not in closed) for edge in step.inputs)
        if memory is Memory.HISTORY or not below or step.spec.answered is not None or _is_volatile(step.spec):
            continue
        if step.choices.owner or (step.spec.scanned is None and not step.inputs):
            continue
        found[step.id] = SharableStep(step, tokens[step.id], keys[step.id], nodes[step.id].needs, memory)
        if memory is Memory.ROUNDED:
            closed.add(step.id)
    return found


def _is_volatile(value: object) -> bool:
    if isinstance(value, (Expression, AggregateCall)):
        return volatile(value)
    if isinstance(value, (tuple, list, frozenset)):
        return any(map(_is_volatile, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Node)):
        return any(_is_volatile(getattr(value, one.name)) for one in dataclasses.fields(value))
    return False


#: What a shared step goes by: what it computes, in which stage, and on which merged states.
ShareId = tuple[str, int, tuple[str, ...]]


@dataclass(frozen=True)
class PartSharing:
    """What a part shares under some merges.

    Args:
        ids: of its shared steps, by their numbers.
        twins: by their numbers, its sharable steps with memory all of whose inputs are shared, each with what twins of
            it agree in.
        states: of its shared steps with memory, by their numbers, the names of their states.
    """

    ids: Mapping[int, ShareId]
    twins: Mapping[int, tuple[ShareId, SharableStep]]
    states: Mapping[int, str]
