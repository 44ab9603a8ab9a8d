"""What a dry run returns for a query: its plan, what it will keep and process, and how it could begin now."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.cost import plan_cost
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.control.entities.sharing import sharing_of
from penstock.control.entities.system import SystemView
from penstock.language.commands import AlterQuery, Command, CreateQueryCommand, ReplaceQuery
from penstock.physical.planning.state_size.summary import query_state
from penstock.runtime.local.explain import explain
from penstock.storage.documents import Document

#: Statements of a script up to which a check compares queries with those that run.
COMPARED = 20


def query_of_command(command: Command | None) -> Query | None:
    """Return the query that a command registers; None for another command."""
    if isinstance(command, CreateQueryCommand):
        return command.query
    if isinstance(command, AlterQuery) and isinstance(command.action, ReplaceQuery):
        return command.action.query
    return None


def query_check(query: Query, starts: Sequence[Document], view: SystemView | None) -> Document:
    """Return the plan of `query`, the estimates of its state and of the rows a second that its operators process,
    `starts`, its possible starts, and what it would share with the queries that run.

    Args:
        view: what runs; None where it is not to be compared, as that takes a look at every step.
    """
    statistics = Statistics()
    root = optimize(query.root)
    return {
        "query": query.name,
        "plan": explain(query, "text"),
        "state": query_state(query, statistics, optimized=root).as_json(),
        "rows_per_second": round(plan_cost(root, statistics), 3),
        "starts": list(starts),
        "sharing": None if view is None else sharing_of(view, query, False).as_json(),
    }
