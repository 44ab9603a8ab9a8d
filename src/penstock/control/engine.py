"""The contract of an engine: what a control and the service of a server need of what runs the queries.

A control declares which sources and queries stand in the next version, and the engine goes over to it between two
rounds: all of it, or nothing. The engine notes the number of the last command with the version, so that after a crash
it is known which commands have been applied. It has no other names than numbers. The service reads results, one-time
answers and the health of the engine. What an engine cannot do it refuses with the error code that stands at the method.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import AwaitedRows
from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.physical.execution.flow_counts import TappedPort
from penstock.physical.execution.progress import timed_sources
from penstock.results.cancellation import Cancellation
from penstock.results.result_source import ResultRequest, ResultSource
from penstock.results.select import LiveAnswer
from penstock.results.source_rows import SourceRows
from penstock.runtime.live.starts import StartOption
from penstock.runtime.monitoring.figures import BatchFigures, RunFigures
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.taps import Tap
from penstock.settings import Settings


class Activity(enum.Enum):
    """RUNNING: it answers; SILENT: its steps run, and nothing is emitted; PAUSED: nothing runs, and what has been
    emitted is kept."""

    RUNNING = "RUNNING"
    SILENT = "SILENT"
    PAUSED = "PAUSED"


@dataclass(frozen=True)
class StandingSource:
    """A source that is read, whether or not a query reads it. heartbeats: of a stream that is not posted to, the posts
    with its heartbeats of ADVANCE; None for others."""

    id: int
    source: Source
    heartbeats: Source | None = None


@dataclass(frozen=True)
class StandingQuery:
    """A query of a version.

    Args:
        place: the number of the place of its answers, never used again.
        computation: the number of the computation that answers. One that the engine does not know begins by
            `start`; one that answers in another place moves to this one (SWAP).
        query: with its name and its sink, over the sources as the engine reads them; None for one that is paused
            because it cannot be bound.
        reset: its answers may begin again where the content emitted last is not known.
        sink_retry: seconds for which a batch is tried again where its sink fails; None: the value of the setting.
        result_limit: bytes of answers that may be computed and not delivered; None: the value of the setting.
        weight: sinks of heavier queries are written first.
        latency_target: seconds that a batch may take; None for any.
    """

    place: int
    computation: int
    query: Query | None
    start: Start
    activity: Activity
    reset: bool = False
    sink_retry: float | None = None
    weight: float = 1.0
    latency_target: float | None = None
    result_limit: int | None = None


@dataclass(frozen=True)
class NextVersion:
    """What stands in a version.

    Args:
        command: the number of the last command that it contains.
        sources: by number.
        queries: by place.
        waiting: numbers of commands before `command` that it does not contain yet.
        in_step: by place, another one: a computation that comes from there takes over only where its heartbeat is not
            beyond that of the computation before it, so that no instant is left out.
    """

    command: int
    sources: Mapping[int, StandingSource] = field(default_factory=dict)
    queries: Mapping[int, StandingQuery] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    waiting: frozenset[int] = frozenset()
    in_step: Mapping[int, int] = field(default_factory=dict)

    @property
    def computations(self) -> frozenset[int]:
        """Return the computations of its queries."""
        return frozenset(query.computation for query in self.queries.values())

    @cached_property
    def standing(self) -> Mapping[int, tuple[int, Activity]]:
        """Return by place the computation that answers and what it does, for `reconcile.difference`."""
        return {place: (query.computation, query.activity) for place, query in self.queries.items()}

    def declares(self, sources: Collection[str]) -> bool:
        """Return whether it has all sources of some names."""
        return {one.source.name for one in self.sources.values()}.issuperset(sources)


@dataclass(frozen=True)
class EngineVersion:
    """The version that runs.

    Args:
        command: the number of the last command that it contains, 0 for none.
        heartbeats: by place, up to which tick the answer is final, where its time has begun.
        waiting: numbers of commands before `command` that it does not contain yet.
        begun: by place, of the queries that begin with the version: τ0, where their time had begun by then, of START
            NOW how far one of its streams had been read; the instant of START AT, or for which START WARM WAIT waits.
        sources: by name in lower case, up to which tick the elements of a source are complete, where time has begun.
        rows: by place, the rows that have been answered, where the engine counts them.
        ahead: by place, the first instant of queries that have not reached it.
        unseen: by place and source, the tick up to which a query did not see elements, where it began behind some.
        batch: its first batch, None where that is not known.
        punctuations: by name of a stream in lower case, how many it keeps, where it keeps some.
        exchanging: places whose computations have been exchanged, while instants of these still go to where they were
            before.
    """

    number: int
    command: int
    heartbeats: Mapping[int, int] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    begun: Mapping[int, int] = field(default_factory=dict)
    sources: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[int, int] = field(default_factory=dict)
    ahead: Mapping[int, int] = field(default_factory=dict)
    batch: int | None = None
    unseen: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    exchanging: frozenset[int] = frozenset()
    punctuations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineFigures:
    """What an engine has measured.

    Args:
        metrics: of the run; its queries and sources by the names that they have in the plan.
        places: the place of each query of the plan, by the name that it has there.
        retained: by name of a stream in lower case, the bytes that are retained of it, and after which tick all of its
            elements are, None for all.
        dead_letters: the folder of the dead letters; None where none are kept.
        rows_since: since when rows of sources and of results are counted, in seconds since 1970; None: since each
            began, also before a restart.
    """

    metrics: RunMetrics = field(default_factory=RunMetrics)
    run: RunFigures = field(default_factory=RunFigures)
    places: Mapping[str, int] = field(default_factory=dict)
    retained: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    dead_letters: str | None = None
    rows_since: float | None = None


@dataclass(frozen=True)
class EngineHealth:
    """Whether an engine processes batches.

    Args:
        batch: the number of the last one.
        seconds: since then, while there was something to read; None where nothing can be stalled.
        problem: why no batch can be processed; None where one can.
    """

    batch: int
    seconds: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class SelectScope:
    """What a one-time query reads beside what the engine keeps of its sources.

    Args:
        queries: by name in lower case, place and definition of those whose answers it reads.
        whole: by name in lower case, the inputs that are read as a whole.
        is_control: it reads control relations alone.
        is_light: these have few rows and it only compares and picks columns, so that it needs no process that can be
            ended.
    """

    queries: Mapping[str, tuple[int, Query]] = field(default_factory=dict)
    whole: Mapping[str, SourceRows] = field(default_factory=dict)
    is_control: bool = False
    is_light: bool = False


class ControlEnds(Exception):
    """Nothing goes on in this process, such as when the engine has ended by an error of its own; what has been accepted
    happens at the next start."""


def nothing_runs() -> PenstockError:
    """Return the error for what is read of an engine before its first version."""
    return PenstockError("P0711", "nothing runs yet, so nothing can be read", hint="ask again once a query answers")


def not_kept_here(query: Query) -> PenstockError:
    """Return the error for the results of a query of which the engine has none."""
    message, hint = f"the results of {query.name} are not kept here", "INTO names where its results are"
    return PenstockError("P0711", message, hint=hint)


def out_of_step(query: str) -> PenstockError:
    """Return the error for a query that would take over from one that is behind it."""
    return PenstockError("P0701", f"query {query} is ahead of the one whose place it is to take", hint="try again")


def with_instants(
    begun: Mapping[int, int], version: NextVersion, ahead: Mapping[int, int], sources: Mapping[str, int]
) -> dict[int, int]:
    """Return where queries begin, by place.

    Args:
        begun: what their sources had reached.
        ahead: the first instants of those that have not reached them.
        sources: by name in lower case, what each source had reached.
    """
    instants = dict(begun)
    for place in begun.keys() & version.queries.keys():
        standing = version.queries[place]
        if standing.start.at is not None:
            instants[place] = standing.start.at
        elif standing.start.mode is StartMode.NOW and standing.query is not None:
            # What has been read of a stream that is ahead of the others is in no answer.
            timed = timed_sources(standing.query.root).values()
            reached = (sources.get(source.name.lower()) for source in timed if source.is_stream)
            instants[place] = max((tick for tick in reached if tick is not None), default=begun[place])
        elif standing.start.wait and place in ahead and standing.query is not None:
            # The first elements of a stream are those behind the instant.
            instants[place] = ahead[place] - int(standing.query.root.is_stream)
    return instants


class EngineListener:
    """What follows an engine; its methods are called by any thread. This one ignores everything."""

    def failed(self, place: int, error: PenstockError) -> None:
        """A query has failed alone."""

    def batch(self, figures: BatchFigures, places: Mapping[str, int]) -> bool:
        """Take a batch before it counts as delivered: one that is repeated after a crash comes again, with the same
        number. Return whether rows have been posted. What it raises ends the run.

        Args:
            places: of queries by the names that they have in it.
        """
        return False

    def delivered(self, batch: Mapping[str, object]) -> None:
        """Take what there is to know of a batch that has been delivered, as JSON values."""


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
    """Runs the queries of a control. Its methods may be called while it changes."""

    def check(self, version: NextVersion) -> None:
        """Raise PenstockError for what this engine cannot do, as far as that is known before; nothing changes.

        Args:
            version: what is new in it or changes, without anything else.

        Raises:
            PenstockError: P0701 for a source or a sink that it does not have, P0703 for a past or a content that is not
                kept.
        """

    def awaited(self, query: Query) -> AwaitedRows | None:
        """Return what a query waits for, over the sources as the engine reads them, that begins when its last rows are
        there; None where it begins without that, and where no rows bring what it needs."""

    def start_option(self, query: Query, start: Start) -> StartOption:
        """Return whether a query, over the sources as the engine reads them, can begin with `start` now. It can with
        sources that nothing has read yet."""

    def starts(self, query: Query) -> Sequence[StartOption]:
        """Return how a new query could begin now, and what provides its past."""

    def prepare(self, version: NextVersion) -> Preparation | None:
        """Return the reader of the past of queries that begin with a version; None where reading takes no time."""

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        """Go over to a version. Called by one thread at a time.

        Args:
            prepared: has read the past of its new queries, while other versions may have come.

        Raises:
            PenstockError: nothing has changed.
            ControlEnds: the engine has ended.
            Exception: an unforeseen one; `version` shows whether it was raised before or after the change.
        """

    def version(self) -> EngineVersion:
        """Return the version that runs."""

    def figures(self) -> EngineFigures:
        """Return what has been measured up to the last batch; called by any thread."""

    def listen(self, listener: EngineListener) -> None:
        """Set what follows it."""

    def serve(self) -> None:
        """Process by itself what comes, until `close`; to be called once a version runs."""

    def tap(self, edge: TappedPort, rows: int) -> Tap:
        """Return the next rows that pass over an edge of the plan, as far as they can be had. Raises PenstockError
        P0711 before the first version.

        Args:
            edge: by the key of the step that receives them.
            rows: how many of them.
        """

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

    def has_read(self, source: int, post: int) -> bool:
        """Return whether a post of a source, and those before it, have been read and delivered, or nothing reads them.
        Both are given by their numbers."""

    def results(self, place: int, query: Query, request: ResultRequest) -> ResultSource:
        """Return a subscription to the results at a place. Raises PenstockError P0711 before the first version, for a
        place without results, and for a content that is not kept, P0712 for a cursor that is not theirs."""

    def select(self, query: OneTimeQuery, scope: SelectScope, statement: str, cancellation: Cancellation) -> LiveAnswer:
        """Return the answer of a one-time query; its staleness is None where it is as of no batch.

        Args:
            scope: what it may read.
            statement: its id, which no other statement that runs has.
            cancellation: ends it.

        Raises:
            PenstockError: P0711 for a content that is not kept, P0721 for other rows that are not, P0724 to P0726, and
                those of the query.
        """

    def health(self) -> EngineHealth:
        """Return whether batches are processed; called by any thread."""

    def ended_by(self) -> PenstockError | None:
        """Return the error that has ended the run, so that nothing goes on before another start; None without one."""

    def close(self) -> None:
        """Stop after the round in hand; the last version goes on when the engine is opened again."""
