"""Comparison of the locations of results: no two queries write into one location, and none into one that the script
reads.

A sink declares where it writes (`Sink.target`), a source whether it reads there (`SourceConnector.reads`); neither is
opened, so that a script can be checked on a machine that reaches none of its systems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Target
from penstock.connectors.sinks import target_of
from penstock.connectors.sources import reads
from penstock.errors import PenstockError, Position, ScriptWarning


def collisions(
    queries: Iterable[Query], sources: Iterable[Source], places: Mapping[str, Position]
) -> Iterator[PenstockError | ScriptWarning]:
    """Yield the collisions between the results of `queries` and each other or `sources`: errors P0502 and P0504, and
    warnings.

    Args:
        sources: the sources of the script.
        places: query -> position of its INTO in the script; only these queries are checked.
    """
    return _among(((query, target_of(query)) for query in queries), list(sources), places)


class ResultPlaces:
    """Where queries write whose declarations change. The place of one that stands is looked up once, since links in its
    path are followed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[SinkSpec, Target | None]] = {}

    def new_collisions(
        self,
        before: Mapping[str, Query],
        after: Mapping[str, Query],
        known: Mapping[str, Source],
        sources: Mapping[str, Source],
        places: Mapping[str, Position],
        elsewhere: Position,
    ) -> Iterator[PenstockError | ScriptWarning]:
        """Yield the collisions that a change makes, as `collisions` does.

        Args:
            before, after: the queries.
            known, sources: the sources before and after it.
            places: query -> position of its INTO in the change.
            elsewhere: the position of what has none.
        """
        moved = {name for name, query in after.items() if name not in before or before[name].sink != query.sink}
        changed = [
            (query, target)
            for name, query in after.items()
            if name in moved
            if (target := target_of(query)) is not None
        ]
        new = [one for name, one in sources.items() if not _lies_as(one, known.get(name))]
        if not changed and not new:
            return
        others = [(query, self._target(query)) for name, query in after.items() if name not in moved]
        chosen = {query.name: places.get(query.name, elsewhere) for query, _ in changed}
        yield from _among([*others, *changed], sources.values(), chosen)
        for query, target in others:
            if target is not None:
                yield from _read_by(query, target, new, elsewhere)

    def _target(self, query: Query) -> Target | None:
        sink, target = self._known.get(query.name, (None, None))
        if sink != query.sink:
            target = target_of(query)
            self._known[query.name] = query.sink, target
        return target


def _among(
    queries: Iterable[tuple[Query, Target | None]], sources: Collection[Source], places: Mapping[str, Position]
) -> Iterator[PenstockError | ScriptWarning]:
    targets: list[tuple[Query, Target]] = []
    for query, target in queries:
        if target is None:
            continue
        position = places.get(query.name)
        if position is not None:
            yield from (error.at(position) for error in _between(query, target, targets))
            yield from _of_one(query, target, sources, position)
        targets.append((query, target))


def _between(query: Query, target: Target, targets: list[tuple[Query, Target]]) -> Iterator[PenstockError]:
    for other_query, other_target in targets:
        if not target.meets(other_target):
            continue
        shared_location = (
            "the same location as" if target.parts == other_target.parts else "a location that overlaps that of"
        )
        message = f"query {query.name} writes to {target.shown}, {shared_location} query {other_query.name}"
        message += "" if target.shown == other_target.shown else f", which writes to {other_target.shown}"
        hint = "give each query a location of its own, or combine them by UNION ALL"
        yield PenstockError("P0504", message, hint=hint)
        return


def _of_one(
    query: Query, target: Target, sources: Iterable[Source], position: Position
) -> Iterator[PenstockError | ScriptWarning]:
    if target.blocked:
        hint = "choose a path whose parents are folders, or do not exist yet"
        message = f"query {query.name}: {target.shown} cannot be created, {target.blocked} is not a folder"
        yield PenstockError("P0502", message, position, hint)
    yield from _read_by(query, target, sources, position)


def _lies_as(source: Source, other: Source | None) -> bool:
    """Return whether two declarations read the same location."""
    return other is not None and (source.connector, source.options) == (other.connector, other.options)


def _read_by(
    query: Query, target: Target, sources: Iterable[Source], position: Position
) -> Iterator[PenstockError | ScriptWarning]:
    for source in sources:
        reads_later = reads(source, target)
        if reads_later is None:
            continue
        message = f"query {query.name} writes to {target.shown}, which {source.name} reads"
        hint = f"FROM {query.name} in a query reads the answer directly; or choose another location"
        if reads_later:
            yield ScriptWarning(message, position, hint)
        else:
            yield PenstockError("P0504", message, position, hint)
