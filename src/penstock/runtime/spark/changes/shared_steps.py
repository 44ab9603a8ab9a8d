"""Which steps of a run are shared, from epoch to epoch: what `physical/planning/sharing.py` needs to know of it.

A change of a live run happens between two rounds, and only then are steps merged: the states of all shards are then at
the offset with which the epoch begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.physical.execution.progress import (
    Progress,
    QueryHeartbeats,
    SourceProgress,
    query_heartbeat,
    timed_sources,
)
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.merging import merged
from penstock.physical.planning.shared_parts import SharedParts
from penstock.physical.planning.sharing import Beginning, Standing
from penstock.runtime.spark.catching_up.past_input import delivered_part
from penstock.runtime.spark.catching_up.start_options import progress_at
from penstock.runtime.spark.checkpoint.epochs import Epoch
from penstock.runtime.spark.checkpoint.folder import Folder


def progress_at_start(folder: Folder, epoch: Epoch, plan: Plan) -> dict[str, SourceProgress]:
    """Return the progress of the sources with which `epoch` begins."""
    assert epoch.offset is not None, "an epoch that follows another one begins with an offset"
    offset = delivered_part(folder, epoch.offset)
    return {name: replace(progress_at(name, offset), ended=name in offset.ended) for name in plan.sources}


def beginnings_of(
    epoch: Epoch, before: Epoch, progress: Progress, plan: Plan, by_birth: Mapping[int, Sequence[Query]]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the beginnings of the queries of `epoch` by their births.

    Args:
        before: the epoch before it.
        progress: of the sources when it begins.
        by_birth: the queries by their births, in order.
    """
    known, started = before.maturity, epoch.started
    found: dict[str, dict[str, dict[str, int]]] = {}
    for birth, queries in by_birth.items():
        record = before.beginnings.get(str(birth))
        if record is not None and len(record["begun"]) == len(record["ahead"]):
            found[str(birth)] = record
            continue
        if birth in known:
            # What they have seen follows from what was known before.
            found[str(birth)] = known[birth].after(progress).as_json()
            continue
        sources: set[str] = set()
        for name in (query.name for query in queries):
            read, start = timed_sources(plan.queries[name].root), started.get(name, Start())
            # One that is shown later only may have missed what has no bearing on it from then on.
            heartbeat = query_heartbeat(plan.queries[name].root, read, progress, drain=False)
            is_ahead = start.at is not None and start.at > heartbeat
            if name not in started or start.mode is StartMode.NOW or is_ahead:
                sources.update(read)
        found[str(birth)] = Beginning.cut_off(sources, progress).as_json()
    return found


def merges_of(
    parts: Sequence[Plan], epoch: Epoch, progress: Progress, plan: Plan, shared: SharedParts
) -> dict[str, str]:
    """Return the merges of `epoch`: those that it has taken over, and those that can be made when it begins.

    Args:
        parts: of its plan, each with all its steps.
        plan: that has its queries.
        shared: the parts of the version before.
    """
    heartbeats = QueryHeartbeats(plan.queries, progress)
    return merged(parts, epoch.merges, epoch.maturity, Standing(progress, heartbeats), shared)
