"""The phases in which the computations of a declared query can be.

A query has a computation that answers, or is to, and while it changes a second one beside it: the coming one, and after
both have exchanged their places the former one until it has emitted what is its.
"""

from __future__ import annotations

import enum

from penstock.control.stored_catalog import QueryEdit, StoredQuery
from penstock.language.catalog import QueryStatus


class Phase(enum.Enum):
    """WAITING_FOR_ROWS: nothing is computed until the last rows of its streams have come; SHADOW: it is computed where
    nobody reads; ANSWERING: it answers; SILENT: it is computed and emits nothing; PAUSED: nothing is computed, and what
    has been emitted is kept; ENDING: it emits the rest of what began before another one took its place; FAILED: it has
    ended by an error; NEEDS_ATTENTION: it cannot be bound, or cannot go on, until it is resumed."""

    WAITING_FOR_ROWS = "waiting for rows"
    SHADOW = "shadow"
    ANSWERING = "answering"
    SILENT = "silent"
    PAUSED = "paused"
    ENDING = "ending"
    FAILED = "failed"
    NEEDS_ATTENTION = "needs attention"


#: Those of the computation that answers, or is to.
OF_ANSWER = (
    Phase.WAITING_FOR_ROWS, Phase.ANSWERING, Phase.SILENT, Phase.PAUSED, Phase.FAILED, Phase.NEEDS_ATTENTION,
)  # fmt: skip


class Beside(enum.Enum):
    """What is computed beside the answer. The coming one is the same query by another plan, or another query; it
    waits for rows or is computed already, which no command distinguishes."""

    NOTHING = "nothing"
    PLAN = "another plan"
    QUERY = "another query"
    FORMER = "the former one"


def phase_of(query: StoredQuery) -> Phase:
    """Return the phase of the computation that answers a query, or is to."""
    if query.status is QueryStatus.RUNNING:
        return Phase.WAITING_FOR_ROWS if query.awaits else Phase.ANSWERING
    if query.status is QueryStatus.PAUSED:
        return Phase.SILENT if query.silent else Phase.PAUSED
    return Phase.FAILED if query.status is QueryStatus.FAILED else Phase.NEEDS_ATTENTION


def phase_beside(edit: QueryEdit) -> Phase:
    """Return the phase of the computation beside the one that answers."""
    if edit.until is not None:
        return Phase.ENDING
    return Phase.WAITING_FOR_ROWS if edit.awaits else Phase.SHADOW


def beside_of(query: StoredQuery) -> Beside:
    """Return what is computed beside the answer of a query."""
    edit = query.edit
    if edit is None:
        return Beside.NOTHING
    if edit.until is not None:
        return Beside.FORMER
    return Beside.PLAN if edit.other is None else Beside.QUERY
