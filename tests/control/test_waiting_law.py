"""Queries that wait for rows keep the law: random lives over streams that keep little of what came, with crashes.

Each life has rows in any order within a slack, queries that begin WARM WAIT over several windows, which are paused,
resumed, replaced, renamed and dropped meanwhile, restarts, and power that goes at any call of the storage. Others take
the place of queries that answer, WARM WAIT too, with all of that meanwhile: at the boundary that the law names.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from live_machine import Coming, Life
from test_control_law import PostedSystem, select_of

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.control.phases import Phase
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.testing.compare import events_of, first_difference
from penstock.testing.live import Episode, run_live, takes_over
from penstock.testing.random.worlds import seeded_choices

STREAMS = """
CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND ORDER WITHIN {slack} SECONDS{retain};
CREATE STREAM T (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND{other};
CREATE RELATION R (k INT, w INT) FROM HTTP ();
INSERT INTO R (k, w) VALUES (1, 10), (2, 20), (3, 30);
"""
SELECTS = (
    "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [ROWS {n}]",
    "SELECT ISTREAM(v) FROM S [ROWS {n}] WHERE v > 1",
    "SELECT RSTREAM(COUNT(*) AS n) FROM S [ROWS {n}]",
    "SELECT a.v, COUNT(*) AS n FROM S [ROWS {n}] a, T [RANGE {m} SECONDS] b GROUP BY a.v",
    "SELECT a.v, b.v AS w FROM S [ROWS {n}] a, T [ROWS {m}] b WHERE a.v <= b.v",
    "SELECT a.v, b.v AS w FROM S [ROWS {n}] a, S [ROWS {m}] b WHERE a.v = b.v",
    "SELECT COUNT(*) AS n FROM (SELECT ISTREAM(v) FROM S [ROWS {n}]) [RANGE {m} SECONDS]",
    "SELECT v FROM S [ROWS {n}] WHERE v >= (SELECT MAX(v) FROM T [ROWS {m}])",
    "SELECT v FROM S [ROWS {n}] EXCEPT ALL SELECT v FROM T [RANGE {m} SECONDS]",
    "SELECT r.w, COUNT(*) AS n FROM S [ROWS {n}] s, R r WHERE s.v = r.k GROUP BY r.w",
    "SELECT a.v, COUNT(*) AS n FROM S [RANGE {m} SECONDS] a, S [ROWS {n}] b WHERE a.v = b.v GROUP BY a.v",
)
WAIT = Start(StartMode.WARM, wait=True)
COMMANDS = (
    "pause", "silence", "resume", "replace", "now", "change", "change", "change", "plan", "rename", "drop", "restart",
    "another",
)  # fmt: skip


class WaitingLife:
    """A system, and what it should do."""

    def __init__(self, seed: int) -> None:
        draw = self.draw = random.Random(seed)
        self.system = PostedSystem(draw.randint(1, 4), seed)
        kept = ["", " RETAIN 2 SECONDS", " RETAIN 1 HOUR"]
        self.declared = STREAMS.format(
            slack=draw.choice([0, 2, 3]), retain=draw.choice(kept[:2]), other=draw.choice(kept)
        )
        self.system.submit(self.declared)
        self.inputs: dict[str, list[tuple[int, int]]] = {"S": [], "T": []}
        self.steps: list[str] = [self.declared]
        self.lives: dict[str, Life] = {}
        #: By name of a query, the one that is to take its place.
        self.coming: dict[str, Coming] = {}
        self.seen: Counter[str] = Counter()

    def bound(self, name: str, select: str) -> Query:
        script = re.sub(r" RETAIN \d+ \w+", "", self.declared.partition("INSERT")[0].replace("HTTP", "MEMORY"))
        return bind_script(f"{script} CREATE QUERY {name} AS {select};").queries[0]

    def insert(self, name: str, ticks: int) -> None:
        given = self.inputs[name]
        high = max((ts for ts, _ in given), default=0)
        some = [
            (max(1, high + self.draw.randint(-3, 2) + ticks), self.draw.randint(0, 4))
            for _ in range(self.draw.randint(1, 3))
        ]
        given += some
        self.steps.append(f"insert {name} {some}")
        ts, v = (pa.array(each, pa.int32()) for each in zip(*some, strict=True))
        self.system.insert(name, pa.record_batch({"ts": ts, "v": v}))
        self.answer(self.system.round())

    def answer(self, tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            if name not in self.lives:
                continue  # another query
            self.lives[name].tables.append(table)

    @property
    def read(self) -> dict[str, int]:
        return {**{name: len(given) for name, given in self.inputs.items()}, "R": 3}

    def episode(self, query: Query, start: Start) -> Episode:
        return Episode(query, start, self.read, lost=self.system.lost())

    def step(self) -> None:
        draw = self.draw
        if draw.random() < 0.12:
            self.system.crash_at = draw.randint(1, 30)
            self.steps.append(f"power goes at call {self.system.crash_at}")
        if draw.random() < 0.7:
            self.insert(draw.choice("ST"), draw.randint(0, 2))
            return
        name = draw.choice([*(name for name, life in self.lives.items() if life.alive), ""])
        if not name or len(self.lives) < 2:
            self.register()
            return
        life, query = self.lives[name], self.system.control.query(name)[1]
        coming = query.beside is not None and query.beside.waits
        command = draw.choice(COMMANDS)
        self.steps.append(f"{command} {name}: {query.status.value}, {query.answer.waits=}, {query.beside=}")
        self.seen[f"{command} while it waits"] += query.answer.waits
        self.seen[f"{command} while what is to come waits"] += coming
        if command == "restart":
            self.system.restart()
        elif command == "another":
            self.system.submit(f"CREATE QUERY o{len(self.steps)} AS SELECT COUNT(*) AS n FROM S [RANGE 2 SECONDS]")
        elif command == "rename":
            self.system.submit(f"ALTER QUERY {name} RENAME TO `{name} elsewhere`")
            self.system.submit(f"ALTER QUERY `{name} elsewhere` RENAME TO {name}")
        elif command == "drop":
            life.tables.append(self.system.fresh(name))
            self.system.drop(name)
            self.coming.pop(name, None)
            life.end(self.read)
            life.alive = False
        elif command == "pause" and life.open:
            self.system.pause(name, False)
            life.end(self.read)
            if name in self.coming:
                life.query = self.coming.pop(name).query
        elif command == "silence" and life.open and not query.answer.waits:
            self.system.pause(name, True)
            life.end(self.read)
        elif command == "resume" and query.phase is Phase.SILENT:
            life.tables.append(self.system.resume(name, Start(StartMode.WARM)))
            life.episodes.append(replace(life.episodes[-1], ended=None, shown=self.read))
            life.open = True
        elif command == "resume" and not life.open:
            life.tables.append(self.system.resume(name, WAIT))
            life.episodes.append(self.episode(life.query, WAIT))
            life.open = True
        elif command == "plan" and life.open and name not in self.coming:
            with suppress(PenstockError):  # one that began behind what counts for ever
                self.system.edit(name, seeded_choices(draw.randrange(10**6)))
                life.tables.append(self.system.fresh(name))
        elif command == "replace" and query.answer.waits:
            other = self.bound(name, select_of(life.query).replace("ROWS ", "ROWS 1"))
            self.begin_at_once(name, life, other, WAIT)
        elif command == "now" and life.open:
            self.begin_at_once(name, life, self.varied(name, life.query), Start(StartMode.NOW))
        elif command == "change" and life.open and not query.answer.waits:
            self.change(name, life, self.varied(name, life.query))

    def varied(self, name: str, query: Query) -> Query:
        """Return a query with other numbers of rows."""
        return self.bound(name, re.sub(r"ROWS \d+", lambda _: f"ROWS {self.draw.randint(1, 9)}", select_of(query)))

    def begin_at_once(self, name: str, life: Life, other: Query, start: Start) -> None:
        life.tables.append(self.system.replace(name, other, start))
        self.coming.pop(name, None)
        life.end(self.read)
        life.query, life.open = other, True
        life.episodes.append(self.episode(other, start))

    def change(self, name: str, life: Life, other: Query) -> None:
        """Have another query take the place of one that answers."""
        self.steps.append(f"by {select_of(other)}, lost {self.system.lost()}")
        try:
            life.tables.append(self.system.replace(name, other, WAIT))
        except PenstockError as error:
            assert "has not ended" in error.message, error
            return
        self.coming[name] = Coming(select_of(other), other, self.episode(other, WAIT))
        edit = self.system.control.query(name)[1].beside
        self.seen["a change waited"] += edit is not None and edit.waits

    def look(self) -> None:
        """See what has taken over, which is what the law says."""
        inputs = self.tables()
        for name in [name for name in self.coming if self.lives[name].open]:
            (one, query), coming, life = self.system.control.query(name), self.coming[name], self.lives[name]
            is_due = takes_over(life.episodes, coming.episode, inputs)
            assert (query.coming is None) == is_due, [*self.steps, name, life.episodes, coming, query]
            if is_due:
                assert one.text == coming.hidden
                self.steps.append(f"{coming.hidden} takes the place of {name}")
                self.seen["taken over"] += 1
                del self.coming[name]
                life.end(self.read)
                life.query, life.open = coming.query, True
                life.episodes.append(replace(coming.episode, shown=self.read))

    def register(self) -> None:
        draw, name = self.draw, f"n{len(self.lives)}"
        select = draw.choice(SELECTS).format(n=draw.randint(1, 9), m=draw.randint(1, 9))
        query = self.bound(name, select)
        self.steps.append(f"register {name} = {select}, lost {self.system.lost()}")
        life = self.lives[name] = Life(query)
        episode = self.episode(query, WAIT)
        life.tables.append(self.system.register(query, WAIT))
        life.episodes.append(episode)
        life.open = True
        self.seen["waited"] += self.system.control.query(name)[1].answer.waits

    def tables(self) -> dict[str, pa.Table]:
        inputs = {
            name: pa.table(
                {"ts": pa.array([t for t, _ in some], pa.int32()), "v": pa.array([v for _, v in some], pa.int32())}
            )
            for name, some in self.inputs.items()
        }
        inputs["R"] = pa.table({"k": pa.array([1, 2, 3], pa.int32()), "w": pa.array([10, 20, 30], pa.int32())})
        return inputs

    def check(self) -> None:
        for tick in (100, 200):
            for name in "STST":
                self.inputs[name].append((tick, 0))
                row = pa.record_batch({"ts": pa.array([tick], pa.int32()), "v": pa.array([0], pa.int32())})
                self.system.insert(name, row)
                self.answer(self.system.round())
                self.look()
        self.look()
        inputs = self.tables()
        for name, life in self.lives.items():
            found = [event for table in life.tables for event in events_of(life.query, table)]
            expected = run_live(life.episodes, inputs)
            self.seen["emitted"] += len(found)
            assert first_difference(expected, found) is None, "\n".join(
                [*self.steps, name, str(life.episodes), "the law:", *map(str, expected), "emitted:", *map(str, found)]
            )


LIVES = 8


def test_random_lives_that_wait_for_rows(case_count: int | None, case_seed: int | None) -> None:
    seen: Counter[str] = Counter()
    for seed in range(case_count or LIVES):
        life = WaitingLife(seed + 100_000 * (case_seed or 7430))
        try:
            for _ in range(40):
                life.step()
                life.look()
            life.check()
            seen += life.seen + Counter(crashes=life.system.crashes)
        finally:
            life.system.close()
    assert seen["a change waited"] > 3 and seen["taken over"] > 3, seen
    assert seen["waited"] > 3 and seen["emitted"] > 100 and seen["crashes"] > 1, seen
    assert any(count for name, count in seen.items() if name.endswith("while it waits")), seen
