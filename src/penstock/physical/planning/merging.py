"""Which steps are merged from one version of a plan to the next (`sharing.py` decides which may be).

Of states that are merged the name stays that goes by most steps, whichever of them is kept: parts of the plan refer to
it, and what stays from version to version are the same objects. The other one has a *moved* state then. So a store of
a longer window than all before it, of which there may be one with each query, changes no part of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.algebra.nodes.scans import Source
from penstock.physical.plan.spec import Memory
from penstock.physical.planning.planned_part import PlannedPart
from penstock.physical.planning.shared_parts import SharedParts
from penstock.physical.planning.sharing import MOVED, Beginning, Merges, SharableStep, Standing


def merged(
    parts: Sequence[PlannedPart],
    merges: Merges,
    beginnings: Mapping[int, Beginning],
    standing: Standing,
    shared: SharedParts | None = None,
) -> dict[str, str]:
    """Return the merges of a version: those of the one before that still concern a step, and what can be merged now.

    Args:
        parts: in the order of their births, each with all its steps.
        merges: of the version before.
        beginnings: by birth; without one its steps are not mature.
        shared: the parts of the version before, which are brought up to date.
    """
    shared = shared or SharedParts()
    present = shared.keys(parts, merges)
    # Most merges stay from version to version: those alone are looked into that concern no step by themselves.
    result = dict(merges)
    for key in merges.keys() - present:
        if not key.startswith(MOVED):
            del result[key]
    changes = True
    while changes:
        changes = False
        for group in shared.twins(parts, result):
            changes |= _merge(group, result, beginnings, standing, shared.sources)
    moved = result.keys() - present
    if moved:
        used = {MOVED + name for name in map(result.get, result.keys() & present) if name is not None}
        for key in moved - used:
            del result[key]
    return result


def _merge(
    group: Sequence[SharableStep],
    merges: dict[str, str],
    beginnings: Mapping[int, Beginning],
    standing: Standing,
    sources: Mapping[str, Source],
) -> bool:
    """Merge those of a group of twins that have equal states now; return whether there are any."""
    if len({merges.get(one.key, one.key) for one in group}) == 1:
        return False
    names = {one.key: merges.get(one.key, one.key) for one in group}
    if group[0].memory is Memory.DECLARED:
        # The first one began with the declaration; the others have begun just now and have seen nothing.
        states = [*dict.fromkeys(names.values())]
        return _one_state(states, states[0], names, merges)
    if group[0].step.spec.keeps_rows:
        return _merge_stores(group, names, merges, beginnings, standing)
    users: dict[str, set[str]] = {}
    for one in group:
        users.setdefault(names[one.key], set()).update(one.step.queries)
    reached = {name: standing.at_its_sources(group[0].step, sources, queries) for name, queries in users.items()}
    ready: list[str] = []
    for one in group:
        name, beginning = names[one.key], beginnings.get(one.step.birth)
        heartbeat = reached[name]
        if heartbeat is None or name in ready:
            continue
        # One that has been merged was mature then.
        if one.key in merges or (beginning is not None and beginning.is_mature(one.needs, one.step.sources, heartbeat)):
            ready.append(name)
    return len(ready) > 1 and _one_state(ready, ready[0], names, merges)


def _merge_stores(
    group: Sequence[SharableStep],
    names: Mapping[str, str],
    merges: dict[str, str],
    beginnings: Mapping[int, Beginning],
    standing: Standing,
) -> bool:
    """Merge into the store that reaches back furthest those whose readers need no more than it has.

    Returns:
        Whether there are any.
    """
    reaches: dict[str, int] = {}
    needed: dict[str, int] = {}
    ended: dict[frozenset[str], bool] = {}
    reached = standing.queries
    for one in group:
        step, name = one.step, names[one.key]
        slowest = fastest = reached[next(iter(step.queries))]
        if len(step.queries) > 1:
            heartbeats = [reached[query] for query in step.queries]
            slowest, fastest = min(heartbeats), max(heartbeats)
        if one.key not in merges:
            beginning = beginnings.get(step.birth)
            if beginning is None or not beginning.is_mature(one.needs, step.sources, slowest):
                continue
        if step.sources not in ended:
            ended[step.sources] = standing.has_ended(step.sources)
        if ended[step.sources]:
            continue
        # The need of a window over a stream is its length. A reader is as far as the furthest of its queries, and rows
        # stay for the slowest reader.
        reach, need = fastest - one.ticks, slowest - one.ticks
        if reach < reaches.setdefault(name, reach):
            reaches[name] = reach
        if need < needed.setdefault(name, need):
            needed[name] = need
    if len(reaches) < 2:
        return False
    furthest = min(reaches, key=lambda name: reaches[name])
    ready = [name for name, tick in needed.items() if name == furthest or tick >= reaches[furthest]]
    return len(ready) > 1 and _one_state(ready, furthest, names, merges)


def _one_state(ready: Sequence[str], kept: str, names: Mapping[str, str], merges: dict[str, str]) -> bool:
    """Merge states.

    Args:
        ready: their names.
        kept: the name of the one that is kept.
        names: of the states of the group, by the keys of its steps.
    """
    steps = Counter(names.values())
    state, name = merges.get(MOVED + kept, kept), max(ready, key=lambda name: steps[name])
    merges |= {key: name for key, former in names.items() if former in ready}
    merges.pop(MOVED + name, None)
    if state != name:
        merges[MOVED + name] = state
    return True
