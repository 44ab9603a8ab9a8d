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

from penstock.algebra.nodes.scans import Source
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Edge, Plan, Step
from penstock.physical.planning.plan_parts import joined, outlined
from penstock.physical.planning.sharing import (
    MOVED,
    Merges,
    PartSharing,
    SharableStep,
    ShareId,
    keeping_keys,
    sharing_of,
)

#: Steps that agree in something, each with the birth of its part, in order of birth.
_Group = list[tuple[int, SharableStep]]


@dataclass(frozen=True)
class _PartEntry:
    """A part of the last version. alone: with all its steps."""

    alone: Plan
    sharing: PartSharing


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
        self._states: dict[int, dict[str, int]] = {}
        self._number_by_state: dict[str, int] = {}
        #: By what twins agree in, the steps; and the same of those of which there are several.
        self._twins: dict[ShareId, _Group] = {}
        self._several: dict[ShareId, _Group] = {}
        #: By number, a step that several parts need, with the queries of all.
        self._needed_by_all: dict[int, Step] = {}
        self._outline = Plan((), {}, {})

    @property
    def sources(self) -> Mapping[str, Source]:
        """Return the timed sources of the parts."""
        return self._outline.sources

    def keys(self, parts: Sequence[Plan], merges: Merges) -> AbstractSet[str]:
        """Return the keys of all sharable steps with a past."""
        with self._lock:
            self._update(parts, merges)
            return set(self._keys)

    def twins(self, parts: Sequence[Plan], merges: Merges) -> list[list[SharableStep]]:
        """Return the groups of twins under some merges, in the order of the parts; a step without twins is in none."""
        with self._lock:
            self._update(parts, merges)
            return [[one for _, one in group] for group in self._several.values()]

    def plan(self, parts: Sequence[Plan], merges: Merges) -> Plan:
        """See `shared_plan`."""
        with self._lock:
            self._update(parts, merges)
            names = [at.removeprefix(MOVED) for at in merges if at.startswith(MOVED)]
            numbers = {name: self._number_by_state[name] for name in names if name in self._number_by_state}
            moved = {number: merges[MOVED + name] for name, number in numbers.items()}
            parts = [self._made[birth] for birth in self._entries]
            return joined(parts, moved, self._outline, dict(self._needed_by_all))

    def _update(self, parts: Sequence[Plan], merges: Merges) -> None:
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
            (birth,) = part.births
            sharing, known = sharing_of(part, merges), self._entries.get(birth)
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
        concerned = [id_ for birth in (*gone, *replaced) for id_ in self._forget(birth)]
        concerned += [id_ for birth in changed for id_ in self._add(birth, entries[birth])]
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
            self._outline = outlined(entry.alone for entry in entries.values())
        else:
            news = [entries[birth].alone for birth in changed if birth not in self._entries]
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

    def _forget(self, birth: int) -> Iterable[ShareId]:
        """Leave out a part; return what its shared steps go by."""
        entry = self._entries[birth]
        del self._births[id(entry.alone)]
        for key in keeping_keys(entry.alone):
            del self._keys[key]
        for number, id_ in entry.sharing.ids.items():
            self._users[id_].remove((birth, number))
        for id_, _ in entry.sharing.twins:
            self._set_twins(id_, [pair for pair in self._twins.get(id_, ()) if pair[0] != birth])
        return entry.sharing.ids.values()

    def _add(self, birth: int, entry: _PartEntry) -> Iterable[ShareId]:
        """Add a part; return what its shared steps go by."""
        self._births[id(entry.alone)] = birth
        self._keys |= dict.fromkeys(keeping_keys(entry.alone), birth)
        for number, id_ in entry.sharing.ids.items():
            self._users.setdefault(id_, []).append((birth, number))
        for id_, one in entry.sharing.twins:
            self._set_twins(id_, sorted([*self._twins.get(id_, ()), (birth, one)], key=itemgetter(0)))
        return entry.sharing.ids.values()

    def _set_twins(self, id_: ShareId, group: _Group) -> None:
        for groups, least in ((self._twins, 1), (self._several, 2)):
            if len(group) < least:
                groups.pop(id_, None)
            else:
                groups[id_] = group

    def _make(self, remade: Iterable[int], gone: Iterable[int]) -> None:
        """Put together anew the parts that were born at `remade`. gone: births of parts that are left out."""
        for birth in gone:
            del self._made[birth]
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
        borrowed: dict[int, int] = {}
        own: dict[int, int] = {}
        for number, id_ in entry.sharing.ids.items():
            is_first = self._users[id_][0] == (birth, number)
            (own if is_first else borrowed)[number] = self._numbers[id_]
        states = {number: name for number, name in entry.sharing.states.items() if number in own}
        known: tuple[object, Plan] | None = entry.alone.__dict__.get("_shared")
        if known is None or known[0] != (borrowed, own, states):
            known = (borrowed, own, states), _sharing(entry.alone, borrowed, own, states)
            entry.alone.__dict__["_shared"] = known
        return known[1], {name: own[number] for number, name in states.items()}


def shared_plan(parts: Sequence[Plan], merges: Merges, shared: SharedParts) -> Plan:
    """Return the plan of all parts, in which each shared step is in one of them, the first that has it.

    A part that borrows the same steps as before, under the same numbers, is the same object, wherever their states lie.

    Args:
        parts: in the order of their births, each with all its steps.
        shared: those of the version before; they are brought up to date.
    """
    return shared.plan(parts, merges)


def _sharing(
    part: Plan, borrowed: Mapping[int, int], shared_steps: Mapping[int, int], states: Mapping[int, str]
) -> Plan:
    """Return a part without the steps that it borrows.

    Args:
        borrowed: by the number of such a step in the part, the number that it has for all.
        shared_steps: the same of those shared steps that stay in the part.
        states: of those of them with memory, by their numbers in the part, the names of their states.
    """
    numbers, keys = {**shared_steps, **borrowed}, step_keys(part)
    is_as_alone = not borrowed and all(old == number for old, number in numbers.items())
    if is_as_alone and all(keys[number] == name for number, name in states.items()):
        return part
    own = [step for step in part.steps if step.id not in borrowed]
    return replace(
        part,
        steps=tuple(_renumbered(step, numbers) for step in own),
        keys={numbers.get(step.id, step.id): states.get(step.id, keys[step.id]) for step in own},
        borrowed={numbers[step.id]: step.queries for step in part.steps if step.id in borrowed},
        alone=part,
    )


def _renumbered(step: Step, numbers: Mapping[int, int]) -> Step:
    inputs = tuple(Edge(numbers.get(edge.step, edge.step), edge.exchange) for edge in step.inputs)
    number = numbers.get(step.id, step.id)
    return step if number == step.id and inputs == step.inputs else replace(step, id=number, inputs=inputs)
