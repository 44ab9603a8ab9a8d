"""A part of a plan with what planning knows of it: the plan of the queries that began together.

All of it follows from the queries and is computed once, when it is needed: most parts never share a step. The plan
itself is data that travels to workers, and has none of this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.algebra import Algebra
from penstock.physical.execution.progress import timed_names, timed_sources
from penstock.physical.plan.identity import note_keys, step_keys
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.sharing import Merges, PartSharing, SharableStep, ShareId, sharable_steps
from penstock.physical.planning.source_predicate import Conditions, conditions_of, conditions_without, predicates_of


@dataclass(frozen=True)
class _PartIndex:
    """What has to be known of a part to leave out queries.

    Args:
        places: of its queries, and of those that were left out before, in their order.
        steps: by query, the numbers of the steps that it needs.
        first: by step, the place of the first query that needs it; in the order of the steps.
        conditions: of the rows that its steps read.
        is_numbered: whether it has steps with equal keys.
    """

    places: Mapping[str, int]
    steps: Mapping[str, Sequence[int]]
    first: Mapping[int, int]
    conditions: Conditions
    is_numbered: bool

    @staticmethod
    def of(plan: Plan) -> _PartIndex:
        """Return the index of a part as it was planned."""
        places = {name: place for place, name in enumerate(plan.queries)}
        steps: dict[str, list[int]] = {name: [] for name in places}
        for step in plan.steps:
            for name in step.queries:
                steps[name].append(step.id)
        first = {step.id: min(places[name] for name in step.queries) for step in plan.steps}
        is_numbered = any("-" in key for key in step_keys(plan).values())
        return _PartIndex(places, steps, first, conditions_of(plan.steps), is_numbered)


@dataclass(frozen=True)
class _Sharable:
    """What is known of the sharable steps of a part.

    Args:
        steps: by their numbers, inputs first.
    """

    steps: Mapping[int, SharableStep]

    @cached_property
    def keeping(self) -> Sequence[SharableStep]:
        """Return those that have a past."""
        return [one for one in self.steps.values() if one.keeps]

    @cached_property
    def keys(self) -> Sequence[str]:
        """Return the keys of those that have a past."""
        return [one.key for one in self.keeping]

    @cached_property
    def readers(self) -> Mapping[int, Sequence[int]]:
        """Return, by number of a step, those that read it."""
        readers: dict[int, list[int]] = {}
        for number, one in self.steps.items():
            for edge in one.step.inputs:
                readers.setdefault(edge.step, []).append(number)
        return readers

    def behind(self, numbers: Iterable[int]) -> list[int]:
        """Return the steps with these numbers, and those that read them, inputs first."""
        found: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self.readers.get(number, ())
        # Consumers have larger numbers than their inputs.
        return sorted(found)


class PlannedPart:
    """The plan of the queries that began together, and what planning knows of it.

    Args:
        plan: shares nothing with others.
        nodes: by step, the relation or stream that it computes.
    """

    def __init__(self, plan: Plan, nodes: Mapping[int, Algebra]) -> None:
        self.plan, self.nodes = plan, nodes
        self._known_index: _PartIndex | None = None
        self._known_sharable: _Sharable | None = None
        #: The states of the steps with a past under the merges of the last call, and what is shared under them.
        self._last_sharing: tuple[list[str | None], PartSharing] | None = None

    # -- what it may share -------------------------------------------------------------------------------------

    @property
    def _sharable(self) -> _Sharable:
        if self._known_sharable is None:
            self._known_sharable = _Sharable(sharable_steps(self.plan, self.nodes))
        return self._known_sharable

    @property
    def sharable(self) -> Mapping[int, SharableStep]:
        """Return the steps that may be shared, by their numbers, inputs first."""
        return self._sharable.steps

    @property
    def keeping_keys(self) -> Sequence[str]:
        """Return the keys of the sharable steps that have a past."""
        return self._sharable.keys

    def sharing(self, merges: Merges) -> PartSharing:
        """Return what the part shares under some merges; only of steps that have been merged since the last call, and
        of those behind them, is it computed again."""
        sharable, last = self._sharable, self._last_sharing
        states = [*map(merges.get, sharable.keys)]
        if last is not None and last[0] == states:
            return last[1]
        ids: dict[int, ShareId] = {}
        twins: dict[int, tuple[ShareId, SharableStep]] = {}
        of_steps: dict[int, str] = {}
        concerned: Iterable[int] = sharable.steps
        if last is not None:
            moved = {key for key, was, now in zip(sharable.keys, last[0], states, strict=True) if was != now}
            concerned = sharable.behind(one.step.id for one in sharable.keeping if one.key in moved)
            ids, twins, of_steps = dict(last[1].ids), dict(last[1].twins), dict(last[1].states)
            for number in concerned:
                ids.pop(number, None), twins.pop(number, None), of_steps.pop(number, None)
        for number in concerned:
            one = sharable.steps[number]
            if any(edge.step not in ids for edge in one.step.inputs):
                continue
            below = {state for edge in one.step.inputs for state in ids[edge.step][2]}
            if one.keeps:
                twins[number] = (one.token, one.step.stage, tuple(sorted(below))), one
                state = merges.get(one.key)
                if state is None:
                    continue
                below.add(state)
                of_steps[number] = state
            ids[number] = one.token, one.step.stage, tuple(sorted(below))
        result = PartSharing(ids, twins, of_steps)
        self._last_sharing = states, result
        return result

    # -- a part of it ------------------------------------------------------------------------------------------

    def without(self, queries: Sequence[str]) -> PlannedPart | None:
        """Return the part as it is planned with some of its queries alone. Its steps keep their numbers and keys. None
        where it has to be planned again to know: of steps with equal keys the place determines which has which state
        (`step_keys`).

        Only the steps of the queries that go are looked into. The others are the same objects.

        Args:
            queries: those that stay, in their order.
        """
        if self._known_index is None:
            self._known_index = _PartIndex.of(self.plan)
        index, plan = self._known_index, self.plan
        places = [index.places[name] for name in queries]
        if index.is_numbered or places != sorted(places):
            return None
        gone = plan.queries.keys() - set(queries)
        by_id, first = dict(plan.by_id), dict(index.first)
        touched = dict.fromkeys(number for name in plan.queries if name in gone for number in index.steps[name])
        changed: list[int] = []
        for number in touched:
            step = by_id[number]
            users = step.queries - gone
            if users:
                by_id[number] = replace(step, queries=users)
                first[number] = min(map(index.places.__getitem__, users))
                changed.append(number)
            else:
                del by_id[number], first[number]
        # As they come when the queries are lowered one after the other; an input is needed by all that need its
        # readers.
        order = sorted(first, key=first.__getitem__)
        by_id = dict(zip(order, map(by_id.__getitem__, order), strict=True))
        conditions = conditions_without(index.conditions, by_id, [plan.step(n) for n in touched if n not in by_id])
        read = {name for query in gone for name in timed_sources(plan.queries[query].root)}
        unread = {name for name in read if not any(name in timed_names(plan.queries[q].root) for q in queries)}
        tables = {name for step in by_id.values() for name in step.spec.static_tables} if plan.statics else ()
        rest = Plan(
            tuple(by_id.values()),
            {name: plan.queries[name] for name in queries},
            {name: source for name, source in plan.sources.items() if name not in unread},
            {name: static for name, static in plan.statics.items() if name in tables},
            periods={name: plan.periods[name] for name in queries},
            source_predicates=predicates_of(conditions),
            grains=plan.grains,
            known_steps=by_id,
        )
        keys = step_keys(plan)
        note_keys(rest, dict(zip(order, map(keys.__getitem__, order), strict=True)))
        part = PlannedPart(rest, dict(zip(order, map(self.nodes.__getitem__, order), strict=True)))
        steps = {name: numbers for name, numbers in index.steps.items() if name not in gone}
        first = dict(zip(order, map(first.__getitem__, order), strict=True))
        part._known_index = _PartIndex(index.places, steps, first, conditions, False)
        part._take_sharing(self, changed)
        return part

    def _take_sharing(self, whole: PlannedPart, changed: Collection[int]) -> None:
        """Take over what is known of the steps that `whole`, a part with more queries, may share: it follows from what
        a step computes and from the steps below it.

        Args:
            changed: the numbers of the steps that are other objects there.
        """
        if whole._known_sharable is None:
            return
        steps, known = self.plan.by_id, whole.sharable
        found = {number: known[number] for number in steps if number in known}
        renewed = {number: replace(found[number], step=steps[number]) for number in changed if number in found}
        self._known_sharable = _Sharable(found | renewed)
        if whole._last_sharing is None:
            return
        states, former = whole._last_sharing
        of_keys = dict(zip(whole.keeping_keys, states, strict=True))
        twins = {number: twin for number, twin in former.twins.items() if number in steps}
        twins |= {number: (twins[number][0], one) for number, one in renewed.items() if number in twins}
        ids = {number: id_ for number, id_ in former.ids.items() if number in steps}
        names = {number: state for number, state in former.states.items() if number in steps}
        self._last_sharing = [*map(of_keys.get, self.keeping_keys)], PartSharing(ids, twins, names)
