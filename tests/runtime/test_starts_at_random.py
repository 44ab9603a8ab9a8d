"""START under random histories with the engine on Spark: the answer of each query is what the law says of its START,
and what EXPLAIN START said before is what happened.

Queries of all kinds are registered in a running system whose sources keep different parts of their past: everything
(files), nothing, or what RETAIN says, which is often just too short. Their past is read while rounds, other commands,
restarts and losses of the process come in between. Rounds run without Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from watched_server import Registered, WatchedServer

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.properties.need import first_full_instant
from penstock.connectors.results.result_folder import ResultFolder
from penstock.control.outcomes import CommandState
from penstock.errors import PenstockError
from penstock.physical.execution.progress import timed_sources
from penstock.runtime.spark.hydration.past_input import PastStart
from penstock.runtime.spark.live_change import options_of_start
from penstock.testing.compare import events_of, first_difference, show_events
from penstock.testing.live import Episode, heartbeat, held_of, run_live
from penstock.testing.oracle import timely_rows
from penstock.testing.scalars.values import Event

WAIT = Start(StartMode.WARM, wait=True)
STARTS = (Start(), Start(StartMode.WARM), Start(StartMode.WARM), WAIT, WAIT, Start(StartMode.BEGINNING), None)
#: What EXPLAIN START says of where elements of a stream come from, and how that is read.
PROVIDERS: dict[str, Callable[[PastStart], bool]] = {
    "its retained elements": lambda start: start.retained is not None,
    "its updates, compacted and as posted": lambda start: start.compacted is not None,
    "the source, read again": lambda start: start.retained is None and start.compacted is None and not start.gone,
}
UNFINISHED = (CommandState.PENDING, CommandState.HYDRATING)


class History(WatchedServer):
    """The commands of a history, and what its queries should answer."""

    # -- commands ----------------------------------------------------------------------------------------------

    def lost_at_most(self, query: Query) -> dict[str, int]:
        """What may be gone of the sources of a query, by their RETAIN, when all that was given has been read."""
        lost: dict[str, int] = {}
        for name in timed_sources(query.root):
            rows = timely_rows(self.sources[name], self.inputs[name].slice(0, self.read[name]))
            if self.kept[name] == -1 or not rows:
                continue
            kept = self.kept[name]
            until = heartbeat({name: self.sources[name]}, {name: rows}) - (kept or 0)
            gone = [ts for ts, _ in rows if kept is None or ts <= until]
            if gone:
                lost[name] = max(gone)
        return lost

    def must_begin(self, query: Query, start: Start) -> bool:
        """Return whether nothing that the query needs can be gone."""
        lost = self.lost_at_most(query)
        if start.mode is StartMode.NOW or not lost:
            return True
        if start.mode is StartMode.BEGINNING or any(need.ticks is None for need in query.root.needs.values()):
            return False  # with all of a source time begins with the first element of any, which may be gone
        sources = {name: self.sources[name] for name in timed_sources(query.root)}
        rows = {n: timely_rows(s, self.inputs[n].slice(0, self.read[n])) for n, s in sources.items()}
        begin = heartbeat(sources, rows) if start.at is None else start.at
        tick = first_full_instant(query.root.needs, lost, begin, held_of(sources, rows, lost))
        return tick is not None and (start.wait or tick == begin)

    def start(self, query: Query) -> Start:
        start = self.draw.choice(STARTS)
        if start is not None:
            return start
        rows = [r for n in timed_sources(query.root) for r in timely_rows(self.sources[n], self.inputs[n])]
        calendar = query.domain.calendar
        known = sorted({ts for ts, _ in rows}) or [0]
        return Start(StartMode.AT, self.draw.choice(known) + self.draw.randint(-3, 3) * (1_000_000 if calendar else 1))

    def words(self, query: Query, start: Start) -> str:
        if start.at is None:
            return f"START {start.words}"
        if not query.domain.calendar:
            return f"START AT {start.at}"
        return f"START AT '{pa.scalar(start.at, pa.timestamp('us')).cast(pa.string()).as_py()}'"

    def register(self) -> None:
        query = self.draw.choice(self.queries)
        name = f"n{len(self.registered)}{self.draw.choice(('', 'x'))}"
        start = self.start(query)
        select = query.text.partition(" AS ")[2].rstrip().rstrip(";")
        self.begin(name, query, start, f"CREATE QUERY {name} {self.words(query, start)} AS {select};")

    def resume(self) -> None:
        known = self.server.control.queries()
        paused = [one.stored.name for one in known if one.stored.query.status.value == "PAUSED"]
        if paused:
            name = self.draw.choice(paused)
            query = self.registered[name].query
            start = self.start(query)
            self.begin(name, query, start, f"ALTER QUERY {name} RESUME {self.words(query, start)};")

    def begin(self, name: str, query: Query, start: Start, statement: str) -> None:
        run = self.server.engine.run
        if run is None or not timed_sources(query.root):
            return
        options = {option.start.words: option for option in options_of_start(self.server.run, query)}
        self.steps += [statement, *map(str, options.values())]
        self.starting = []
        beside = self.draw.random() < 0.5
        self.gate.parts = self.draw.randint(0, 2) if beside else None
        option = options.get(start.words) or options.get("WARM")
        try:
            outcomes = [one.outcome for one in self.server.control.submit(statement)]
        except PenstockError as error:
            self.gate.parts = None
            assert error.code == "P0703", error
            assert not self.must_begin(query, start), f"refused without a reason: {error.message}"
            if start.at is None:
                assert option is not None and option.obstacles, f"EXPLAIN START says yes; {error.message}"
                assert all(each in error.message for each in option.obstacles), (option, error.message)
            self.steps.append(f"refused: {error.message}")
            self.seen["refused"] += 1
            return
        if start.at is None:
            assert option is not None and not option.obstacles, "EXPLAIN START says no"
            if not option.missing:
                self.seen[f"{start.words} yes"] += 1
        (outcome,) = outcomes
        assert outcome is not None
        former = self.registered.get(name)
        self.registered[name] = Registered(
            query, former.place if former else -1, [*(former.starts if former else ()), start]
        )
        disturbed, before = False, len(self.boundaries)
        if outcome.state is CommandState.HYDRATING:
            self.seen["hydrating"] += 1
            if beside:
                disturbed = self.disturb(name)
            self.gate.parts = None
        self.settle(name, outcome.number, disturbed)
        place = self.registered[name].place
        known = {one.stored.name: one.stored.query for one in self.server.control.queries()}
        if name in known and known[name].answer.waits:
            self.seen["waits for rows"] += 1
            self.seen["waits for rows that went meanwhile"] += option is not None and not option.missing
        elif disturbed and place >= 0 and not any(place in one.births for one in self.boundaries[before:]):
            self.registered[name].starts.pop()  # it was paused before it began
            self.seen["paused before it began"] += 1
        if option is not None and not disturbed and start.at is None and self.starting:
            for source, past in option.reads.items():
                if past.provider in PROVIDERS and source in self.starting[-1]:
                    assert PROVIDERS[past.provider](self.starting[-1][source]), (source, past, self.starting[-1])
                    self.seen[past.provider] += 1

    def disturb(self, name: str) -> bool:
        """Let something happen while a past is read; return whether what EXPLAIN START said may have changed."""
        disturbed = False
        for _ in range(self.draw.randint(1, 4)):
            what = self.draw.choice(("rows", "rows", "rows", "other", "restart", "end", "more"))
            self.seen[f"{what} while reading"] += 1
            disturbed = True
            if what == "rows":
                self.feed_some()
                self.round()
            elif what == "other":
                other = self.draw.choice(self.queries)
                select = other.text.partition(" AS ")[2].rstrip().rstrip(";")
                self.steps.append("another one")
                self.server.control.submit(f"CREATE QUERY o{len(self.steps)} AS {select};")
            elif what == "restart":
                self.restart()
            elif what == "end":
                statement = self.draw.choice((f"DROP QUERY {name};", f"ALTER QUERY {name} PAUSE;"))
                self.steps.append(statement)
                with suppress(PenstockError):
                    self.server.control.submit(statement)
                return True
            elif what == "more" and self.gate.parts is not None:
                self.gate.parts = self.draw.randint(1, 3)
        return disturbed

    def settle(self, name: str, number: int, disturbed: bool) -> None:
        """Wait until the query has begun, or its command has ended otherwise."""
        end = time.monotonic() + 120
        while True:
            if self.server.control.failure is not None:
                raise self.server.control.failure
            known = {one.number: one for _, _, one in self.server.control.commands()}
            if not any(one.state in UNFINISHED for one in known.values()):
                break
            assert time.monotonic() < end, "it does not end"
            time.sleep(0.001)
        outcome = known[number]
        if outcome.code:
            # It was accepted; what it needs may be gone when its past comes to be read.
            assert outcome.code == "P0703" and outcome.message and "backfill" not in outcome.message, outcome
            assert disturbed, outcome
            # Nothing was gone when WARM WAIT was accepted, and no number of rows brings what is gone now
            # (docs/decisions/warm-wait.md).
            late = "would wait for ever"
            assert not self.registered[name].starts[-1].wait or late in outcome.message, outcome
            self.steps.append(f"failed: {outcome.message}")
            self.seen["failed later"] += 1
            self.registered[name].starts.pop()
            return
        if name in {one.stored.name for one in self.server.control.queries()}:
            place = self.server.control.query(name)[1].place
            self.registered[name].place = place
            result = self.server.run.version().results.get(f"q{place}")
            self.results |= {} if result is None else {place: result}

    def end(self) -> None:
        running = [one.stored.name for one in self.server.control.queries() if one.stored.name in self.registered]
        if running:
            name = self.draw.choice(running)
            statement = self.draw.choice((f"ALTER QUERY {name} PAUSE;", f"DROP QUERY {name};"))
            self.steps.append(statement)
            with suppress(PenstockError):
                self.server.post(statement)

    # -- the law -----------------------------------------------------------------------------------------------

    def live(self) -> None:
        self.declare()
        while any(sum(self.posts[name]) < self.inputs[name].num_rows for name in self.timed):
            what = self.draw.choice(("rows",) * 6 + ("register",) * 5 + ("resume", "resume", "end", "restart"))
            if what == "rows":
                self.feed_some()
                self.round()
            else:
                getattr(self, what)()
        self.round()
        for name in self.registered:
            self.check(name)

    def episodes(self, registered: Registered) -> list[Episode]:
        """Return when a query began and ended, by the versions of the run."""
        found: list[Episode] = []
        birth: tuple[int, str] | None = None
        starts = iter(registered.starts)
        statics = {name: self.inputs[name].num_rows for name, source in self.sources.items() if source.is_static}
        for boundary in self.boundaries:
            now = boundary.births.get(registered.place)
            if now == birth:
                continue
            read = {**boundary.read, **statics}
            if birth is not None:
                found[-1] = replace(found[-1], ended=read)
            if now is not None:
                lost = boundary.lost[registered.place]
                found.append(Episode(registered.query, next(starts), read, lost=lost))
            birth = now
        return found

    def check(self, name: str) -> None:
        registered = self.registered[name]
        if registered.place not in self.results:
            return
        episodes = self.episodes(registered)
        inputs = {n: self.inputs[n].slice(0, self.read.get(n, self.inputs[n].num_rows)) for n in self.sources}
        sources = timed_sources(registered.query.root)
        read = episodes[-1].ended or {name: inputs[name].num_rows for name in sources}
        rows = {n: timely_rows(s, inputs[n].slice(0, read[n])) for n, s in sources.items()}
        beat = heartbeat(sources, rows)
        found = [event for event in self.emitted(registered) if event[0] <= beat]
        expected = [event for event in run_live(episodes, inputs) if event[0] <= beat]
        self.seen["emitted"] += len(found)
        self.seen[f"{episodes[-1].start.words} checked"] += bool(expected)
        ts = first_difference(expected, found)
        if len(episodes) > 1 and ts is not None:
            # A result goes on behind what has been emitted early, which the law does not know.
            if not registered.query.root.is_stream:
                found, expected = ([(beat, *event[1:]) for event in some] for some in (found, expected))
                ts = first_difference(expected, found)
            else:
                ts = None
        shown = [show_events(events, registered.query.domain) for events in (expected, found)]
        assert ts is None, "\n".join(
            [f"{name} differs at {ts}, complete up to {beat}", *map(str, episodes), "the law:", *shown[0], "emitted:"]
            + shown[1]
        )

    def emitted(self, registered: Registered) -> list[Event]:
        folder, id_ = ResultFolder(self.server.folder / "results"), self.results[registered.place]
        files = [folder.file(batch) for batch in folder.batches()]
        tables = [file.rows(id_) for file in files if file is not None and id_ in file.sections]
        schema = registered.query.output_schema
        whole = pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])
        return events_of(registered.query, whole)


def random_history(folder: Path, seed: int) -> Counter[str]:
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        history = History(seed, folder, patch)
        try:
            with history.running():
                history.live()
        except Exception as error:
            text = "\n".join(
                [f"seed {seed}", history.case.render(), *history.steps, f"{type(error).__name__}: {error}"]
            )
            raise AssertionError(text) from error
    return history.seen


HISTORIES = 6


def test_every_start_is_what_the_law_and_explain_say(
    tmp_path: Path, case_count: int | None, case_seed: int | None
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(case_count or HISTORIES):
        seen += random_history(tmp_path / str(seed), seed + (case_seed or 771_001_000))
    assert seen["emitted"] and seen["hydrating"] and seen["restarts"], seen


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_start_is_what_the_law_and_explain_say_in_many_more_histories(
    tmp_path: Path, case_count: int | None, case_seed: int | None
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(case_count or 1000):
        seen += random_history(tmp_path / str(seed), seed + (case_seed or 771_010_000))
    assert seen["refused"] and seen["paused before it began"] and seen["died"], seen
    assert all(seen[provider] for provider in ("its retained elements", "the source, read again")), seen
