"""What an engine has to do to go over to a version: the difference to what it runs, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.engine import Activity, NextVersion

#: By place, the computation whose answers go there, and what the engine does for it.
Running = Mapping[int, tuple[int, Activity]]


@dataclass(frozen=True)
class Difference:
    """What is to be done, in this order.

    Args:
        ended: places where nothing is computed any more.
        exchanged: pairs of places whose computations exchange them, one pair after the other.
        moved: by place, where the computation that answers there has answered so far, if elsewhere.
        begun: places where a new computation begins.
        activities: by place, what is done from now on for the computation there, if something else than before; a new
            one runs.
    """

    ended: tuple[int, ...] = ()
    exchanged: tuple[tuple[int, int], ...] = ()
    moved: Mapping[int, int] = field(default_factory=dict)
    begun: tuple[int, ...] = ()
    activities: Mapping[int, Activity] = field(default_factory=dict)

    @property
    def changed(self) -> list[int]:
        """Return the places where another computation answers, or does otherwise."""
        return list(dict.fromkeys((*self.begun, *self.moved, *self.activities)))


def difference(version: NextVersion, running: Running) -> Difference:
    """Return the difference between a version and what an engine runs."""
    kept = {place: found for place, found in running.items() if place in version.queries}
    places = {id_: place for place, (id_, activity) in kept.items() if activity is not Activity.PAUSED}
    came_from = {place: place for place in kept}
    exchanged: list[tuple[int, int]] = []
    for place, query in version.queries.items():
        other = places.get(query.computation)
        if other is not None and other != place and place in kept:
            exchanged.append((place, other))
            places[query.computation], places[kept[place][0]] = place, other
            kept[place], kept[other] = kept[other], kept[place]
            came_from[place], came_from[other] = came_from[other], came_from[place]
    begun: list[int] = []
    activities: dict[int, Activity] = {}
    for place, query in version.queries.items():
        known = kept.get(place)
        if known is not None and known[0] == query.computation:
            if known[1] is not query.activity:
                activities[place] = query.activity
        elif query.query is not None and query.activity is not Activity.PAUSED:
            begun.append(place)
            if query.activity is Activity.SILENT:
                activities[place] = query.activity
        elif known is not None and known[1] is not query.activity:
            # What was there before is not computed any more, and nothing takes its place.
            activities[place] = query.activity
    moved = {place: former for place, former in came_from.items() if place != former}
    ended = tuple(place for place in running if place not in version.queries)
    return Difference(ended, tuple(exchanged), moved, tuple(begun), activities)
