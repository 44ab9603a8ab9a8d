"""Which ways to begin a query has, and how far back its sources must be read for them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import reach
from penstock.errors import PenstockError
from penstock.physical.execution.progress import NOTHING, SourceProgress, query_heartbeat, timed_sources
from penstock.physical.plan.plan import Plan
from penstock.runtime.spark.input.offset import Offset


def earliest(plan: Plan, starts: Mapping[str, Start], offset: Offset) -> int | None:
    """Return a tick so that no element up to it determines what any of the queries emits; None where every element may.

    Args:
        plan: of the queries.
        offset: up to which their sources have been read.
    """
    bounds = [bound_of(plan.queries[name], start, offset) for name, start in starts.items()]
    known = [bound for bound in bounds if bound is not None]
    return min(known, default=None) if len(known) == len(bounds) else None


def bound_of(query: Query, start: Start, offset: Offset) -> int | None:
    """Return the same of one query."""
    if start.mode is StartMode.BEGINNING:
        return None
    back = reach(query.root.needs)
    tick = heartbeat_at(query, offset)
    if back is None or tick == NOTHING:
        return None
    return (tick if start.at is None else min(tick, start.at)) - back


def heartbeat_at(query: Query, offset: Offset) -> int:
    """Return the heartbeat of a query whose sources have been read up to `offset`, or an earlier one."""
    sources = timed_sources(query.root)
    wall = offset.wall.beats if offset.wall is not None else {}
    progress = {
        name: SourceProgress(
            None, offset.high.get(name), beat=max(wall.get(name, NOTHING), offset.reported.get(name, NOTHING))
        )
        for name in sources
    }
    return query_heartbeat(query.root, sources, progress, drain=False)


def not_kept(starts: Mapping[str, Start], plan: Plan, missing: Mapping[str, Source]) -> PenstockError:
    """Return the error for queries that begin with a past of which sources keep too little."""
    queries = sorted(name for name in starts if missing.keys() & timed_sources(plan.queries[name].root).keys())
    names = ", ".join(sorted(missing))
    if all(starts[name].mode is StartMode.BEGINNING for name in queries):
        clocked = [source.name for source in missing.values() if source.system_time]
        reason = f"what has been read of {names} is not kept"
        if clocked:
            reason = f"{clocked[0]} is of SYSTEM TIME, and when its elements came is not kept"
        return PenstockError(
            "P0607", f"query {', '.join(queries)} cannot read its past: {reason}",
            hint="start without --backfill: the query begins from here on",
        )  # fmt: skip
    mode = ", ".join(sorted({starts[name].mode.value for name in queries}))
    return PenstockError(
        "P0703", f"query {', '.join(queries)}: START {mode} needs elements of {names} that are no longer kept",
        hint=f"start it NOW, or keep more of {names}",
    )  # fmt: skip
