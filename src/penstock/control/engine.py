"""What a control needs of the engine that runs its queries.

A control declares which sources and queries stand in the next version, and the engine goes over to it between two
rounds: all of it, or nothing. The engine notes the number of the last command with the version, so that after a crash
it is known which commands have been applied. It has no other names than numbers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.algebra.nodes.query import Query, Start
from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.settings import Settings


class Activity(enum.Enum):
    """RUNNING: it answers; SILENT: its steps run, and nothing is emitted; PAUSED: nothing runs, and what has been
    emitted is kept."""

    RUNNING = "RUNNING"
    SILENT = "SILENT"
    PAUSED = "PAUSED"


@dataclass(frozen=True)
class StandingSource:
    """A source that is read, whether or not a query reads it."""

    id: int
    source: Source


@dataclass(frozen=True)
class StandingQuery:
    """A query of a version.

    Args:
        place: the number of the place of its answers, never used again.
        track: the number of the computation that answers. One that the engine does not know begins as `start` says;
            one that answers in another place moves to this one (SWAP).
        query: with its name and its sink, over the sources as the engine reads them; None for one that is paused
            because it cannot be bound.
        reset: its answers may begin again where the content emitted last is not known.
        sink_retry: seconds for which a batch is tried again where its sink fails; None: as the settings say.
    """

    place: int
    track: int
    query: Query | None
    start: Start
    activity: Activity
    reset: bool = False
    sink_retry: float | None = None


@dataclass(frozen=True)
class NextVersion:
    """What stands in a version.

    Args:
        command: the number of the last command that it contains.
        sources: by number.
        queries: by place.
        waiting: numbers of commands before `command` that it does not contain yet.
    """

    command: int
    sources: Mapping[int, StandingSource] = field(default_factory=dict)
    queries: Mapping[int, StandingQuery] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    waiting: frozenset[int] = frozenset()


@dataclass(frozen=True)
class EngineVersion:
    """The version that runs.

    Args:
        command: the number of the last command that it contains, 0 for none.
        heartbeats: by place, up to which tick the answer is final, where its time has begun.
        waiting: numbers of commands before `command` that it does not contain yet.
        begun: by place, of the queries that begin with the version: τ0, where their time had begun by then; the instant
            of START AT.
        sources: by name in lower case, up to which tick the elements of a source are complete, where time has begun.
        rows: by place, the rows that have been answered, where the engine counts them.
        ahead: places whose first instant has not been reached.
    """

    number: int
    command: int
    heartbeats: Mapping[int, int] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    begun: Mapping[int, int] = field(default_factory=dict)
    sources: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[int, int] = field(default_factory=dict)
    ahead: frozenset[int] = frozenset()


def with_instants(begun: Mapping[int, int], version: NextVersion) -> dict[int, int]:
    """Return where queries begin, by place. begun: what their sources had reached."""
    chosen = {place: version.queries[place].start.at for place in begun if place in version.queries}
    return {place: tick if (at := chosen.get(place)) is None else at for place, tick in begun.items()}


#: Is called with the place of a query that failed.
OnFailed = Callable[[int, PenstockError], None]


class Preparation(Protocol):
    """Reads the past of the new queries of a version before the engine goes over to it, beside the one that runs."""

    def read(self) -> None:
        """Read until the queries can begin, or until `end`. Raises PenstockError where that is not possible."""

    def shares(self) -> Mapping[int, float]:
        """Return by place which part of the past has been read, as far as it is known; called by any thread."""

    def end(self) -> None:
        """Have `read` return soon; called by any thread."""

    def discard(self) -> None:
        """Remove what has been read; `read` has returned."""


class Engine(Protocol):
    """Runs the queries of a control. `check` and `prepare` may be called while the engine changes."""

    def check(self, version: NextVersion) -> None:
        """Raise PenstockError for what this engine cannot do, as far as that is known before; nothing changes.

        version: what is new in it or changes, without anything else.
        """

    def prepare(self, version: NextVersion) -> Preparation | None:
        """Return what reads the past of queries that begin with a version; None where that takes no time."""

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        """Go over to a version. Called by one thread at a time.

        Args:
            prepared: has read the past of its new queries, while other versions may have come.

        Raises:
            PenstockError: nothing has changed.
        """

    def version(self) -> EngineVersion:
        """Return the version that runs."""

    def listen(self, on_failed: OnFailed) -> None:
        """Set what is called, by any thread, when a query fails alone."""

    def wake(self) -> None:
        """Look for new rows soon: some have been posted."""

    def unread(self) -> int:
        """Return how many bytes of posted rows have not been read yet, as far as they have been found; called by any
        thread."""

    def updates(self, source: Source) -> Sequence[Elements] | None:
        """Return all updates of a relation up to now, those posted last included, in the order of arrival and with all
        declared columns; those that its content does not show any more may be missing. None where the posts have to be
        read for that.

        Args:
            source: the declaration as the engine reads it.
        """

    def close(self) -> None:
        """Stop; the last version goes on when the engine is opened again."""
