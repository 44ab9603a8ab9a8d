"""What one-time queries read of the input of an engine in this process: retained elements of streams, and updates of
relations, as of its last round.

Contract: everything is read from one snapshot, which nothing changes. A round that runs meanwhile makes another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from penstock.algebra.nodes.scans import Source
from penstock.results.live_state import LivePast, LiveUpdates
from penstock.results.source_rows import (
    RowsInMemory,
    SourceRows,
    check_declared,
    check_retained,
    elements_between,
    ordered_rows,
    update_rows,
)
from penstock.runtime.live import LiveSnapshot
from penstock.runtime.live.history import History


@dataclass(frozen=True)
class HistoryPast:
    """The retained elements of one stream. See the contract `LivePast`.

    Args:
        read_as: the declaration with which the engine reads it.
        heartbeat: the tick up to which they are complete.
    """

    read_as: Source
    history: History
    heartbeat: int

    @property
    def dropped(self) -> int | None:
        return self.history.dropped

    def elements(self, source: Source, columns: tuple[int, ...], after: int | None, up_to: int) -> SourceRows:
        check_retained(source, self.read_as, columns)
        chosen = (
            part.with_columns([part.columns[i] for i in columns])
            for part in elements_between(self.history.parts, after, up_to)
        )
        return RowsInMemory(ordered_rows(source, columns, chosen))


@dataclass(frozen=True)
class HistoryUpdates:
    """All updates of one relation. See the contract `LiveUpdates`.

    Args:
        read_as: the declaration with which the engine reads it.
        heartbeat: the tick up to which they are complete.
    """

    read_as: Source
    history: History
    heartbeat: int

    def updates(
        self, source: Source, up_to: int, back: int | None, often: bool, check: Callable[[], None]
    ) -> SourceRows:
        check_declared(source, self.read_as)
        return RowsInMemory(update_rows(source, elements_between(self.history.parts, None, up_to)))


def kept_input(
    live: LiveSnapshot, sources: Iterable[Source], names: Collection[str]
) -> tuple[dict[str, LivePast], dict[str, LiveUpdates]]:
    """Return what is kept of sources: elements of streams that are retained, and updates of relations.

    Args:
        sources: as the engine reads them.
        names: of those that are read, in lower case.
    """
    past: dict[str, LivePast] = {}
    updates: dict[str, LiveUpdates] = {}
    for source in sources:
        key, history = source.name.lower(), live.histories.get(source.name)
        if key not in names or history is None:
            continue
        heartbeat = live.progress[source.name].heartbeat(source.slack)
        if not source.is_stream:
            updates[key] = HistoryUpdates(source, history, heartbeat)
        elif source.retain is not None:
            past[key] = HistoryPast(source, history, heartbeat)
    return past, updates
