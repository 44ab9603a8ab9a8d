"""The engine of a server: one run on Spark whose sources and queries change while it runs.

A query has the name `q<place>` there, so that its files go by a number that is never used again. What this engine
cannot do is refused before a command is accepted: a start whose past is not kept, and a relation whose result would go
on although its content is not known any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import AwaitedRows, Ticks
from penstock.control.engine import (
    Activity,
    ControlEnds,
    EngineFigures,
    EngineVersion,
    NextVersion,
    OnBatch,
    OnFailed,
    Preparation,
    StandingQuery,
    with_instants,
)
from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.physical.execution.flow_counts import TappedPort
from penstock.physical.execution.progress import NOTHING, timed_sources
from penstock.results.emitted import EmittedContents
from penstock.runtime.spark.catching_up.ahead import Ahead
from penstock.runtime.spark.catching_up.beside import ReadingBeside
from penstock.runtime.spark.catching_up.present_updates import present_updates
from penstock.runtime.spark.catching_up.start_options import heartbeat_at
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.planning_cache import PlanningCache
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.input.rate_control import RateControl
from penstock.runtime.spark.job import SparkRun
from penstock.runtime.spark.launch import launch
from penstock.runtime.spark.live_change import change, hydrate, option_of_start, rows_awaited
from penstock.runtime.spark.output.withheld import WithheldAnswers
from penstock.runtime.spark.retained.retained_log import RetainedLog
from penstock.runtime.spark.version import VersionInfo, stored_version
from penstock.runtime.spark.work import Work
from penstock.runtime.spark.worker.tapped import publish_taps
from penstock.runtime.watching.figures import BatchFigures
from penstock.runtime.watching.taps import Tap
from penstock.types import END

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "q"
#: What the record of a version says of a command before its last one that it does not contain.
WAITING = "WAITING"


def _no_one(place: int, error: PenstockError) -> None:
    """Ignore a failure that nothing listens for yet."""


class SparkPreparation:
    """See the contract `Preparation`. readings: those beside the run, of which this is one."""

    def __init__(self, reading: ReadingBeside, readings: list[ReadingBeside]) -> None:
        self.reading = reading
        self._readings = readings
        readings.append(reading)

    def read(self) -> None:
        self.reading.read()

    def shares(self) -> Mapping[int, float]:
        return {_place(name): share for name, share in self.reading.shares().items()}

    def end(self) -> None:
        self.reading.end()

    def discard(self) -> None:
        self.reading.release()
        if self.reading in self._readings:
            self._readings.remove(self.reading)


class SparkEngine:
    """See the contract `Engine`.

    Args:
        checkpoint: of the run; it begins or resumes with the first change.
        spark: returns the session, called when it is needed.
    """

    def __init__(self, checkpoint: Path, spark: Callable[[], SparkSession]) -> None:
        self._checkpoint = checkpoint
        self._spark = spark
        self._run: SparkRun | None = None
        self._lock = threading.Lock()
        #: By place, the track that answers, and whether it is paused.
        self._standing: dict[int, tuple[int, Activity]] = {}
        self._sources: frozenset[str] = frozenset()
        self._version = NextVersion(0)
        self._on_failed: OnFailed = _no_one
        self._on_batch: OnBatch | None = None
        #: The readings of a past beside the run; one at a time has the turn.
        self._readings: list[ReadingBeside] = []
        self._turn = threading.Lock()
        self._contents: EmittedContents | None = None
        #: The ticks in retained files, as far as queries have waited for rows.
        self._counts: dict[str, Ticks] = {}
        #: By place, the query as its user calls it, and as the run does.
        self._by_place: dict[int, tuple[Query, Query]] = {}

    def check(self, version: NextVersion) -> None:
        moved = self._moved(version)
        for place, query in version.queries.items():
            former = self._standing.get(place)
            if query.query is None or query.activity is not Activity.RUNNING or (former and former[0] == query.track):
                continue
            if not query.query.root.is_stream and former is not None and not query.reset:
                self._check_content(place, query.query)
            if _name(place) not in moved:
                self._check_start(query.query, query.start)

    def awaited(self, query: Query) -> AwaitedRows | None:
        run = self._run
        if run is None or not timed_sources(query.root).keys() <= self._sources:
            return None
        found = rows_awaited(run, query, self._counts)
        if found is None or found.tick is not None:
            self._counts = {}
        return found

    def prepare(self, version: NextVersion) -> Preparation | None:
        run = self._run
        if run is None or not run.is_live:
            return None
        added = {place: query for place, query in version.queries.items() if not self._stands(place, version)}

        def begin() -> Ahead | None:
            """Other versions may have come since."""
            queries = {**self._version.queries, **added}
            sources = {**self._version.sources, **version.sources}
            work = self._work(replace(version, queries=queries, sources=sources))
            try:
                return hydrate(Folder(run.checkpoint / "penstock"), run, work)
            except PenstockError as error:
                raise _named(error, queries) from error

        share = float(version.settings["hydrate_share"])
        return SparkPreparation(ReadingBeside(begin, share, lambda: run.busy, self._turn), self._readings)

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        own = prepared.reading if isinstance(prepared, SparkPreparation) else None
        with self._lock, suspended([one for one in self._readings if one is not own]):
            self._contents = self._contents or EmittedContents(self._checkpoint)
            work = self._work(version)
            try:
                if self._run is None:
                    # Nobody taps an edge any more.
                    publish_taps(Folder(self._checkpoint / "penstock").root, frozenset())
                    self._run = launch(work, str(self._checkpoint), False, self._failed)
                else:
                    change(self._run, work, False, None if own is None else own.take())
            except Exception as error:
                if self._run is not None and (failure := self._run.error) is not None:
                    # Not an error of the version: what has been accepted waits for the next start.
                    raise ControlEnds(f"the run has ended with {failure.code}: {failure.message}") from failure
                if isinstance(error, PenstockError):
                    raise _named(error, version.queries) from error
                raise
            begins = [place for place in version.queries if not self._stands(place, version)]
            self._standing = {place: (query.track, query.activity) for place, query in version.queries.items()}
            self._sources, self._version = frozenset(work.sources), version
            if own is not None:
                own.release()
            if self._run.rounds is not None:
                self._run.rounds.steer(RateControl.of(work.settings, len(work.queries), work.latency_target))
        self._tell_left_out(work, self._run)
        found = self._run.version()
        begun = _begun(version, begins, found.offset)
        waits = any(version.queries[place].start.wait for place in begun)
        begun = with_instants(begun, version, self._ahead() if waits else {})
        return replace(_engine_version(found), begun=begun)

    def version(self) -> EngineVersion:
        found = stored_version(self._checkpoint) if self._run is None else self._run.version()
        if found is None:
            return EngineVersion(0, 0)
        exchanging = self._exchanging(found)
        return replace(_engine_version(found), ahead=self._ahead(), unseen=self._unseen(), exchanging=exchanging)

    def figures(self) -> EngineFigures:
        run = self._run
        if run is None:
            return EngineFigures()
        figures = run.recorder.figures()
        folder = Folder(run.checkpoint / "penstock")
        retained = {}
        for source in run.job.intake.sources:
            if source.retain is not None:
                log = RetainedLog(folder, source_file(source.name, run.job.intake.births))
                retained[source.name.lower()] = log.nbytes, log.after
        names = [*run.job.plan.queries, *(figures.plan.queries if figures.plan is not None else ())]
        places = {name: _place(name) for name in names}
        return EngineFigures(run.metrics(), figures, places, retained, run.dead_letters)

    def listen(self, on_failed: OnFailed) -> None:
        self._on_failed = on_failed

    def follow(self, on_batch: OnBatch) -> None:
        self._on_batch = on_batch

    def tap(self, edge: TappedPort, rows: int) -> Tap:
        run = self._run
        if run is None:
            raise PenstockError("P0711", "nothing runs yet, so no rows pass")
        taps, root = run.recorder.taps, Folder(run.checkpoint / "penstock").root
        taps.publish = partial(publish_taps, root)
        return taps.begin(edge, rows)

    def wake(self) -> None:
        """The run looks for posted rows by itself."""

    def unread(self) -> int:
        run = self._run
        if run is None or run.rounds is None:
            return 0
        posted = {source.name for source in run.work.sources.values() if source.connector == "POSTED"}
        return sum(size for name, size in run.rounds.unread().items() if name in posted)

    def updates(self, source: Source) -> Sequence[Elements] | None:
        run = self._run
        if run is None or run.rounds is None:
            return None
        folder = Folder(run.checkpoint / "penstock")
        return present_updates(folder, run.job.intake, run.rounds, run.relations, source.name)

    def close(self) -> None:
        if self._run is not None:
            self._run.stop()
            self._run = None
        if self._contents is not None:
            self._contents.close()
            self._contents = None

    @property
    def run(self) -> SparkRun | None:
        """Return the run, None before the first change."""
        return self._run

    def _ahead(self) -> dict[int, int]:
        """Return by place the first instant of queries that have not reached it."""
        if self._run is None or not self._run.epoch.shown:
            return {}
        folder = Folder(self._checkpoint / "penstock")
        kept, batch = WithheldAnswers(folder), folder.delivered().batch + 1
        found = {name: kept.read(name, since, batch) for name, since in self._run.epoch.shown.items()}
        return {
            _place(n): withheld.first for n, withheld in found.items() if withheld is not None and not withheld.done
        }

    def _exchanging(self, found: VersionInfo) -> frozenset[int]:
        """Return the places of streams of which instants still go to the sinks that they had before an exchange."""
        if self._run is None:
            return frozenset()
        routes = self._run.epoch.routes.items()
        return frozenset(
            _place(name) for name, route in routes if any(tick > found.queries.get(name, tick - 1) for tick, _ in route)
        )

    def _unseen(self) -> dict[int, dict[str, int]]:
        """Return by place and source up to which tick a query did not see elements."""
        if self._run is None:
            return {}
        epoch = self._run.epoch
        maturity = epoch.maturity
        begun = {name: maturity.get(record.birth) for name, record in epoch.queries.items()}
        return {_place(name): dict(one.ahead) for name, one in begun.items() if one is not None and one.ahead}

    def _stands(self, place: int, version: NextVersion) -> bool:
        """Return whether a query of a version goes on in it."""
        query = version.queries[place]
        return self._standing.get(place) == (query.track, query.activity)

    # -- from a version to the work of a run -------------------------------------------------------------------

    def _work(self, version: NextVersion) -> Work:
        standing = [one for one in version.queries.values() if one.activity is not Activity.PAUSED]
        self._by_place = {
            one.place: self._by_its_place(one.place, one.query) for one in standing if one.query is not None
        }
        queries = [named for _, named in self._by_place.values()]
        paused = frozenset(_name(place) for place, one in version.queries.items() if one.activity is Activity.PAUSED)
        silent = frozenset(_name(place) for place, one in version.queries.items() if one.activity is Activity.SILENT)
        return Work(
            tuple(queries), {}, {}, version.settings, False, self._spark, live=True, standing=True,
            declared={one.source.name: one.source for one in version.sources.values()},
            starts=self._starts(version), paused=paused, silent=silent, moved=self._moved(version), pause_failed=True,
            in_step=self._in_step(version),
            command=version.command, reset=frozenset(_name(one.place) for one in standing if one.reset),
            outcomes={str(number): WAITING for number in sorted(version.waiting)},
            contents=None if self._contents is None else self._contents.read,
            weights={_name(one.place): one.weight for one in standing if one.weight != 1},
            latency_targets={_name(one.place): one.latency_target for one in standing if one.latency_target},
            sink_retries={_name(one.place): one.sink_retry for one in standing if one.sink_retry is not None},
            result_limits={_name(one.place): one.result_limit for one in standing if one.result_limit is not None},
            on_batch=self._note, cache=PlanningCache() if self._run is None else self._run.work.cache,
        )  # fmt: skip

    def _by_its_place(self, place: int, query: Query) -> tuple[Query, Query]:
        """Return a query, and the same by the name that the run has for it: the same object from version to version, by
        which the run sees that nothing of it changes."""
        known = self._by_place.get(place)
        return known if known is not None and known[0] is query else (query, replace(query, name=_name(place)))

    def _starts(self, version: NextVersion) -> Mapping[str, Start]:
        """Return where the queries begin that are not in the version before."""
        if self._run is None:
            # What stands goes on from its checkpoint.
            return {}
        moved = self._moved(version)
        return {
            _name(place): query.start
            for place, query in version.queries.items()
            if self._standing.get(place, (None, None))[0] != query.track and _name(place) not in moved
        }

    def _moved(self, version: NextVersion) -> Mapping[str, str]:
        """Return the queries that answer with the track of another place."""
        places = {track: place for place, (track, _) in self._standing.items()}
        found = {place: places.get(query.track, place) for place, query in version.queries.items()}
        return {_name(place): _name(former) for place, former in found.items() if former != place}

    def _in_step(self, version: NextVersion) -> frozenset[str]:
        """Return the queries that take over only where they are not ahead of what answers in their place."""
        moved = self._moved(version)
        pairs = ((_name(place), _name(former)) for place, former in version.in_step.items())
        return frozenset(name for name, former in pairs if moved.get(name) == former)

    def _check_content(self, place: int, query: Query) -> None:
        """Raise PenstockError P0703 where the content of a relation is not known whose result is to continue."""
        result = None if self._run is None else self._run.version().results.get(_name(place))
        if self._contents is None or result is None:
            return
        try:
            self._contents.read(result)
        except PenstockError as error:
            message = f"query {query.name} cannot continue its result: {error.message}"
            raise PenstockError("P0703", message, hint="RESET begins the result again") from error

    def _check_start(self, query: Query, start: Start) -> None:
        """Raise PenstockError P0703 where the past that a query begins with is not kept. A source that nothing has read
        yet begins with the query."""
        if self._run is None or not timed_sources(query.root).keys() <= self._sources:
            return
        option = option_of_start(self._run, query, start)
        if option.obstacles:
            now = start.mode is StartMode.NOW
            hint = "declare the relation again, together with the query" if now else "START NOW"
            if start.mode is StartMode.WARM and not start.wait:
                hint = "START NOW begins with empty windows, START WARM WAIT when nothing is missing any more"
            message = f"query {query.name} cannot START {start.words}: {'; '.join(option.obstacles)}"
            raise PenstockError("P0703", message, hint=hint)

    # -- failures ----------------------------------------------------------------------------------------------

    def _failed(self, name: str, error: PenstockError) -> None:
        self._on_failed(_place(name), _named(error, self._version.queries))

    def _note(self, batch: BatchFigures) -> None:
        if self._on_batch is not None:
            self._on_batch(batch, {name: _place(name) for name in batch.rows_out})

    def _tell_left_out(self, work: Work, run: SparkRun) -> None:
        """Report the queries that the run leaves out because they failed before this start."""
        there = {query.name for query in run.work.queries}
        for query in work.queries:
            if query.name not in there:
                error = PenstockError("P0601", "the query failed before the last start", hint="RESUME begins it again")
                self._failed(query.name, error)


@contextmanager
def suspended(readings: Collection[ReadingBeside]) -> Iterator[None]:
    """Have readings stop for a change."""
    try:
        for reading in readings:
            reading.suspend()
        yield
    finally:
        for reading in readings:
            reading.resume()


def _name(place: int) -> str:
    return f"{_PREFIX}{place}"


def _place(name: str) -> int:
    return int(name.removeprefix(_PREFIX))


def _engine_version(found: VersionInfo) -> EngineVersion:
    beats = {_place(name): tick for name, tick in found.queries.items()}
    waiting = frozenset(int(number) for number, state in found.outcomes.items() if state == WAITING)
    sources = {name.lower(): tick for name, tick in found.sources.items() if NOTHING < tick < END}
    rows = {_place(name): count for name, count in found.rows.items()}
    return EngineVersion(
        found.number, found.command, beats, waiting=waiting, sources=sources, rows=rows, batch=found.batch
    )


def _begun(version: NextVersion, places: Iterable[int], offset: Offset | None) -> dict[int, int]:
    """Return τ0 of the queries at some places, those left out whose time had not begun.

    offset: up to which the sources had been read when the version began.
    """
    queries = {place: version.queries[place] for place in places}
    running = {p: one.query for p, one in queries.items() if one.query is not None and one.activity is Activity.RUNNING}
    ticks = {} if offset is None else {place: heartbeat_at(query, offset) for place, query in running.items()}
    return {place: tick for place, tick in ticks.items() if tick != NOTHING}


def _named(error: PenstockError, queries: Mapping[int, StandingQuery]) -> PenstockError:
    """Return an error with the names of queries that their user knows."""
    message = error.message
    for place, query in queries.items():
        known: Query | None = query.query
        if known is not None:
            message = message.replace(f"query {_name(place)} ", f"query {known.name} ")
            message = message.replace(f"query {_name(place)}:", f"query {known.name}:")
    code, hint = error.code, error.hint
    if code == "P0607":
        # What it says is for a script that is run: at a server the same start is refused with this code.
        code, hint = "P0703", "START NOW"
    return PenstockError(code, message, error.position, hint, error.cause)
