"""The parts of a plan under the merges of a version (`sharing.py`), kept from version to version.

Each shared step is in the first part that has it, and the others borrow it. A version changes the parts that come and
go, those that had a step of one of these or have it now, and those whose steps were merged. The others stay the same
objects, and nothing is found out again of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import itemgetter
from threading import RLock
from weakref import WeakKeyDictionary

from penstock.algebra.nodes.scans import Source
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Edge, Plan, Step
from penstock.physical.planning.plan_parts import joined, outlined
from penstock.physical.planning.planned_part import PlannedPart
from penstock.physical.planning.sharing import (
    MOVED,
    Merges,
    PartSharing,
    SharableStep,
    ShareId,
)

#: Steps that agree in something, each with the birth of its part, in order of birth.
_Group = list[tuple[int, SharableStep]]


@dataclass(frozen=True)
class _PartEntry:
    """A part of the last version. alone: with all its steps."""

    alone: PlannedPart
    sharing: PartSharing


@dataclass(frozen=True)
class _Made:
    """A part as the plan has it.

    Args:
        alone: with all its steps.
        borrowed, own: by the numbers in the part of the shared steps that are in another part, and in this one, the
            numbers that they have for all.
        states: of those with memory that are in this one, the names of their states.
        other: of all of these, the numbers that differ.
        plan: the part, without the steps that it borrows.
        steps: those of the plan, by their numbers in the part.
    """

    alone: Plan
    borrowed: Mapping[int, int]
    own: Mapping[int, int]
    states: Mapping[int, str]
    other: Mapping[int, int]
    plan: Plan
    steps: Mapping[int, Step]


class SharedParts:
    """The parts of the last version, and the numbers of the steps that they share; a number stays while any part has
    the step. A version that is not taken over does no harm: the next one is compared with it as with any other.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        #: By birth, in order of birth.
        self._entries: dict[int, _PartEntry] = {}
        #: By `id`, the birth of a part; and that of the part with the key of a step.
        self._births: dict[int, int] = {}
        self._keys: dict[str, int] = {}
        self._merges: dict[str, str] = {}
        #: By what a shared step goes by: the parts that have it, as pairs of birth and number of the step in the part,
        #: in order; the birth of the one in which it is; its number for all.
        self._users: dict[ShareId, list[tuple[int, int]]] = {}
        self._owners: dict[ShareId, int] = {}
        self._numbers: dict[ShareId, int] = {}
        #: By birth, the part as the plan has it, and the numbers of its shared steps by the names of their states.
        self._made: dict[int, Plan] = {}
        self._made_of: dict[int, _Made] = {}
        self._states: dict[int, dict[str, int]] = {}
        self._number_by_state: dict[str, int] = {}
        #: By what twins agree in, the steps; and the same of those of which there are several.
        self._twins: dict[ShareId, _Group] = {}
        self._several: dict[ShareId, _Group] = {}
        #: By number, a step that several parts need, with the queries of all.
        self._needed_by_all: dict[int, Step] = {}
        self._outline = Plan((), {}, {})
        #: By part, how it was made last; it may come again after a version that was not taken over.
        self._made_before: WeakKeyDictionary[PlannedPart, _Made] = WeakKeyDictionary()

    @property
    def sources(self) -> Mapping[str, Source]:
        """Return the timed sources of the parts."""
        return self._outline.sources

    def keys(self, parts: Sequence[PlannedPart], merges: Merges) -> AbstractSet[str]:
        """Return the keys of all sharable steps with a past."""
        with self._lock:
            self._update(parts, merges)
            return set(self._keys)

    def twins(self, parts: Sequence[PlannedPart], merges: Merges) -> list[list[SharableStep]]:
        """Return the groups of twins under some merges, in the order of the parts; a step without twins is in none."""
        with self._lock:
            self._update(parts, merges)
            return [[one for _, one in group] for group in self._several.values()]

    def plan(self, parts: Sequence[PlannedPart], merges: Merges) -> Plan:
        """See `shared_plan`."""
        with self._lock:
            self._update(parts, merges)
            names = [at.removeprefix(MOVED) for at in merges if at.startswith(MOVED)]
            numbers = {name: self._number_by_state[name] for name in names if name in self._number_by_state}
            moved = {number: merges[MOVED + name] for name, number in numbers.items()}
            made = [self._made[birth] for birth in self._entries]
            return joined(made, moved, self._outline, dict(self._needed_by_all))

    def _update(self, parts: Sequence[PlannedPart], merges: Merges) -> None:
        """Take over what parts share, if it is not what they shared in the last version."""
        news = [part for part in parts if id(part) not in self._births]
        # What a part shares follows from itself and from where its own states are merged.
        moved = {key for key, _ in merges.items() ^ self._merges.items()} if merges != self._merges else ()
        touched = {self._keys[key] for key in moved if key in self._keys}
        gone: list[int] = []
        if len(parts) - len(news) != len(self._entries):
            here = set(map(id, parts))
            gone = [birth for number, birth in self._births.items() if number not in here]
        entries = (
            {birth: entry for birth, entry in self._entries.items() if birth not in gone} if gone else {**self._entries}
        )
        changed: list[int] = []
        for part in (*news, *(entries[birth].alone for birth in touched if birth in entries)):
            (birth,) = part.plan.births
            sharing, known = part.sharing(merges), self._entries.get(birth)
            if known is None or known.alone is not part or known.sharing is not sharing:
                entries[birth] = _PartEntry(part, sharing)
                changed.append(birth)
        self._merges = dict(merges) if moved else self._merges
        if changed or gone:
            if news and [*entries] != sorted(entries):
                entries = dict(sorted(entries.items()))
            self._take(entries, changed, [birth for birth in gone if birth not in entries])

    def _take(self, entries: dict[int, _PartEntry], changed: Sequence[int], gone: Sequence[int]) -> None:
        replaced = [birth for birth in changed if birth in self._entries]
        concerned: list[ShareId] = []
        for birth in gone:
            concerned += self._exchange(birth, self._entries[birth], None)
        for birth in changed:
            concerned += self._exchange(birth, self._entries.get(birth), entries[birth])
        remade = set(changed)
        for id_ in dict.fromkeys(concerned):
            users = self._users[id_]
            if not users:
                del self._users[id_], self._owners[id_]
                self._needed_by_all.pop(self._numbers.pop(id_), None)
                continue
            users.sort()
            owner, number = users[0]
            self._numbers.setdefault(id_, number)
            former = self._owners.get(id_, owner)
            self._owners[id_] = owner
            if owner != former:
                remade |= {owner, former} & entries.keys()
        if gone or any(entries[birth].alone is not self._entries[birth].alone for birth in replaced):
            self._outline = outlined(entry.alone.plan for entry in entries.values())
        else:
            news = [entries[birth].alone.plan for birth in changed if birth not in self._entries]
            self._outline = outlined(news, self._outline)
        self._entries = entries
        self._make(remade, gone)
        for id_ in dict.fromkeys(concerned):
            if id_ in self._users:
                self._note_needed(id_)

    def _note_needed(self, id_: ShareId) -> None:
        """Note a shared step with the queries of all parts that need it."""
        number, (owner, *others) = self._numbers[id_], [birth for birth, _ in self._users[id_]]
        if not others:
            self._needed_by_all.pop(number, None)
            return
        step = self._made[owner].step(number)
        queries = step.queries.union(*(self._made[birth].borrowed[number] for birth in others))
        self._needed_by_all[number] = replace(step, queries=queries)

    def _exchange(self, birth: int, former: _PartEntry | None, entry: _PartEntry | None) -> Iterable[ShareId]:
        """Take over a part in place of `former`; return what those of its shared steps go by that differ."""
        if former is not None and (entry is None or entry.alone is not former.alone):
            del self._births[id(former.alone)]
        keys = set() if former is None else set(former.alone.keeping_keys)
        if entry is not None:
            self._births[id(entry.alone)] = birth
            present = set(entry.alone.keeping_keys)
            self._keys |= dict.fromkeys(present - keys, birth)
            keys -= present
        for key in keys:
            del self._keys[key]
        before, after = _sharing_in(former), _sharing_in(entry)
        lost = [(number, id_) for number, id_ in before.ids.items() if after.ids.get(number) != id_]
        come = [(number, id_) for number, id_ in after.ids.items() if before.ids.get(number) != id_]
        for number, id_ in lost:
            self._users[id_].remove((birth, number))
        for number, id_ in come:
            self._users.setdefault(id_, []).append((birth, number))
        self._exchange_twins(birth, before, after)
        found = [id_ for _, id_ in (*lost, *come)]
        if former is not None and entry is not None and former.alone is not entry.alone:
            # Fewer queries need a step.
            steps, ids = former.alone.plan.by_id, after.ids
            found += [ids[n] for n, step in entry.alone.plan.by_id.items() if steps.get(n) is not step and n in ids]
        return found

    def _exchange_twins(self, birth: int, before: PartSharing, after: PartSharing) -> None:
        twins, others = before.twins, after.twins
        touched = {twin[0]: None for number, twin in twins.items() if others.get(number) is not twin}
        touched |= {twin[0]: None for number, twin in others.items() if twins.get(number) is not twin}
        if not touched:
            return
        of_part: dict[ShareId, list[SharableStep]] = {id_: [] for id_ in touched}
        for id_, one in others.values():
            if id_ in touched:
                of_part[id_].append(one)
        for id_, some in of_part.items():
            group = [pair for pair in self._twins.get(id_, ()) if pair[0] != birth]
            self._set_twins(id_, sorted([*group, *((birth, one) for one in some)], key=itemgetter(0)))

    def _set_twins(self, id_: ShareId, group: _Group) -> None:
        for groups, least in ((self._twins, 1), (self._several, 2)):
            if len(group) < least:
                groups.pop(id_, None)
            else:
                groups[id_] = group

    def _make(self, remade: Iterable[int], gone: Iterable[int]) -> None:
        """Rebuild the parts that were born at `remade`. gone: births of parts that are left out."""
        for birth in gone:
            del self._made[birth], self._made_of[birth]
        for birth in (*gone, *remade):
            for name in self._states.pop(birth, {}):
                self._number_by_state.pop(name, None)
        for birth in remade:
            self._made[birth], self._states[birth] = self._made_part(birth)
        for birth in remade:
            self._number_by_state |= self._states[birth]

    def _made_part(self, birth: int) -> tuple[Plan, dict[str, int]]:
        """Return a part as the plan has it; and by the names of the states that it has for all, the numbers of their
        steps."""
        entry = self._entries[birth]
        numbers, users, me = self._numbers, self._users, birth
        ids = entry.sharing.ids
        owned = {number: users[id_][0] == (me, number) for number, id_ in ids.items()}
        borrowed = {number: numbers[id_] for number, id_ in ids.items() if not owned[number]}
        own = {number: numbers[id_] for number, id_ in ids.items() if owned[number]}
        states = {number: name for number, name in entry.sharing.states.items() if number in own}
        known = self._made_before.get(entry.alone)
        if known is None or (known.borrowed, known.own, known.states) != (borrowed, own, states):
            known = _made(entry.alone.plan, borrowed, own, states, known or self._made_of.get(birth))
            self._made_before[entry.alone] = known
        self._made_of[birth] = known
        return known.plan, {name: own[number] for number, name in states.items()}


def shared_plan(parts: Sequence[PlannedPart], merges: Merges, shared: SharedParts) -> Plan:
    """Return the plan of all parts, in which each shared step is in one of them, the first that has it.

    A part that borrows the same steps as before, under the same numbers, is the same object, wherever their states lie.

    Args:
        parts: in the order of their births, each with all its steps.
        shared: those of the version before; they are brought up to date.
    """
    return shared.plan(parts, merges)


_NOTHING_SHARED = PartSharing({}, {}, {})


def _sharing_in(entry: _PartEntry | None) -> PartSharing:
    return _NOTHING_SHARED if entry is None else entry.sharing


def _made(
    part: Plan, borrowed: dict[int, int], shared_steps: dict[int, int], states: dict[int, str], former: _Made | None
) -> _Made:
    """Return a part without the steps that it borrows.

    Args:
        borrowed: by the number of such a step in the part, the number that it has for all.
        shared_steps: the same of those shared steps that stay in the part.
        states: of those of them with memory, by their numbers in the part, the names of their states.
        former: the part as it was, whose steps stay the same objects where nothing of them differs.
    """
    numbers, keys = {**shared_steps, **borrowed}, step_keys(part)
    other = {old: number for old, number in numbers.items() if old != number}
    if not borrowed and not other and all(keys[number] == name for number, name in states.items()):
        return _Made(part, borrowed, shared_steps, states, other, part, part.by_id)
    known: Mapping[int, Step] = {}
    if former is not None:
        differ = {old for old, _ in other.items() ^ former.other.items()}
        steps, here = former.alone.by_id, former.steps
        known = {n: here[n] for n, step in part.by_id.items() if n in here and steps[n] is step}
        if differ:
            known = {
                n: step
                for n, step in known.items()
                if n not in differ and not any(edge.step in differ for edge in steps[n].inputs)
            }
    own = {
        n: known[n] if n in known else _renumbered(step, other) for n, step in part.by_id.items() if n not in borrowed
    }
    plan = replace(
        part,
        steps=tuple(own.values()),
        keys={other.get(n, n): states.get(n, keys[n]) for n in own},
        borrowed={number: part.step(old).queries for old, number in borrowed.items()},
        alone=part,
    )
    return _Made(part, borrowed, shared_steps, states, other, plan, own)


def _renumbered(step: Step, numbers: Mapping[int, int]) -> Step:
    inputs = tuple(Edge(numbers.get(edge.step, edge.step), edge.exchange) for edge in step.inputs)
    number = numbers.get(step.id, step.id)
    return step if number == step.id and inputs == step.inputs else replace(step, id=number, inputs=inputs)
