"""One-time queries under attack: random SELECTs in two threads while another client posts rows, and rounds, commands
and restarts happen; some are cancelled, and some are read by a process that is gone before they are answered.

Each answer is that of the oracle at the instant that the reply names, over all that was given in the end: what came
after that instant was complete is late. A refusal has a reason, instants of a session do not go back, and nothing stays
pinned. Rounds run without Spark.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, leave_spark

from penstock.algebra import Scan, leaves
from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError
from penstock.language.scripts import QueryNames, bind_select
from penstock.physical.execution.progress import NOTHING
from penstock.results.cancellation import Cancellation
from penstock.results.content import ResultContents
from penstock.results.run_input import pinned_input, state_of_run
from penstock.results.select import LiveAnswer, LiveReader
from penstock.results.source_rows import RowsInMemory, SourceRows
from penstock.runtime.local.one_time import OneTimeAnswer, answer_over, sources_of
from penstock.runtime.spark.retention import retention
from penstock.storage import storage
from penstock.testing.one_time import as_of, assert_same_rows, rows_of
from penstock.testing.oracle import run_oracle, run_oracle_once, timely_rows
from penstock.testing.scalars.values import Row, python_values
from penstock.types import END
from tests.random_world import RandomWorld

READERS = 2


@dataclass
class Answered:
    """An answer. law: the query whose relation at the tick it is; of_answers: as a continuous query has answered it;
    stream: that query, where it answers a stream, whose elements have their timestamps in front."""

    law: OneTimeQuery
    found: LiveAnswer
    of_answers: bool
    stream: Query | None


@dataclass
class Attack(RandomWorld):
    """A server over a random world, and who reads it."""

    seed: int
    folder: Path
    steps: list[str] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.make_world(self.seed)
        self.given: dict[str, int] = dict.fromkeys(self.timed, 0)
        self.retain: dict[str, int | None] = {}
        #: Streams of which all is kept, whatever happens.
        self.whole: set[str] = set()
        #: Held by a client while it posts, and while the process is another one.
        self.posting = threading.Lock()
        #: Twice how often the process has been another one, odd until that is there. A reader of an earlier one has no
        #: answer.
        self.life = 0
        self.rounds = threading.Semaphore(0)
        self.done = threading.Event()
        #: Rows have been posted, a round has been run, and a reader has fixed what it reads.
        self.posted, self.taken, self.fixed = threading.Event(), threading.Event(), threading.Event()
        self.failure: BaseException | None = None

    # -- the system --------------------------------------------------------------------------------------------

    def declare(self) -> None:
        script = []
        for statement in self.case.statements:
            text = statement.rstrip().rstrip(";")
            name = next((n for n in self.timed if f"STREAM {n} " in text), None)
            if name is not None:
                length = self.draw.choice((None, 2, 5, 10_000_000))
                self.retain[name] = length
                self.whole |= {name} if length == 10_000_000 else set()
                text = text if length is None else f"{text} RETAIN {length} SECOND"
            script.append(text + ";")
        self.steps += script
        self.server.post("\n".join(text for text in script if "CREATE QUERY" not in text))
        for name, source in self.sources.items():
            if source.is_static:
                self.server.control.insert(name, self.inputs[name])
        self.server.post("\n".join(text for text in script if "CREATE QUERY" in text))

    def live(self) -> None:
        threads = [threading.Thread(target=self.read, args=(number,)) for number in range(READERS)]
        threads.append(threading.Thread(target=self.client))
        for thread in threads:
            thread.start()
        try:
            while self.failure is None and any(self.given[n] < self.inputs[n].num_rows for n in self.timed):
                what = self.draw.choice(("round",) * 8 + ("alter", "restart", "query", "drop"))
                getattr(self, what)()
                self.rounds.release(READERS)
        finally:
            self.done.set()
            for thread in threads:
                thread.join()
        if self.failure is not None:
            raise self.failure
        root = self.server.folder / "penstock"
        assert storage().list(root / "pins") == []

    def client(self) -> None:
        """Post rows while everything else happens."""
        draw = random.Random(self.seed + 2)
        try:
            while not self.done.is_set():
                self.rows(draw)
                self.posted.set()
                # Most rows wait for a round. Otherwise a slow machine answers all of them in the first one.
                waits = draw.random() < 0.9
                while waits and not self.done.is_set() and not self.taken.wait(0.05):
                    pass
                self.taken.clear()
        except BaseException as failure:
            self.failure = failure

    def rows(self, draw: random.Random) -> None:
        name = draw.choice([name for name in self.timed if self.given[name] < self.inputs[name].num_rows] or self.timed)
        part = self.inputs[name].slice(self.given[name], draw.randint(1, 3)).combine_chunks()
        if part.num_rows:
            with self.posting:
                self.steps.append(f"rows {self.given[name]} to {self.given[name] + part.num_rows} of {name}")
                self.server.control.insert(name, part)
                self.given[name] += part.num_rows

    def round(self) -> None:
        if self.posted.wait(0.05):
            self.posted.clear()
        if self.server.engine.run is not None:
            self.server.run.round()
        self.taken.set()

    def alter(self) -> None:
        names = sorted({name for name in self.timed if self.sources[name].is_stream} - self.whole)
        if not names:
            return
        name = self.draw.choice(names)
        length = self.draw.choice((1, 3, 9))
        self.retain[name] = length
        self.steps.append(f"retain {name} {length}")
        self.server.post(f"ALTER STREAM {name} SET (retain '{length} SECONDS');")

    def restart(self) -> None:
        with self.posting:
            self.steps.append("restart")
            # Someone waits for an answer then, if anyone can.
            self.fixed.clear()
            self.rounds.release(READERS)
            self.fixed.wait(0.5)
            self.life += 1
            self.server.restart()
            self.contents = ResultContents(self.server.run.inline.folder.results)
            self.contents.guard()
            self.life += 1

    def query(self) -> None:
        text = self.draw.choice(self.queries).text.partition(" AS ")[2].rstrip().rstrip(";")
        self.steps.append("another query")
        self.server.post(f"CREATE QUERY o{len(self.steps)} AS {text};")

    def drop(self) -> None:
        names = [one.stored.name for one in self.server.control.queries() if one.stored.name.startswith("o")]
        if names:
            self.steps.append(f"drop {names[0]}")
            self.server.post(f"DROP QUERY {names[0]};")

    # -- the reader --------------------------------------------------------------------------------------------

    def read(self, number: int) -> None:
        draw = random.Random(f"{self.seed + 1} {number}")
        seen = -1
        try:
            while not self.done.is_set():
                self.rounds.acquire(timeout=0.2)
                life = self.life
                try:
                    if not life % 2 and self.server.engine.run is not None:
                        seen = max(seen, self.select(draw, seen, life))
                except BaseException:
                    if self.life == life:
                        raise
                    self.seen["killed"] += 1
        except BaseException as failure:
            self.failure = failure

    def select(self, draw: random.Random, seen: int, life: int) -> int:
        """Answer a query; return the batch as of which that is."""
        query = draw.choice(self.queries)
        if not any(not leaf.source.is_static for leaf in leaves(query.root) if isinstance(leaf, Scan)):
            return seen
        law = as_of(query, None)
        asked = law
        if draw.random() < 0.4:
            text = f"SELECT * FROM {query.name}"
            asked = bind_select(text, self.server.control.catalog, query_names=QueryNames.ANSWER).query
        names = {name.lower() for name in sources_of(asked)}
        run = self.server.run
        registered = {
            one.name.lower(): (f"q{self.server.control.query(one.name)[1].place}", one) for one in self.queries
        }
        assert run.rounds is not None
        delivered = run.rounds.delivered_at
        with pinned_input(run, f"reader{draw.random()}", names) as known:
            state = state_of_run(run, known, registered, self.contents)
            whole = {n.lower(): RowsInMemory(self.inputs[n]) for n, s in self.sources.items() if s.is_static}
            state = replace(state, whole=whole)
            self.fixed.set()
            for _ in range(draw.randint(0, 2)):
                self.rounds.acquire(timeout=0.1)
            beats = [
                kept.heartbeat
                for name, kept in {**state.past, **state.updates, **state.contents}.items()
                if name in names
            ]
            known_tick = min(beats, default=END)
            tick = None
            if draw.random() < 0.6 and NOTHING < known_tick < END:
                unit = 1_000_000 if query.domain.calendar else 1
                edges = [kept.dropped for n, kept in state.past.items() if n in names and kept.dropped is not None]
                back = max((need.ticks or 0 for need in query.root.needs.values()), default=0)
                edges = [edge + more for edge in edges for more in (0, back)] + [known_tick, known_tick - 2 * unit, -1]
                tick = draw.choice(edges) + draw.choice((-1, 0, 0, 1)) * unit
            asked = replace(asked, as_of=tick)
            cancellation = Cancellation()
            if draw.random() < 0.2:
                threading.Timer(draw.choice((0, draw.uniform(0, 0.02))), cancellation.set).start()
            try:
                found = LiveReader(lambda: state, computed).answer(asked, cancellation)
            except PenstockError as error:
                if error.code == "P0726" and cancellation.is_set():
                    self.seen["cancelled"] += 1
                    return seen
                self.refused(error, asked, tick, known_tick)
                return seen
        if self.life != life:
            self.seen["killed"] += 1
            return seen
        # Before its first round a server that has started again knows it of what is in the results alone.
        assert found.batch >= seen and (found.staleness is not None or delivered is None)
        assert tick is None or found.answer.tick == tick
        assert tick is not None or known_tick in (NOTHING, END) or found.answer.tick == known_tick
        of_answers = any(name in registered for name in names)
        self.answers.append(Answered(law, found, of_answers, query if of_answers and query.root.is_stream else None))
        self.seen["AS OF" if tick is not None else "now"] += 1
        self.seen["of answers"] += of_answers
        return found.batch

    def refused(self, error: PenstockError, asked: OneTimeQuery, tick: int | None, known: int) -> None:
        """A refusal has a reason: what is asked for has not come, or is not kept."""
        assert error.code in ("P0721", "P0711"), error
        self.seen[f"refused {error.code}"] += 1
        if tick is not None and tick > known:
            assert "complete" in error.message or "no elements of" in error.message, error
            return
        streams = [name for name, source in sources_of(asked).items() if source.is_stream]
        others = [name for name, source in sources_of(asked).items() if not source.is_stream]
        assert set(streams) - self.whole or others, f"refused without a reason: {error.message}"
        assert not others or error.code != "P0721" or set(streams) - self.whole, error

    # -- the law -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        for one in self.answers:
            tick = one.found.answer.tick
            if tick is None:
                continue
            inputs = {n: rows.slice(0, self.given.get(n, rows.num_rows)) for n, rows in self.inputs.items()}
            for name, since in one.found.since.items():
                if name in self.sources:
                    inputs[name] = self.after(name, inputs[name], since)
                else:
                    break
            else:
                expected = run_oracle_once(replace(one.law, as_of=tick), inputs)
                if one.of_answers and tick < self.begin(one.law):
                    # Time begins with the first element: before it nothing has been answered.
                    expected = []
                elif one.stream is not None:
                    expected = self.elements(one.stream, inputs, tick, one.found.answer.table.schema.field(0).type)
                found = rows_of(one.found.answer.table)
                try:
                    assert_same_rows(replace(one.law, limit=None), found, expected)
                except AssertionError as error:
                    told = f"at {tick}, of answers: {one.of_answers}, batch {one.found.batch}, since {one.found.since}"
                    raise AssertionError(f"{told}: {error}") from None
                self.seen["checked"] += 1
                self.seen["rows"] += len(expected)

    @staticmethod
    def elements(query: Query, inputs: Mapping[str, pa.Table], tick: int, type_: pa.DataType) -> list[Row]:
        """Return the elements of a stream up to a tick, with their timestamps. type_: of these."""
        events = [event for event in run_oracle(query, inputs).events if event[0] <= tick]
        times = python_values(pa.array([ts for ts, _, _ in events], pa.int64()).cast(type_))
        return [(time, *row) for time, (_, _, row) in zip(times, events, strict=True)]

    def begin(self, law: OneTimeQuery) -> int:
        """Return the tick of the first element that a query reads."""
        read = [(source, self.inputs[name]) for name, source in sources_of(law).items() if not source.is_static]
        return min((ts for source, rows in read for ts, _ in timely_rows(source, rows)), default=END)

    def after(self, name: str, rows: pa.Table, since: int) -> pa.Table:
        """Return the rows of a source that are timely and later than a tick."""
        source = self.sources[name]
        assert source.timestamp is not None
        timely = Counter(map(repr, (row for ts, row in timely_rows(source, rows) if ts > since)))
        ticks = rows.column(source.timestamp).cast(pa.int64()).to_pylist()
        return (
            rows.filter(pa.array([tick is not None and tick > since for tick in ticks])) if timely else rows.slice(0, 0)
        )


def computed(query: OneTimeQuery, inputs: Mapping[str, SourceRows], cancellation: Cancellation) -> OneTimeAnswer:
    """Compute an answer; that of a query that has been cancelled is not waited for, as where another process computes
    it."""
    answer = answer_over(query, {name: rows.table() for name, rows in inputs.items()})
    cancellation.check()
    return answer


def random_attack(folder: Path, seed: int) -> Counter[str]:
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        leave_spark(patch)
        patch.setattr(retention, "_EVERY", 1)
        attack = Attack(seed, folder)
        attack.server = InlineServer(folder / "checkpoint")
        try:
            attack.declare()
            attack.contents = ResultContents(attack.server.folder / "results")
            attack.contents.guard()
            attack.live()
            attack.check()
        except Exception as error:
            text = "\n".join([f"seed {seed}", attack.case.render(), *attack.steps, f"{type(error).__name__}: {error}"])
            raise AssertionError(text) from error
        finally:
            attack.server.close()
    return attack.seen


PERIODS = """CREATE STREAM S (ts INT, k INT, b INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND VALID FROM ts TO b
  RETAIN 100 SECONDS;
CREATE QUERY listed AS SELECT k, ARRAY_AGG(v) AS all_of_k FROM S [RANGE 50 SECONDS] GROUP BY k;"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        # The declared period is no column of this query, so it is NULL in what is read.
        ("SELECT k FROM S VALID UNTIL NEXT BY k [RANGE 50 SECONDS] AS s", [(1,), (1,), (2,)]),
        ("SELECT k, v FROM S [RANGE 50 SECONDS]", [(1, 10), (1, 11), (2, 12)]),
        ("SELECT k FROM S [RANGE 50 SECONDS] WHERE LENGTH(VALID(S)) > 3", [(2,)]),
        # Arrow does not count distinct arrays.
        ("SELECT k, all_of_k FROM listed WHERE k = 1", [(1, [10, 11])]),
    ],
)
def test_what_is_kept_is_selected(text: str, rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_spark(monkeypatch)
    server = InlineServer(tmp_path)
    try:
        server.post(PERIODS)
        server.post("INSERT INTO S VALUES (1, 1, 4, 10), (2, 1, 5, 11), (3, 2, 9, 12), (6, 2, 7, 13)")
        server.run.round()
        control = server.control
        asked = bind_select(text, control.catalog, query_names=QueryNames.ANSWER).query
        answers = {"listed": (f"q{control.query('listed')[1].place}", control.catalog.queries["listed"])}
        contents = ResultContents(server.run.inline.folder.results)
        with pinned_input(server.run, "reader", {"s"}) as known:
            state = state_of_run(server.run, known, answers, contents)
            found = LiveReader(lambda: state).answer(asked)
        contents.close()
    finally:
        server.close()
    assert found.answer.tick == 5
    assert sorted(tuple(row.values()) for row in found.answer.table.to_pylist()) == rows


@pytest.mark.parametrize("kind", ["STREAM", "RELATION"])
def test_what_the_run_reads_by_another_declaration_is_not_taken_for_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has changed, and the catalog in which a SELECT is bound is that before the change."""
    leave_spark(monkeypatch)
    kept = " RETAIN 100 SECONDS" if kind == "STREAM" else ""
    declared = "CREATE {} S (ts INT, {}) FROM MEMORY () TIMESTAMP BY ts{}; CREATE QUERY q AS SELECT ts FROM S;"
    server = InlineServer(tmp_path)
    try:
        server.post(declared.format(kind, "x INT, y INT", kept))
        asked = bind_select("SELECT x FROM S", server.control.catalog, query_names=QueryNames.ANSWER).query
        server.post(f"DROP QUERY q; DROP {kind} S; {declared.format(kind, 'y INT, x INT', kept)}")
        server.post("INSERT INTO S VALUES (1, 2, 3), (4, 5, 6)")
        server.run.round()
        contents = ResultContents(server.run.inline.folder.results)
        with pinned_input(server.run, "reader", {"s"}) as known:
            state = state_of_run(server.run, known, {}, contents)
            with pytest.raises(PenstockError, match="S has been declared again") as refused:
                LiveReader(lambda: state).answer(asked)
    finally:
        server.close()
    assert refused.value.code == "P0721" and refused.value.hint == "send the query again"


ATTACKS = 5
#: Attacks beyond those that are wanted, in which what has not happened in these may happen.
MORE = 100


def attacks(folder: Path, first: int, count: int, *enough: str) -> None:
    """Make so many attacks, and more until all of `enough` has happened: that depends on threads, and on the draws."""
    seen: Counter[str] = Counter()
    for number in range(count + MORE):
        if number >= count and seen >= Counter(enough):
            return
        seen += random_attack(folder / str(number), first + number)
    pytest.fail(f"{seen}, of {enough}")


def test_every_answer_is_that_of_the_instant_it_names(
    tmp_path: Path, case_count: int | None, case_seed: int | None
) -> None:
    attacks(tmp_path, case_seed or 771_500_000, case_count or ATTACKS, "AS OF", *["checked"] * 6)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_answer_is_that_of_the_instant_it_names_in_many_more_attacks(
    tmp_path: Path, case_count: int | None, case_seed: int | None
) -> None:
    enough = ("killed", "cancelled", "of answers", "refused P0721", "rows")
    attacks(tmp_path, case_seed or 773_010_000, case_count or 500, *enough)
