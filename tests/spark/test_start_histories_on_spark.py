"""START under random histories of a server on Spark, which is killed: each answer is what the law says of its START.

Queries of all kinds are registered with NOW, WARM, WARM WAIT, AT and BEGINNING in a running server whose streams keep
all, a part or nothing of their past. Rows are posted and the server is killed while they begin. What had been read when
a query began is known where nothing was posted meanwhile; else it is one of the cuts of what was posted.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.live_soak.served import Served, finished
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.client import ServerClient, connect
from penstock.client.answers import RemoteStatement
from penstock.errors import PenstockError
from penstock.physical.execution.progress import NOTHING, timed_sources
from penstock.testing.compare import events_of, first_difference, show_events
from penstock.testing.live import Episode, heartbeat, run_live
from penstock.testing.oracle import timely_rows
from penstock.testing.scalars.values import Event
from tests.random_world import RandomWorld

STARTS = (
    Start(), Start(StartMode.WARM), Start(StartMode.WARM), Start(StartMode.WARM, wait=True),
    Start(StartMode.WARM, wait=True), Start(StartMode.BEGINNING), None,
)  # fmt: skip
PATIENCE = 200
Cut = Mapping[str, int]


@dataclass(frozen=True)
class Begun:
    """A query that was registered. before, after: how many rows of each source had been posted before it was, and when
    it ran; lost: up to where the elements of sources were gone, one of these."""

    query: Query
    start: Start
    before: Cut
    after: Cut
    lost: tuple[Cut, ...]

    def episodes(self) -> Iterator[Episode]:
        """Return what may have happened."""
        names = sorted(self.before)
        ranges = [range(self.before[name], self.after[name] + 1) for name in names]
        for read in itertools.product(*ranges):
            for lost in self.lost:
                yield Episode(self.query, self.start, dict(zip(names, read, strict=True)), lost=lost)


class History(RandomWorld):
    """A random history. disturbances: one of these happens while a query begins; posts: how many rows of each source
    have been posted."""

    def __init__(self, seed: int, served: Served, disturbances: Sequence[str]) -> None:
        for attempt in itertools.count():
            # A world in which hardly anything happens is not worth a server.
            self.make_world(seed + attempt * 1_000_000)
            if sum(self.answers(query) > 3 for query in self.queries) > 1:
                break
        self.served, self.disturbances = served, disturbances
        self.posts = dict.fromkeys(self.timed, 0)
        self.begun: list[Begun] = []
        self.steps: list[str] = []
        self.seen: Counter[str] = Counter()

    def answers(self, query: Query) -> int:
        """Return how many events the whole answer of a query has."""
        sources = timed_sources(query.root)
        beat = heartbeat(sources, {n: timely_rows(s, self.inputs[n]) for n, s in sources.items()})
        if beat == NOTHING or not sources:
            return 0
        read = {n: 0 if n in sources else self.inputs[n].num_rows for n in self.sources}
        law = run_live([Episode(query, Start(StartMode.BEGINNING), read)], self.inputs)
        return sum(event[0] <= beat for event in law)

    # -- the system --------------------------------------------------------------------------------------------

    def live(self, parts: int, starts: int) -> None:
        self.served.start()
        with connect(self.served.url, self.served.token, patience=PATIENCE) as self.client:
            self.declare()
            for part in range(parts):
                self.post_part(part, parts + 1)
                for _ in range(starts):
                    self.register(self.client)
            self.post_part(parts, parts + 1)
            if "kill" in self.disturbances and not self.seen["kills"]:
                self.kill()
            for number, one in enumerate(self.begun):
                self.check(f"n{number}", one)

    def declare(self) -> None:
        script = []
        for statement in self.case.statements:
            text = statement.rstrip().rstrip(";")
            name = next((n for n in self.timed if f"STREAM {n} " in text), None)
            length = None if name is None else self.draw.choice((None, 3, 6, 10_000_000, 10_000_000))
            script.append(text + (";" if length is None else f" RETAIN {length} SECOND;"))
        self.steps += script
        self.execute("\n".join(text for text in script if "CREATE QUERY" not in text))
        for name, source in self.sources.items():
            if source.is_static and self.inputs[name].num_rows:
                self.client.insert(name, self.inputs[name])
        # So that all sources are read.
        self.execute("\n".join(text for text in script if "CREATE QUERY" in text))

    def execute(self, script: str) -> tuple[RemoteStatement, ...]:
        self.seen["commands"] += 1
        replies = finished(self.client, script, f"command {self.seen['commands']}")
        for one in replies:
            if one.error is not None:
                raise one.error
        return replies

    def post_part(self, part: int, parts: int) -> None:
        """Post what is to be posted up to a part of the history, and wait until it has been read."""
        for name in self.draw.sample(self.timed, len(self.timed)):
            until = self.inputs[name].num_rows * (part + 1) // parts
            while self.posts[name] < until:
                self.post(name, min(until - self.posts[name], self.draw.randint(1, 8)))
        self.wait()

    def post(self, name: str, count: int) -> None:
        rows = self.inputs[name].slice(self.posts[name], count).combine_chunks()
        if rows.num_rows:
            self.steps.append(f"rows {self.posts[name]} to {self.posts[name] + rows.num_rows} of {name}")
            self.client.insert(name, rows, key=f"{name} {self.posts[name]}")
            self.posts[name] += rows.num_rows

    def sources_as_told(self) -> dict[str, tuple[int, int | None]]:
        """Return of each source how many rows have been read, and the tick after which its elements are retained."""
        found: dict[str, tuple[int, int | None]] = {}
        for relation in ("streams", "relations"):
            for one in self.client.select(
                f"SELECT name, rows, retained_from FROM penstock.{relation}"
            ).table.to_pylist():
                found[one["name"]] = one["rows"] or 0, one["retained_from"]
        return found

    def wait(self) -> None:
        """Wait until all that has been posted has been read."""
        end = time.monotonic() + PATIENCE
        while any((told := self.sources_as_told())[name][0] < count for name, count in self.posts.items()):
            assert time.monotonic() < end, (told, self.posts)
            time.sleep(0.1)

    def kill(self) -> None:
        self.steps.append("kill")
        self.seen["kills"] += 1
        self.served.kill()
        self.served.start()

    # -- commands ----------------------------------------------------------------------------------------------

    def lost(self, query: Query) -> dict[str, int]:
        """Return up to which tick elements of the sources of a query are gone, when all posts have been read."""
        told, lost = self.sources_as_told(), {}
        for name in timed_sources(query.root):
            source = self.sources[name]
            rows = timely_rows(source, self.inputs[name].slice(0, self.posts[name]))
            if not source.is_stream or not rows:
                continue
            after = max(ts for ts, _ in rows) if source.name not in self.retained() else told[name][1]
            if after is not None and any(ts <= after for ts, _ in rows):
                lost[name] = max(ts for ts, _ in rows if ts <= after)
        return lost

    def retained(self) -> set[str]:
        declared = [step for step in self.steps if step.startswith("CREATE STREAM")]
        return {n for n in self.timed if any(f"STREAM {n} " in text and "RETAIN" in text for text in declared)}

    def start(self, query: Query) -> Start:
        start = self.draw.choice(STARTS)
        if start is not None:
            return start
        rows = [r for n in timed_sources(query.root) for r in timely_rows(self.sources[n], self.inputs[n])]
        known = sorted({ts for ts, _ in rows}) or [0]
        step = 1_000_000 if query.domain.calendar else 1
        return Start(StartMode.AT, self.draw.choice(known) + self.draw.randint(-3, 3) * step)

    def words(self, query: Query, start: Start) -> str:
        if start.at is None:
            return f"START {start.words}"
        return f"START AT {start.at}" if not query.domain.calendar else f"START AT '{query.domain.show(start.at)}'"

    def register(self, client: ServerClient) -> None:
        query = self.draw.choice([one for one in self.queries if self.answers(one)])
        start, name = self.start(query), f"n{len(self.begun)}"
        select = query.text.partition(" AS ")[2].rstrip().rstrip(";")
        statement = f"CREATE QUERY {name} {self.words(query, start)} AS {select};"
        self.steps.append(statement)
        before, lost = dict(self.posts), self.lost(query)
        disturbing = threading.Thread(target=self.disturb, args=(self.draw.choice(self.disturbances),))
        disturbing.start()
        try:
            self.execute(statement)
        except PenstockError as error:
            assert error.code == "P0703", error
            assert lost and start.mode is not StartMode.NOW, f"refused without a reason: {error.message}"
            self.steps.append(f"refused: {error.message}")
            self.seen["refused"] += 1
            return
        finally:
            disturbing.join()
            self.wait()
        after = dict(self.posts)
        known = (lost,) if after == before else (lost, self.lost(query))
        statics = {n: self.inputs[n].num_rows for n, source in self.sources.items() if source.is_static}
        self.begun.append(Begun(query, start, before | statics, after | statics, known))
        self.seen[start.words if start.at is None else "AT"] += 1

    def disturb(self, what: str) -> None:
        """Let something happen while a query begins."""
        time.sleep(self.draw.uniform(0, 0.5))
        if what == "kill":
            self.kill()
        elif what == "rows":
            self.post(self.draw.choice(self.timed), 2)

    # -- the law -----------------------------------------------------------------------------------------------

    def check(self, name: str, one: Begun) -> None:
        sources = timed_sources(one.query.root)
        beat = heartbeat(sources, {n: timely_rows(s, self.inputs[n]) for n, s in sources.items()})
        if beat == NOTHING:
            return
        laws = [[event for event in run_live([episode], self.inputs) if event[0] <= beat] for episode in one.episodes()]
        if all(laws):
            self.reach(name, one.query, beat)
        found = [event for event in self.emitted(name, one.query) if event[0] <= beat]
        self.seen["emitted"] += len(found)
        if all(first_difference(law, found) is not None for law in laws):
            shown = [show_events(events, one.query.domain) for events in (laws[0], found)]
            text = [f"{name} differs, complete up to {beat}", str(one), "the law:", *shown[0], "emitted:", *shown[1]]
            raise AssertionError("\n".join(text))

    def reach(self, name: str, query: Query, beat: int) -> None:
        """Wait until a query has been answered up to an instant."""
        end = time.monotonic() + PATIENCE
        while True:
            told = self.client.query(name).instant
            if told is not None and self.tick(told, query) >= beat:
                return
            assert time.monotonic() < end, (name, told, query.domain.show(beat))
            time.sleep(0.1)

    def tick(self, told: str, query: Query) -> int:
        if not query.domain.calendar:
            return int(told)
        tick: int = pa.scalar(told).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
        return tick

    def emitted(self, name: str, query: Query) -> list[Event]:
        schema = query.output_schema
        with self.client.subscribe(name, beginning=True, until_now=True) as batches:
            tables = [pa.Table.from_batches([batch]) for batch in batches]
        places = [0, *(() if query.root.is_stream else (1,)), *range(2, 2 + len(query.root.schema))]
        parts = [
            pa.table([t.column(i).cast(f.type) for i, f in zip(places, schema, strict=True)], schema) for t in tables
        ]
        return events_of(query, pa.concat_tables([schema.empty_table(), *parts]))


def history(folder: Path, seed: int, parts: int, starts: int, disturbances: Sequence[str]) -> Counter[str]:
    folder.mkdir(exist_ok=True)
    served = Served(folder, ("trigger=100 ms", "shards=2"))
    one = History(seed, served, disturbances)
    try:
        one.live(parts, starts)
    except Exception as error:
        text = [f"seed {seed}", one.case.render(), *one.steps, f"{type(error).__name__}: {error}", served.tail()]
        raise AssertionError("\n".join(text)) from error
    finally:
        served.kill()
    return one.seen


def test_every_start_is_what_the_law_says(tmp_path: Path) -> None:
    seen = history(tmp_path, 773_100_000, 1, 5, ("", "rows", "kill"))
    assert seen["emitted"] and seen["kills"], seen


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_start_is_what_the_law_says_in_many_more_histories(
    tmp_path: Path, case_count: int | None, case_seed: int | None
) -> None:
    seen: Counter[str] = Counter()
    for number in range(case_count or 12):
        seen += history(
            tmp_path / str(number), (case_seed or 773_100_100) + number, 3, 4, ("", "", "", "rows", "rows", "kill")
        )
        print(number, seen, flush=True)
    assert all(seen[word] for word in ("NOW", "WARM", "WARM WAIT", "AT", "BEGINNING", "kills", "refused")), seen
