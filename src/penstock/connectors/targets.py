"""Comparison of the locations of results: no two queries write into one location, and none into one that the script
reads.

A sink declares where it writes (`Sink.target`), a source whether it reads there (`SourceConnector.reads`); neither is
opened, so that a script can be checked on a machine that reaches none of its systems.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.algebra.nodes.query import Query
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
        queries: only these are checked.
        sources: the sources of the script.
        places: query -> position of its INTO in the script.
    """
    declared = list(sources)
    targets: list[tuple[Query, Target]] = []
    for query in queries:
        target = target_of(query)
        if target is None:
            continue
        position = places.get(query.name)
        if position is not None:
            yield from (error.at(position) for error in _between(query, target, targets))
            yield from _of_one(query, target, declared, position)
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
    query: Query, target: Target, sources: list[Source], position: Position
) -> Iterator[PenstockError | ScriptWarning]:
    if target.blocked:
        hint = "choose a path whose parents are folders, or do not exist yet"
        message = f"query {query.name}: {target.shown} cannot be created, {target.blocked} is not a folder"
        yield PenstockError("P0502", message, position, hint)
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
