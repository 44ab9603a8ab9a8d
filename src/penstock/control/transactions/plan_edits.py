"""Changes of plans while queries run: which step of one is due.

A query whose plan is to be another one is computed by both for a while [golab 4.4.6]. The new plan begins as START WARM
WAIT does, at a place that nobody reads. It takes over at an instant at which both answer the same:

- nothing of the past is missing that the new one needs (it has reached its first instant);
- nothing is missing that the former one needs: a query that began NOW does not see what came before it, and the new
  plan does, until that has no bearing any more (`algebra/properties/need.py`);
- both are at one heartbeat h.

Then they exchange their places, as two queries do (SWAP): the former plan answers instants up to h, the new one those
after it. Of the instant h + 1 the former plan may have emitted elements already, and goes on to emit the rest of it, so
it ends when the heartbeat has passed that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.query import Query
from penstock.algebra.properties.need import first_full_instant, is_mature
from penstock.control.engine import EngineVersion
from penstock.control.registry import Registry
from penstock.control.stored_catalog import PlanEdit, StoredQuery
from penstock.errors import PenstockError
from penstock.language.catalog import QueryStatus


@dataclass(frozen=True)
class EditStep:
    """A step that is due.

    Args:
        id: of the query.
        edit: as it is now; None for a change that is to begin.
        heartbeat: of the query.
    """

    id: int
    edit: PlanEdit | None
    heartbeat: int = 0


def changes_plans(registry: Registry) -> bool:
    """Return whether the plan of some query is to be another one."""
    return any(query.edit is not None or query.plan != one.wished_plan for one, query in registry.stored.queries)


def due_steps(registry: Registry, version: EngineVersion) -> Iterator[EditStep]:
    """Yield the steps that are due.

    Args:
        registry: the declarations that the engine runs.
        version: that it runs.
    """
    for one, query in registry.stored.queries:
        bound, heartbeat = registry.bound.queries.get(one.name.lower()), version.heartbeats.get(query.place)
        if bound is None or query.status is not QueryStatus.RUNNING:
            continue
        if query.edit is None:
            if query.plan != one.wished_plan:
                yield EditStep(one.id, None)
        elif heartbeat is None:
            continue
        elif query.edit.until is not None:
            if heartbeat >= query.edit.until:
                yield EditStep(one.id, query.edit)
        elif is_due(bound, query, query.edit, version, heartbeat):
            yield EditStep(one.id, query.edit, heartbeat)


def is_due(bound: Query, query: StoredQuery, edit: PlanEdit, version: EngineVersion, heartbeat: int) -> bool:
    """Return whether the new plan of a query can take over."""
    if version.heartbeats.get(edit.place) != heartbeat or {query.place, edit.place} & version.ahead.keys():
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
