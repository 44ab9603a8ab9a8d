"""An engine in this process and without Spark, over sources that end and rows that are posted.

For trying things out and for tests. With a folder, it goes on in another process: what has changed of its state is
written after each change and each round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.algebra.properties.need import AwaitedRows, missing_rows
from penstock.connectors.contract import ParsedRecords
from penstock.connectors.deadletters import MALFORMED, DeadLetters
from penstock.connectors.sources import open_source, read_split
from penstock.connectors.sources.posted_files import PostedFilesSource, post_of
from penstock.control.engine import (
    Activity,
    EngineFigures,
    EngineHealth,
    EngineListener,
    EngineVersion,
    NextVersion,
    Preparation,
    SelectScope,
    StandingQuery,
    not_kept_here,
    nothing_runs,
    out_of_step,
    with_instants,
)
from penstock.control.entities.batches import LOG_NAME
from penstock.control.life.reconcile import difference
from penstock.control.sealed_files import not_written
from penstock.engines.in_process_input import kept_input
from penstock.engines.in_process_results import InProcessResults
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.expressions.user_calls import limited_calls
from penstock.physical.elements import Elements
from penstock.physical.execution.flow_counts import TappedPort
from penstock.physical.execution.progress import NOTHING, timed_sources
from penstock.physical.execution.step_failures import StepFailures, with_names
from penstock.results.cancellation import Cancellation
from penstock.results.live_state import EmittedRows, LiveState
from penstock.results.result_source import ResultRequest
from penstock.results.run_input import newest_of
from penstock.results.select import LiveAnswer, LiveReader
from penstock.results.select_workers import SelectWorkers
from penstock.runtime.decisions.deciders import DecidingOptions, QueryPolicies
from penstock.runtime.live import LiveEngine, LiveSnapshot
from penstock.runtime.live.answers import KeptAnswers
from penstock.runtime.live.starts import StartOption, starts_by
from penstock.runtime.live.state_folder import StateFolder
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.local.statics import accepted_rows
from penstock.runtime.monitoring.taps import Tap, Taps
from penstock.runtime.reporting import ReportOptions
from penstock.runtime.result_limits import ResultLimits, free_bytes
from penstock.storage import storage
from penstock.types import END

LOG = logger_of("server")
#: As much of the disk as limits of answers suppose to be free at most, in bytes.
_MOST_KEPT = 8 * 2**30
#: Sinks whose answers are collected here.
_COLLECTED = ("MEMORY", "RESULTS", "CONSOLE")


@dataclass
class _State:
    """What is saved beside the state of the queries.

    Args:
        sources: by number.
        standing: by place, its computation and what it does.
        heartbeats: by number of a stream whose rows are not posted, what its heartbeats are read from.
        posts: by number of a source whose rows or heartbeats are posted, the last post that has been read.
        paths: by number of another source, the paths that have been read.
        answers: by place.
        complete: by place, the instant up to which these are complete.
        delivered: when the last round ended, in seconds since 1970; None before the first.
        waiting: numbers of commands before `command` that are not contained.
    """

    number: int = 0
    command: int = 0
    sources: dict[int, Source] = field(default_factory=dict)
    standing: dict[int, tuple[int, Activity]] = field(default_factory=dict)
    heartbeats: dict[int, Source] = field(default_factory=dict)
    posts: dict[int, int] = field(default_factory=dict)
    paths: dict[int, frozenset[str]] = field(default_factory=dict)
    answers: dict[int, KeptAnswers] = field(default_factory=dict)
    complete: dict[int, int] = field(default_factory=dict)
    delivered: float | None = None
    waiting: frozenset[int] = frozenset()

    def copy(self) -> _State:
        """Return the state as it is now; the rows of answers are shared with it."""
        return replace(
            self,
            sources=dict(self.sources),
            standing=dict(self.standing),
            heartbeats=dict(self.heartbeats),
            posts=dict(self.posts),
            paths=dict(self.paths),
            answers=dict(self.answers),
            complete=dict(self.complete),
        )


class InProcessEngine:
    """See the contract `Engine`.

    Args:
        folder: where its state is kept; None to keep none.
        workers: compute one-time queries, end with this.
    """

    def __init__(self, folder: Path | None = None, shards: int = 1, workers: SelectWorkers | None = None) -> None:
        self._folder = None if folder is None else StateFolder(folder)
        self._letters = None if folder is None else DeadLetters(str(folder / "dead-letters"))
        #: Whether the letters of the next round may have been written before, by a round that was not saved.
        self._repeats = True
        self._lock = threading.RLock()
        self._live = LiveEngine(shards)
        self._listener = EngineListener()
        # All answers are kept in memory, and on disk.
        self._free = min(free_bytes(Path.cwd() if folder is None else folder), _MOST_KEPT)
        self._limits = ResultLimits.of(0, self._free, {})
        self._function_seconds: float | None = None
        #: By the name that they have here, how their user calls queries.
        self._names: dict[str, str] = {}
        #: Computations that failed alone. A version that was made before says that they run: they stay paused until one
        #: pauses them, which is always between the failure and RESUME.
        self._failed: set[int] = set()
        self._taps = Taps()
        self._workers = workers or SelectWorkers()
        #: Whether there may be something to read.
        self._woken = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        #: Is notified after each round.
        self._rounded = threading.Condition()
        #: The rounds that have been run by `serve`, and what the last one failed with.
        self._rounds, self._failure = 0, ""
        #: The error that has ended the rounds.
        self._ended: PenstockError | None = None
        #: By computation, why its state is lost.
        self._lost: dict[int, Exception] = {}
        kept = None if self._folder is None else self._folder.read()
        self._state = _State()
        #: Whether there has been a version.
        self._runs = kept is not None
        if kept is not None:
            live, rest = kept
            assert isinstance(rest, _State), "it is what was saved"
            self._state = rest
            self._live = self._restored(live)
        #: The state as it was after the last change or round.
        self._kept = self._live.snapshot(), self._state.copy()

    def _restored(self, live: LiveSnapshot) -> LiveEngine:
        """Return the engine that goes on. Where a query cannot be planned any more, by an internal error, the others
        go on, and the next version cannot have it as it was."""
        try:
            return LiveEngine.restored(live)
        except Exception:
            kept, errors = live.without_unplanned()
            if not errors:
                raise
            for name, error in errors.items():
                computation, _ = self._state.standing[int(name)]
                self._state.standing[int(name)] = computation, Activity.PAUSED
                self._lost[computation] = error
            return LiveEngine.restored(kept)

    # -- the contract ------------------------------------------------------------------------------------------

    def check(self, version: NextVersion) -> None:
        for standing in version.sources.values():
            _check_source(standing.source)
        for standing_query in version.queries.values():
            query = standing_query.query
            if query is None:
                continue
            if query.sink.connector not in _COLLECTED:
                message = f"query {query.name}: without Spark nothing is written INTO {query.sink.connector}"
                raise PenstockError("P0701", message, hint="leave INTO out")
            if standing_query.start.mode is StartMode.NOW:
                continue  # it needs no past, so nothing waits for the change in hand
            with self._lock:
                known = all(self._live.is_declared(source.name) for source in _sources(query))
                is_paused = standing_query.activity is Activity.PAUSED
                stands = is_paused or standing_query.computation in self._computations()
                if known and not stands:
                    self._live.check(query, standing_query.start)

    def start_option(self, query: Query, start: Start) -> StartOption:
        with self._lock:
            if not all(map(self._live.is_declared, timed_sources(query.root))):
                return StartOption(start, {})  # it begins with its sources
            awaited = self._live.awaited(query) if start.wait else None
            if awaited is not None and awaited.rows:
                return StartOption(start, {}, missing=missing_rows(awaited.rows))
            try:
                self._live.check(query, start)
            except PenstockError as error:
                return StartOption(start, {}, (error.message,))
            return StartOption(start, {})

    def starts(self, query: Query) -> Sequence[StartOption]:
        return starts_by(partial(self.start_option, query))

    def awaited(self, query: Query) -> AwaitedRows | None:
        with self._lock:
            return self._live.awaited(query)

    def prepare(self, version: NextVersion) -> Preparation | None:
        """Return None: the past is in memory."""
        return None

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        names = {str(one.place): one.query.name for one in version.queries.values() if one.query is not None}
        with self._lock:
            try:
                if self._apply(version):
                    self._state.number += 1
                self._live.decide_by(_deciding(version))
                self._live.keep_punctuations(version.settings.get_int("punctuations"))
                self._limits = self._limits_of(version)
                self._function_seconds = float(version.settings["function_timeout"]) or None
                self._names = names
                self._state.command, self._state.waiting = version.command, version.waiting
                found = self.version()
                found = replace(found, begun=with_instants(found.heartbeats, version, found.ahead, found.sources))
                # From here on it has happened.
                self._save()
                self._failed &= _running(version)
                self._runs = True
            except BaseException as error:
                self._take_back()
                if isinstance(error, PenstockError):
                    raise with_names(error, names) from error
                raise
        self._woken.set()
        return found

    def _take_back(self) -> None:
        """Go back to the state after the last change or round."""
        live, state = self._kept
        self._state = state.copy()
        self._live = self._restored(live)

    def version(self) -> EngineVersion:
        with self._lock:
            places = [place for place, (_, activity) in self._state.standing.items() if activity is not Activity.PAUSED]
            beats = {place: self._live.heartbeat(str(place)) for place in places}
            known = {place: tick for place, tick in beats.items() if tick is not None}
            sources = {name.lower(): tick for name, tick in self._live.source_heartbeats().items()}
            firsts = {place: self._live.first_ahead(str(place)) for place in places}
            ahead = {place: tick for place, tick in firsts.items() if tick is not None}
            unseen = {place: found for place in places if (found := self._live.unseen(str(place)))}
            return EngineVersion(
                self._state.number,
                self._state.command,
                known,
                self._state.waiting,
                sources=sources,
                ahead=ahead,
                batch=self._live.rounds,
                unseen=unseen,
                punctuations={name.lower(): count for name, count in self._live.punctuations().items()},
            )

    def figures(self) -> EngineFigures:
        with self._lock:
            live = self._live.figures()
            places = {name: int(place) for name, place in live.places.items()}
            letters = None if self._letters is None else self._letters.directory
            return EngineFigures(live.metrics, live.run, places, dead_letters=letters, rows_since=live.run.since)

    def listen(self, listener: EngineListener) -> None:
        """Queries of this engine fail alone where an operator of theirs raises, and where they have more answers than
        their limit."""
        self._listener = listener

    def tap(self, edge: TappedPort, rows: int) -> Tap:
        if not self._runs:
            raise nothing_runs()
        return self._taps.begin(edge, rows)

    def wake(self) -> None:
        self._woken.set()

    def unread(self) -> int:
        sources = dict(self._state.sources).items()
        paths = (path for number, one in sources if one.connector == "POSTED" for path in self._fresh(number, one))
        return sum(storage().size(Path(path)) for path in paths if storage().exists(Path(path)))

    def updates(self, source: Source) -> Sequence[Elements] | None:
        """Return None: the posts are read."""
        return None

    def has_read(self, source: int, post: int) -> bool:
        with self._lock:
            declared = self._state.heartbeats.get(source, self._state.sources.get(source))
            if declared is None or declared.is_static or declared.connector != "POSTED":
                return True
            if self._state.posts.get(source, 0) >= post:
                return True
            return all(post_of(path) > post for path in self._fresh(source, declared))

    def results(self, place: int, query: Query, request: ResultRequest) -> InProcessResults:
        if not self._runs:
            raise nothing_runs()
        if place not in self._state.standing:
            raise not_kept_here(query)
        return InProcessResults(partial(self._answered, place), self._rounded, place, query, request)

    def select(self, query: OneTimeQuery, scope: SelectScope, statement: str, cancellation: Cancellation) -> LiveAnswer:
        # What the last round or command has left: a round that runs meanwhile is not waited for.
        live, kept = self._kept
        read = {name.lower() for name in sources_of(query)}
        past, updates = kept_input(live, kept.sources.values(), read)
        contents, elements = _answers_of(kept, scope)
        newest = {name.lower(): one.high for name, one in live.progress.items() if one.high is not None}
        newest |= newest_of({key: ("", one) for key, (_, one) in scope.queries.items()}, newest)
        whole = {name: rows for name, rows in scope.whole.items() if name not in {**past, **updates}}
        delivered = kept.delivered if read - whole.keys() else None
        state = LiveState(live.rounds - 1, delivered, contents, {**elements, **past}, updates, whole, newest)
        reader = LiveReader(lambda: state) if scope.is_light else self._workers.reader(state)
        return reader.answer(query, cancellation)

    def health(self) -> EngineHealth:
        # A round runs only when there is something new, so nothing is stalled.
        failure = self._failure
        return EngineHealth(self._rounds, problem=f"the last round failed with {failure}" if failure else None)

    def ended_by(self) -> PenstockError | None:
        """Return the error of a row that ON ERROR FAIL ends the run for; another round that has failed is tried again
        with the next rows."""
        return self._ended

    def close(self) -> None:
        """Everything is saved already."""
        self._ending = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()
        self._workers.close()

    # -- rounds and answers ------------------------------------------------------------------------------------

    def serve(self) -> None:
        self._thread = threading.Thread(target=self._run_rounds, name="penstock-rounds", daemon=True)
        self._thread.start()

    def _run_rounds(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            if self._ending:
                return
            try:
                self.round()
                self._failure = ""
            except Exception as error:
                # Nothing has been read by it, and it is tried again with the next rows.
                self._note_failure(error)
                if isinstance(error, PenstockError) and error.code == MALFORMED:
                    self._ended = error
                    return
            with self._rounded:
                self._rounds += 1
                self._rounded.notify_all()
            self._listener.delivered({"number": self._rounds, "version": self.version().number})

    def _note_failure(self, error: Exception) -> None:
        """Log why a round has failed, unless the one before failed so too."""
        what = (
            f"{error.code}: {error.message}" if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        )
        if what != self._failure:
            hint: str | None = "it is an error of no single operator: drop or pause the query that was begun last"
            if isinstance(error, PenstockError) and error.code == MALFORMED:
                hint = error.hint
            log_event(
                LOG, logging.ERROR, "failed", f"no rows are read, as a round has failed with {what}", error, hint=hint
            )
        self._failure = what

    def round(self) -> None:
        """Read what has been posted, and answer."""
        with self._lock:
            try:
                for number, source in self._state.sources.items():
                    self._read(number, source)
                with limited_calls(self._function_seconds):
                    answers = self._live.round(self._taps, StepFailures(*self._limits.between_operators(1)))
                self._keep_rejected(self._live.rounds - 1)
                for place, table in answers.items():
                    self._add(int(place), table)
                failed = self._end_failed() | self._end_exceeding()
                figures = self._live.figures()
                places = {name: int(place) for name, place in figures.places.items()}
                posted = self._listener.batch(figures.run.batches[-1], places)
                self._state.delivered = time.time()
                self._save()
                self._repeats = False
            except BaseException:
                self._take_back()
                self._repeats = True
                raise
            if posted or self._live.is_behind:
                self.wake()
            for which, error in failed.items():
                self._listener.failed(which, error)
            for number, source in {**self._state.sources, **self._state.heartbeats}.items():
                connector = open_source(source) if source.is_stream else None
                if isinstance(connector, PostedFilesSource):
                    connector.forget_up_to(self._state.posts.get(number, 0))

    def _keep_rejected(self, number: int) -> None:
        """Write the dead letters of a round, before what it has read is saved: where it is run again, they are written
        again."""
        if self._letters is None:
            return
        rejected = self._live.rejected
        for name in self._live.sources if self._repeats else rejected:
            letters = rejected[name].letters if name in rejected else []
            if letters or self._repeats:
                self._letters.write(name, number, 0, letters)

    def _end_failed(self) -> dict[int, PenstockError]:
        """Pause the queries of which a step has failed in the round; return the error of each by place."""
        failed: dict[int, PenstockError] = {}
        for name, error in dict(self._live.failed).items():
            failed[int(name)] = with_names(error, self._names)
            self._pause(name)
        return failed

    def _pause(self, name: str) -> None:
        computation, activity = self._state.standing[int(name)]
        if activity is not Activity.PAUSED:
            self._live.pause(name)
            self._state.standing[int(name)] = computation, Activity.PAUSED
        self._failed.add(computation)

    def _end_exceeding(self) -> dict[int, PenstockError]:
        """Pause the queries with more answers than their limit, and drop these; return the error of each by place. All
        answers are kept in memory here, so that all of them count."""
        failed: dict[int, PenstockError] = {}
        sizes = {str(place): kept.nbytes for place, kept in self._state.answers.items()}
        while (over := self._limits.exceeded(sizes)) is not None:
            place = int(over)
            failed[place] = self._limits.error(over, sizes.pop(over))
            self._pause(over)
            # What has been emitted is gone, so the next answer is whole.
            self._live.begin_again(over)
            self._state.answers[place] = self._state.answers[place].begun_again()
            self._state.complete.pop(place, None)
        return failed

    def _limits_of(self, version: NextVersion) -> ResultLimits:
        own = {str(one.place): one.result_limit for one in version.queries.values() if one.result_limit is not None}
        return ResultLimits.of(version.settings["result_limit"], self._free, own)

    def answers(self, place: int) -> list[pa.Table]:
        """Return what has been emitted at a place."""
        with self._lock:
            kept = self._state.answers.get(place)
            return [] if kept is None else list(kept.parts)

    def _answered(self, place: int) -> tuple[KeptAnswers, int | None]:
        """Return what is kept of the answers at a place, and the instant up to which these are complete, None before
        the first."""
        with self._lock:
            return self._state.answers.get(place, KeptAnswers()), self._state.complete.get(place)

    def _fresh(self, number: int, source: Source) -> list[str]:
        """Return the paths of a source that have not been read."""
        connector = open_source(source)
        if isinstance(connector, PostedFilesSource):
            return connector.behind(self._state.posts.get(number, 0))
        return connector.discover(self._state.paths.get(number, frozenset()))

    def _read(self, number: int, source: Source) -> None:
        """Read new rows of a source, behind its new heartbeats where these do not come with the rows."""
        if number in self._state.heartbeats:
            self._read_posts(number, self._state.heartbeats[number])
        if source.connector == "POSTED":
            self._read_posts(number, source)
            return
        if source.is_static or not (fresh := self._fresh(number, source)):
            return
        for records, origin in _records(source, fresh):
            self._live.insert(source.name, records, origin)
        self._state.paths[number] = self._state.paths.get(number, frozenset()).union(fresh)

    def _read_posts(self, number: int, source: Source) -> None:
        """Read new posts of a source: rows and heartbeats."""
        if source.is_static or not (fresh := self._fresh(number, source)):
            return
        for records, origin in _records(source, fresh):
            self._live.insert(source.name, records, origin)
        if source.name == LOG_NAME:
            # The clock is not read, and no other row has the timestamp of its last one.
            self._live.close(source.name)
        # Numbers of posts are never used again, and these are in their order.
        self._state.posts[number] = post_of(fresh[-1])

    def _add(self, place: int, table: pa.Table) -> None:
        if table.num_rows:
            before = self._state.answers.get(place, KeptAnswers())
            self._state.answers[place] = before.followed_by(table)

    # -- versions ----------------------------------------------------------------------------------------------

    def _computations(self) -> dict[int, int]:
        """Return the place of each computation that runs."""
        standing = self._state.standing.items()
        return {computation: place for place, (computation, activity) in standing if activity is not Activity.PAUSED}

    def _apply(self, version: NextVersion) -> bool:
        """Go over to a version in memory; return whether anything has changed."""
        state, queries = self._state, version.queries
        due = difference(version, state.standing)
        for place in due.ended:
            self._live.drop(str(place))
            del state.standing[place]
            state.answers.pop(place, None)
            state.complete.pop(place, None)
        changed = self._change_sources(version) or bool(due.ended)
        for place, other in due.exchanged:
            self._exchange(place, other, version)
        for place in due.begun:
            self._begin(place, queries[place])
        failed = self._failed & _running(version)
        activities = {place: a for place, a in due.activities.items() if queries[place].computation not in failed}
        for place, activity in activities.items():
            self._set_activity(place, queries[place].computation, activity)
        return changed or bool(due.exchanged or due.begun or activities)

    def _change_sources(self, version: NextVersion) -> bool:
        state = self._state
        changed = False
        for number in [n for n, source in state.sources.items() if n not in version.sources]:
            self._live.undeclare(state.sources.pop(number).name)
            state.heartbeats.pop(number, None)
            state.posts.pop(number, None)
            state.paths.pop(number, None)
            changed = True
        for number, standing in version.sources.items():
            source, former = standing.source, state.sources.get(number)
            # All posts of a relation stay with it, so that its past is there.
            retain = (source.retain or 0) if source.is_stream else None
            if former is not None and former != source:
                self._live.undeclare(former.name)
            if former != source:
                changed = True
                if not source.is_static:
                    self._live.declare(source, retain)
            elif former is not None and former.retain != source.retain:
                self._live.retain(source.name, retain)
            if former is not None and former == source and former.is_observed != source.is_observed:
                self._live.redeclare(source)
            state.sources[number] = source
            if standing.heartbeats is not None:
                state.heartbeats[number] = standing.heartbeats
        return changed

    def _exchange(self, place: int, other: int, version: NextVersion) -> None:
        """Have the computations of two places exchange them."""
        if version.in_step.get(place) == other:
            former, new = (self._live.heartbeat(str(each)) for each in (place, other))
            if former is None or new is None or new > former:
                query = version.queries[place].query
                raise out_of_step("" if query is None else query.name)
        for number, table in self._live.swap(str(place), str(other)).items():
            self._add(int(number), table)
        standing = self._state.standing
        standing[place], standing[other] = standing[other], standing[place]

    def _begin(self, place: int, query: StandingQuery) -> None:
        """Begin a new computation."""
        assert query.query is not None, "what begins is bound"
        named = replace(query.query, name=str(place))
        for source in _sources(named):
            if source.is_static and not self._live.has_read(source):
                self._live.declare_static(source, accepted_rows(source, self._letters)[0])
        if place not in self._state.standing:
            table = self._live.register(named, query.start)
        else:
            table = self._live.replace(str(place), named, query.start)
        self._add(place, table)
        self._state.standing[place] = query.computation, Activity.RUNNING

    def _set_activity(self, place: int, computation: int, activity: Activity) -> None:
        if activity is not Activity.PAUSED and computation in self._lost:
            raise self._lost[computation]
        if activity is Activity.RUNNING:
            self._add(place, self._live.resume(str(place)))
        else:
            self._live.pause(str(place), with_state=activity is Activity.SILENT)
        self._state.standing[place] = self._state.standing[place][0], activity

    def _save(self) -> None:
        """Note up to where answers are complete, and write what has changed where it is kept."""
        for place in self._state.standing:
            tick = self._live.answered(str(place))
            if tick > NOTHING:
                self._state.complete[place] = max(tick, self._state.complete.get(place, tick))
        live, state = self._live.snapshot(), self._state.copy()
        if self._folder is not None:
            try:
                self._folder.save(live, state)
            except OSError as error:
                raise not_written(self._folder.path, error) from error
        self._kept = live, state


def _answers_of(state: _State, scope: SelectScope) -> tuple[dict[str, EmittedRows], dict[str, EmittedRows]]:
    """Return the answers of queries: contents of relations, and elements of streams. A query that is paused emits
    nothing more, so that all that it has emitted is final. A relation whose rows have been dropped has no content
    before it is resumed."""
    contents: dict[str, EmittedRows] = {}
    elements: dict[str, EmittedRows] = {}
    for key, (place, query) in scope.queries.items():
        is_paused = state.standing.get(place, (0, Activity.PAUSED))[1] is Activity.PAUSED
        answers = state.answers.get(place, KeptAnswers())
        is_gone = is_paused and answers.dropped is not None and not answers.rows
        if place not in state.standing or (is_gone and not query.root.is_stream):
            continue
        heartbeat = END if is_paused else state.complete.get(place, NOTHING)
        rows = EmittedRows(query, answers.parts, heartbeat, answers.dropped)
        (elements if query.root.is_stream else contents)[key] = rows
    return contents, elements


def _running(version: NextVersion) -> set[int]:
    """Return the computations that run in a version."""
    return {one.computation for one in version.queries.values() if one.activity is not Activity.PAUSED}


def _deciding(version: NextVersion) -> DecidingOptions:
    """Return the settings and attributes of a version that decisions depend on."""
    queries = version.queries.items()
    weights = {str(place): standing.weight for place, standing in queries}
    targets = {str(place): standing.latency_target for place, standing in queries if standing.latency_target}
    return ReportOptions.of(version.settings).deciding(QueryPolicies(weights, targets))


def _sources(query: Query) -> Iterator[Source]:
    """Yield the sources that a query reads."""
    return iter(declared_sources(query.root).values())


def _records(source: Source, paths: list[str]) -> Iterator[tuple[ParsedRecords, str]]:
    """Yield the records of some paths, with all declared columns, and where they come from."""
    connector = open_source(source)
    columns = tuple(range(len(source.columns)))
    for path in paths:
        for split in connector.splits(path):
            for records in read_split(connector, split, columns):
                yield records, split.path


def _check_source(source: Source) -> None:
    """Raise PenstockError P0701 for a source that this engine cannot read."""
    reason = None
    if source.name != LOG_NAME and (source.system_time or source.idle is not None):
        reason = "depends on the clock, which a run without Spark does not read"
    elif source.connector != "POSTED" and not open_source(source).bounded:
        reason = "has no end, and a run without Spark reads sources that end"
    if reason is not None:
        raise PenstockError("P0701", f"{source.name} {reason}", hint="a server on Spark reads it")
