"""Changes of queries while they run: which step of one is due.

A query whose plan is to be another one, or whose place another query is to take, is computed by both for a while
[golab 4.4.6]. The new one begins as START WARM WAIT does, at a place that nobody reads. It takes over at a heartbeat h
up to which the former one has answered:

- nothing of the past is missing that the new one needs (it has reached its first instant, or that is h + 1);
- it is not ahead of the former one, so that no instant is left out. Where it reads all that the former one reads, that
  is always so;
- of another plan, both answer the same: they are at one heartbeat, and nothing is missing that the former one needs. A
  query that began NOW does not see what came before it, and the new plan does, until that has no bearing any more
  (`algebra/properties/need.py`).

Where the new one needs last rows of streams ([ROWS n]) that are still to come, it is nowhere computed until they have
come; its streams keep them meanwhile, and it begins with the instant at which they were there.

Then they exchange their places, as two queries do (SWAP): the former one answers instants up to h, the new one those
after it. Of the instant h + 1 the former one may have emitted elements already, and goes on to emit the rest of it, so
it ends when the heartbeat has passed that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.properties.need import AwaitedRows, first_full_instant, is_mature
from penstock.control.engine import EngineVersion
from penstock.control.life.phases import Phase, phase_of
from penstock.control.life.transitions import Event
from penstock.control.registry import Registry
from penstock.control.stored_catalog import QueryEdit, StoredQuery
from penstock.errors import PenstockError

#: Where a computation begins that is to take the place of another one: as soon as nothing is missing.
WARM_WAIT = Start(StartMode.WARM, wait=True)


@dataclass(frozen=True)
class EditStep:
    """A step that is due.

    Args:
        id: of the query.
        edit: as it is now; None for a change that is to begin.
        heartbeat: of what answers.
    """

    id: int
    edit: QueryEdit | None
    heartbeat: int = 0

    @property
    def event(self) -> Event:
        """Return what happens to the query."""
        if self.edit is None:
            return Event.PLAN_BEGINS
        return Event.TAKES_OVER if self.edit.until is None else Event.FORMER_ENDED


@dataclass(frozen=True)
class HoldStep:
    """A step of what waits for rows, a query or a change of one: it begins, or has begun.

    Args:
        id: of the query.
        place: of what waits.
        tick: the first instant at which everything is there; None: its streams need not keep more for it any longer.
    """

    id: int
    place: int
    tick: int | None


#: Returns what waits for rows at a place of the query with a number, and for which ones.
Awaited = Callable[[int, int], AwaitedRows | None]


def due_holds(registry: Registry, awaited: Awaited) -> Iterator[HoldStep]:
    """Yield the steps of queries that wait for rows which are due, and of changes of queries; those of `registry` are
    the ones that the engine runs. What has begun, is paused or has failed needs nothing more."""
    for one, query in registry.stored.queries:
        holding = [(query.place, query.awaits)] if query.holds else []
        if query.edit is not None and query.edit.holds:
            holding.append((query.edit.place, query.edit.awaits))
        for place, awaits in holding:
            found = awaited(one.id, place) if awaits else None
            if not awaits:
                yield HoldStep(one.id, place, None)
            elif found is not None and found.tick is not None:
                yield HoldStep(one.id, place, found.tick)


def changes_plans(registry: Registry) -> bool:
    """Return whether some query changes or waits for rows, or the plan of one is to be another one."""
    return any(
        query.edit is not None or query.holds or query.plan != one.wished_plan for one, query in registry.stored.queries
    )


def due_steps(registry: Registry, version: EngineVersion) -> Iterator[EditStep]:
    """Yield the steps that are due.

    Args:
        registry: the declarations that the engine runs.
        version: that it runs.
    """
    for one, query in registry.stored.queries:
        bound, heartbeat = registry.bound.queries.get(one.name.lower()), version.heartbeats.get(query.place)
        if bound is None or phase_of(query) is not Phase.ANSWERING:
            continue
        if query.edit is None:
            if query.plan != one.wished_plan:
                yield EditStep(one.id, None)
        elif heartbeat is None or query.edit.awaits:
            continue
        elif query.edit.until is not None:
            if has_ended(query, query.edit, version):
                yield EditStep(one.id, query.edit)
        elif is_due(bound, query, query.edit, version, heartbeat):
            yield EditStep(one.id, query.edit, heartbeat)


def has_ended(query: StoredQuery, edit: QueryEdit, version: EngineVersion) -> bool:
    """Return whether the former computation of a query, which another one has replaced, has emitted all that is its."""
    heartbeat = version.heartbeats.get(query.place if edit.other is None else edit.place)
    is_behind = heartbeat is None or edit.until is None or heartbeat < edit.until
    return not is_behind and not {query.place, edit.place} & version.exchanging


def is_due(bound: Query, query: StoredQuery, edit: QueryEdit, version: EngineVersion, heartbeat: int) -> bool:
    """Return whether what is computed beside a query can take over."""
    new, first = version.heartbeats.get(edit.place), version.ahead.get(edit.place)
    if edit.other is not None:
        reached = max(heartbeat + 1, version.ahead.get(query.place, heartbeat + 1))
        return new is not None and new <= heartbeat and (first is None or first <= reached)
    if new != heartbeat or first is not None or query.place in version.ahead:
        return False
    return is_mature(bound.root.needs, version.unseen.get(query.place, {}), heartbeat)


def check_edit(name: str, bound: Query, query: StoredQuery, version: EngineVersion) -> None:
    """Raise PenstockError P0703 where the plan of a query that runs can never be exchanged."""
    unseen = version.unseen.get(query.place, {})
    if first_full_instant(bound.root.needs, unseen, 0) is None:
        sources = ", ".join(sorted(unseen))
        raise PenstockError(
            "P0703", f"the plan of {name} cannot change while it runs: it began behind elements of {sources}, and what"
            " it has not seen of them counts for ever",
            hint="PAUSE it and RESUME it with the other plan, or have windows of a length of time",
        )  # fmt: skip
