"""The difference of a version to what an engine runs, for all states of three places: carried out in its order it leads
to the version, and does nothing where nothing changes."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

from penstock.algebra.nodes.query import Start, StartMode
from penstock.control.engine import Activity, NextVersion, StandingQuery
from penstock.control.life.reconcile import Difference, Running, difference

RUNNING, SILENT, PAUSED = Activity.RUNNING, Activity.SILENT, Activity.PAUSED
BOUND: Any = object()


def states() -> list[dict[int, tuple[int, Activity]]]:
    """Return what an engine may run at the places 1 and 2, and at 3 where no more than that bears on it: computations
    10 to 12 in any order, each doing anything."""
    found = []
    for ids in permutations((10, 11, 12)):
        for activities in product((None, *Activity), (None, *Activity), (None, RUNNING)):
            pairs = zip((1, 2, 3), ids, activities, strict=True)
            found.append({place: (id_, activity) for place, id_, activity in pairs if activity is not None})
    return found


def version(state: Running, unbound: frozenset[int] = frozenset()) -> NextVersion:
    start = Start(StartMode.NOW)
    queries = {
        place: StandingQuery(place, id_, None if place in unbound else BOUND, start, activity)
        for place, (id_, activity) in state.items()
    }
    return NextVersion(1, {}, queries)


def carried_out(running: Running, wanted: NextVersion) -> dict[int, tuple[int, Activity]]:
    """Do what the difference says, as an engine would."""
    due, state = difference(wanted, running), dict(running)
    for place in due.ended:
        del state[place]
    for place, other in due.exchanged:
        state[place], state[other] = state[other], state[place]
    origin = {id_: place for place, (id_, _) in running.items()}
    assert due.moved == {place: origin[id_] for place, (id_, _) in state.items() if origin[id_] != place}
    for place in due.begun:
        assert wanted.queries[place].query is not None
        state[place] = wanted.queries[place].computation, RUNNING
    for place, activity in due.activities.items():
        assert state[place][1] is not activity, "it does so already"
        state[place] = state[place][0], activity
    return state


def test_the_difference_leads_to_the_version() -> None:
    known = states()
    for running, wanted, unbound in product(known, known, (frozenset[int](), frozenset({1}))):
        made = version(wanted, unbound)
        after = carried_out(running, made)
        for place, query in made.queries.items():
            if query.activity is PAUSED:
                # Nothing is computed, whatever was there before.
                assert place not in after or after[place][1] is PAUSED, (running, wanted)
            elif query.query is not None:
                assert after[place] == (query.computation, query.activity), (running, wanted)
        assert after.keys() <= made.queries.keys()


def test_nothing_is_done_where_nothing_changes() -> None:
    for running in states():
        assert difference(version(running), running) == Difference()
