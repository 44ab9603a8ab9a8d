"""The phases in which the computations of a declared query can be.

A query has a computation that answers, or is to, and while it changes a second one beside it: the coming one, and after
both have exchanged their places the former one until it has emitted what is its.
"""

from __future__ import annotations

import enum

from penstock.language.catalog import QueryStatus


class Phase(enum.Enum):
    """WAITING_FOR_ROWS: nothing is computed until the last rows of its streams have come; SHADOW: it is computed
    without readers; ANSWERING: it answers; SILENT: it is computed and emits nothing; PAUSED: nothing is computed, and
    what has been emitted is kept; ENDING: it emits the rest of what began before another one took its place; FAILED: it
    has ended by an error; NEEDS_ATTENTION: it cannot be bound, or cannot go on, until it is resumed."""

    WAITING_FOR_ROWS = "waiting for rows"
    SHADOW = "shadow"
    ANSWERING = "answering"
    SILENT = "silent"
    PAUSED = "paused"
    ENDING = "ending"
    FAILED = "failed"
    NEEDS_ATTENTION = "needs attention"

    @property
    def status(self) -> QueryStatus:
        """Return it as users see it."""
        return _STATUS.get(self, QueryStatus.RUNNING)

    @property
    def runs(self) -> bool:
        """Return whether it is computed, or is to be when rows have come."""
        return self not in _STATUS or self is Phase.SILENT


_STATUS = {
    Phase.SILENT: QueryStatus.PAUSED,
    Phase.PAUSED: QueryStatus.PAUSED,
    Phase.FAILED: QueryStatus.FAILED,
    Phase.NEEDS_ATTENTION: QueryStatus.NEEDS_ATTENTION,
}
#: Those of the computation that answers, or is to.
OF_ANSWER = (
    Phase.WAITING_FOR_ROWS,
    Phase.ANSWERING,
    Phase.SILENT,
    Phase.PAUSED,
    Phase.FAILED,
    Phase.NEEDS_ATTENTION,
)


class Beside(enum.Enum):
    """What is computed beside the answer. The coming one is the same query by another plan, or another query; it
    waits for rows or is computed already, which no command distinguishes."""

    NOTHING = "nothing"
    PLAN = "another plan"
    QUERY = "another query"
    FORMER = "the former one"
