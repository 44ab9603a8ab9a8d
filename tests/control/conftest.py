"""In all tests of the control, queries go from phase to phase as the table says (`control/life/transitions.py`)."""

from __future__ import annotations

import pytest

from penstock.control.drafting.drafted_queries import DraftedQueries
from penstock.control.life.transitions import POSSIBLE, Becomes, Event, beside_of, verdict
from penstock.control.phases import OF_ANSWER, Beside, Phase
from penstock.control.stored_catalog import StoredObject

State = tuple[Phase, Beside]


def reachable(state: State) -> set[State]:
    """Return the states to which some event takes a query."""
    found = {state}
    for event in Event:
        made = verdict(event, *state)
        if isinstance(made, Becomes):
            found |= {(phase, beside) for phase in made.phases for beside in made.beside or {state[1]}}
    return found


REACHABLE = {(phase, beside): reachable((phase, beside)) for phase in OF_ANSWER for beside in POSSIBLE[phase]}
BEGINS = {(Phase.ANSWERING, Beside.NOTHING), (Phase.WAITING_FOR_ROWS, Beside.NOTHING)}


@pytest.fixture(autouse=True, scope="session")
def phases_follow_the_table() -> None:
    put = DraftedQueries._put

    def checked(self: DraftedQueries, one: StoredObject) -> None:
        former = self.stored.objects.get(one.id)
        if one.query is not None:
            now = one.query.phase, beside_of(one.query)
            known = BEGINS if former is None or former.query is None else None
            if known is None:
                assert former is not None and former.query is not None
                known = REACHABLE[former.query.phase, beside_of(former.query)]
            assert now in known, (one.name, former and former.query, one.query)
        put(self, one)

    DraftedQueries._put = checked  # type: ignore[method-assign]
