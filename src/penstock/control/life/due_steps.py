"""Changes of queries while they run: which step of one is due.

A query whose plan is to be another one, or whose place another query is to take, is computed by both for a while
[golab 4.4.6]. The new one begins as START WARM WAIT does, at a place without readers. It takes over at a heartbeat h
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

from penstock.algebra.nodes.query import Query
from penstock.algebra.properties.need import AwaitedRows, first_full_instant, is_mature
from penstock.control.engine import EngineVersion
from penstock.control.life.transitions import Event
from penstock.control.phases import Phase
from penstock.control.registry import Registry
from penstock.control.stored_catalog import StoredComputation, StoredQuery
from penstock.errors import PenstockError


@dataclass(frozen=True)
class EditStep:
    """A step that is due.

    Args:
        id: of the query.
        beside: what is computed beside it now; None for a change that is to begin.
        heartbeat: of what answers.
    """

    id: int
    beside: StoredComputation | None
    heartbeat: int = 0

    @property
    def event(self) -> Event:
        """Return what happens to the query."""
        if self.beside is None:
            return Event.PLAN_BEGINS
        return Event.FORMER_ENDED if self.beside.phase is Phase.ENDING else Event.TAKES_OVER


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
        for each in query.computations:
            found = awaited(one.id, each.place) if each.waits else None
            if each.keeps and not each.waits:
                yield HoldStep(one.id, each.place, None)
            elif found is not None and found.tick is not None:
                yield HoldStep(one.id, each.place, found.tick)


def changes_plans(registry: Registry) -> bool:
    """Return whether some query changes or waits for rows, or the plan of one is to be another one."""
    return any(
        query.beside is not None or query.answer.keeps or query.answer.plan != one.wished_plan
        for one, query in registry.stored.queries
    )


def due_steps(registry: Registry, version: EngineVersion) -> Iterator[EditStep]:
    """Yield the steps that are due.

    Args:
        registry: the declarations that the engine runs.
        version: that it runs.
    """
    for one, query in registry.stored.queries:
        bound, heartbeat = registry.bound.queries.get(one.name.lower()), version.heartbeats.get(query.place)
        if bound is None or query.phase is not Phase.ANSWERING:
            continue
        beside = query.beside
        if beside is None:
            if query.answer.plan != one.wished_plan:
                yield EditStep(one.id, None)
        elif heartbeat is None or beside.waits:
            continue
        elif beside.phase is Phase.ENDING:
            if has_ended(query, beside, version):
                yield EditStep(one.id, beside)
        elif is_due(bound, query, beside, version, heartbeat):
            yield EditStep(one.id, beside, heartbeat)


def has_ended(query: StoredQuery, former: StoredComputation, version: EngineVersion) -> bool:
    """Return whether the former computation of a query, which another one has replaced, has emitted all that is its."""
    heartbeat = version.heartbeats.get(query.place if former.definition is None else former.place)
    is_behind = heartbeat is None or former.until is None or heartbeat < former.until
    return not is_behind and not {query.place, former.place} & version.exchanging


def is_due(bound: Query, query: StoredQuery, beside: StoredComputation, version: EngineVersion, heartbeat: int) -> bool:
    """Return whether what is computed beside a query can take over."""
    new, first = version.heartbeats.get(beside.place), version.ahead.get(beside.place)
    if beside.definition is not None:
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
            "P0703",
            f"the plan of {name} cannot change while it runs: it began behind elements of {sources}, and what"
            " it has not seen of them counts for ever",
            hint="PAUSE it and RESUME it with the other plan, or use windows of a length of time",
        )
