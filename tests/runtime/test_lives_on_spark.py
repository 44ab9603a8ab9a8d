"""Random lives of relations with the engine on Spark: whatever happens to a query, the content of each sink is what the
oracle says of the query that it has.

Rounds run without Spark. A sink that is shown another query may keep its content until an instant comes that nothing
has been emitted of; then it has to be right at every heartbeat.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.properties.need import first_full_instant
from penstock.errors import ScriptErrors
from penstock.language.scripts import bind_script
from penstock.testing.live import Episode, run_live
from penstock.types import BEGIN

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND {slack} {retain};"
KEPT = "RETAIN 10000 SECONDS"
SELECTS = (
    "SELECT v % 3 AS k, COUNT(*) AS n FROM S [RANGE 4 SECONDS] GROUP BY v % 3",
    "SELECT v % 3 AS k, SUM(v) AS n FROM S [RANGE 7 SECONDS SLIDE 2 SECONDS] GROUP BY v % 3",
    "SELECT v AS k, CAST(1 AS BIGINT) AS n FROM S [RANGE 3 SECONDS] WHERE v > 3",
    "SELECT v AS k, CAST(ts AS BIGINT) AS n FROM S [RANGE 30 SECONDS] WHERE v % 2 = 0",
    "SELECT DISTINCT v AS k, CAST(7 AS BIGINT) AS n FROM S [ROWS 5]",
    "SELECT a.v AS k, CAST(b.v AS BIGINT) AS n FROM S [RANGE 5 SECONDS] a, S [RANGE 3 SECONDS] b WHERE a.v = b.v + 1",
)
KINDS = ("insert",) * 6 + ("pause", "resume", "resume", "replace", "swap", "swap", "restart")
REPLACING = ("insert",) * 6 + ("replace",) * 4 + ("pause", "resume", "resume", "swap", "restart")
STARTS = ("NOW", "WARM", "WARM WAIT", "BEGINNING", "AT")
#: Where nothing is retained.
STARTS_WITHOUT_PAST = ("NOW", "WARM WAIT", "WARM WAIT")


@dataclass
class Line:
    """A result. query: the one that it shows; state: what it does; since: the largest timestamp read when that began;
    kept: how many events had been emitted then; coming: the one that is to take its place."""

    query: Query
    start: Start
    begun: int
    state: str = "running"
    since: int = 0
    kept: int = 0
    sink: str = "RESULTS"
    checked: int = 0
    coming: Line | None = None


@dataclass
class Lives:
    """Some queries, what happens to them, and what they should contain."""

    server: InlineServer
    draw: random.Random
    out: Path
    rows: list[tuple[int, int]] = field(default_factory=list)
    lines: dict[str, Line] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    slack: str = ""
    replaced: int = 0

    def begin(self) -> None:
        self.slack = self.draw.choice(("", "ORDER WITHIN 2 SECONDS"))
        self.retain = self.draw.choice((KEPT, KEPT, ""))
        self.stream = STREAM.format(slack=self.slack, retain=self.retain)
        self.server.post(self.stream)
        plain = STREAM.format(slack=self.slack, retain="").replace("HTTP", "MEMORY")
        self.queries = [bind_script(f"{plain} CREATE QUERY q AS {select};").queries[0] for select in SELECTS]
        for _ in range(3):
            self.register()

    @property
    def high(self) -> int:
        return max((ts for ts, _ in self.rows), default=0)

    def emitted(self, name: str) -> list[tuple[Any, ...]]:
        return self.server.emitted(name)

    def changed(self, name: str) -> None:
        line = self.lines[name]
        line.since, line.kept = self.high, len(self.emitted(name))

    def do(self, statement: str) -> bool:
        self.steps.append(statement)
        self.server.post(statement)
        return True

    @property
    def checked(self) -> int:
        return sum(line.checked for line in self.lines.values())

    def start(self) -> Start:
        words = self.draw.choice(STARTS if self.retain else STARTS_WITHOUT_PAST)
        mode, wait = StartMode[words.partition(" ")[0]], words.endswith("WAIT")
        return Start(mode, self.draw.randint(0, self.high + 9) if mode is StartMode.AT else None, wait)

    def text(self, start: Start) -> str:
        return f"START {start.words}" + (f" {start.at}" if start.at is not None else "")

    def lost(self, begun: int) -> dict[str, int]:
        """What was gone when so many rows had been read."""
        return {"S": max(ts for ts, _ in self.rows[:begun])} if begun and not self.retain else {}

    def first(self, line: Line) -> int | None:
        """The instant at which the query of a line begins, None for its heartbeat."""
        if not line.start.wait:
            return line.start.at
        return first_full_instant(line.query.root.needs, self.lost(line.begun), BEGIN)

    def can_begin(self, number: int, start: Start, begun: int) -> bool:
        """Rows that are lost are not made up for by waiting."""
        needs = self.queries[number].root.needs
        return not start.wait or first_full_instant(needs, self.lost(begun), BEGIN) is not None

    # -- what happens ------------------------------------------------------------------------------------------

    def register(self) -> None:
        name, number, start = f"q{len(self.lines)}", self.draw.randrange(len(SELECTS)), self.start()
        if self.can_begin(number, start, len(self.rows)) and self.do(
            f"CREATE QUERY {name} {self.text(start)} AS {SELECTS[number]};"
        ):
            self.lines[name] = Line(self.queries[number], start, len(self.rows))
            self.changed(name)

    def insert(self) -> None:
        low = max(0, self.high - (2 if self.slack else 0))
        rows = [(low + self.draw.randint(0, 3), self.draw.randint(0, 9)) for _ in range(self.draw.randint(1, 5))]
        rows = rows if self.slack else sorted(rows)
        self.steps.append(f"insert {rows}")
        self.rows += rows
        self.server.insert("S", rows)
        self.settle()
        for name in self.lines:
            self.check(name)

    def settle(self) -> None:
        """Note which queries have taken the place of others."""
        self.server.settle()
        for name, line in self.lines.items():
            coming = line.coming
            if coming is not None and self.server.control.query(name)[1].coming is None:
                self.steps.append(f"{coming.query.text} takes the place of {name}")
                self.lines[name] = replace(
                    line, query=coming.query, start=coming.start, begun=coming.begun, coming=None
                )
                self.changed(name)
                self.replaced += 1

    def pause(self, name: str) -> None:
        with_state = self.draw.random() < 0.4
        self.do(f"ALTER QUERY {name} PAUSE{' WITH STATE' if with_state else ''};")
        line = self.lines[name]
        line.state = "silent" if with_state else "paused"
        if line.coming is not None and not with_state:
            line.query, line.coming = line.coming.query, None
        self.changed(name)

    def resume(self, name: str) -> None:
        line, start = self.lines[name], self.start()
        if not self.can_begin(self.queries.index(line.query), start, len(self.rows)):
            start = Start()
        if line.state == "silent":
            self.do(f"ALTER QUERY {name} RESUME;")
        elif not self.do(f"ALTER QUERY {name} RESUME {self.text(start)};"):
            return
        else:
            line.start, line.begun = start, len(self.rows)
        line.state = "running"
        self.changed(name)
        self.settle()

    def replace(self, name: str) -> None:
        # By itself it would go on.
        others = [n for n, query in enumerate(self.queries) if query is not self.lines[name].query]
        number, start = self.draw.choice(others), self.start()
        statement = f"ALTER QUERY {name} AS {SELECTS[number]} {self.text(start)};"
        if self.can_begin(number, start, len(self.rows)) and self.replaced_by(name, statement):
            line = self.lines[name]
            new = Line(self.queries[number], start, len(self.rows))
            if start.wait:
                line.coming = new
                self.settle()
            else:
                line.query, line.start, line.begun, line.coming = new.query, new.start, new.begun, None
                self.changed(name)

    def replaced_by(self, name: str, statement: str) -> bool:
        """Return whether a query is replaced. A change that waits is refused where the one before has taken over, or is
        about to, and has not ended."""
        try:
            return self.do(statement)
        except ScriptErrors as error:
            assert "has not ended" in error.message and self.server.control.query(name)[1].beside is not None
            return False

    def swap(self, one: str, other: str) -> None:
        self.do(f"ALTER QUERY {one} SWAP WITH {other};")
        first, second = self.lines[one], self.lines[other]
        self.lines[one] = replace(first, query=second.query, start=second.start, begun=second.begun)
        self.lines[other] = replace(second, query=first.query, start=first.start, begun=first.begun)
        self.changed(one), self.changed(other)

    def step(self, kinds: Sequence[str]) -> None:
        kind = self.draw.choice(kinds)
        running = [name for name, line in self.lines.items() if line.state == "running"]
        stopped = [name for name, line in self.lines.items() if line.state != "running"]
        if kind == "insert":
            self.insert()
        elif kind == "restart":
            self.steps.append(kind)
            self.server.restart()
        elif kind == "resume" and stopped:
            self.resume(self.draw.choice(stopped))
        elif kind in ("pause", "replace") and running:
            getattr(self, kind)(self.draw.choice(running))
        elif kind == "swap" and len(unchanging := [n for n in running if self.lines[n].coming is None]) > 1:
            self.swap(*self.draw.sample(unchanging, 2))

    # -- the law -----------------------------------------------------------------------------------------------

    def check(self, name: str) -> None:
        line, beat = self.lines[name], self.server.heartbeat(name)
        events = self.emitted(name)
        if line.state != "running":
            assert len(events) == line.kept, self.shown(name, "emits while it is paused")
            return
        if beat is None:
            return
        if len(events) == line.kept and beat <= line.since:
            return  # it waits for an instant that nothing has been emitted of
        first = self.first(line)
        if first is not None and beat < first:
            return
        found: Counter[Any] = Counter()
        for ts, op, *row in events:
            if ts <= beat:
                found[tuple(row)] += 1 if op == "+" else -1
        assert {row: count for row, count in found.items() if count} == self.expected(line, beat), self.shown(
            name, beat
        )
        line.checked += 1

    def expected(self, line: Line, beat: int) -> dict[Any, int]:
        """Return the content of a query at its heartbeat."""
        ticks, values = zip(*self.rows, strict=True)
        inputs = {"S": pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(values, pa.int32())})}
        found: Counter[Any] = Counter()
        episode = Episode(line.query, line.start, {"S": line.begun}, lost=self.lost(line.begun))
        for ts, op, row in run_live([episode], inputs):
            if ts <= beat:
                found[tuple(row)] += 1 if op == "+" else -1
        return {row: count for row, count in found.items() if count}

    def shown(self, name: str, what: object) -> str:
        events = "\n".join(map(str, self.emitted(name)))
        return "\n".join([self.stream, *self.steps, f"{name}: {what}", events, str(self.lines[name])])


def random_life(folder: Path, seed: int, steps: int = 40, kinds: Sequence[str] = KINDS) -> Lives:
    server = InlineServer(folder / "checkpoint")
    lives = Lives(server, random.Random(seed), folder / "out")
    try:
        lives.begin()
        for _ in range(steps):
            lives.step(kinds)
        for name in [name for name, line in lives.lines.items() if line.state != "running"]:
            lives.resume(name)
        for _ in range(3):
            lives.insert()
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError("\n".join([lives.stream, *lives.steps, repr(error)])) from error
    finally:
        server.close()
    return lives


LIVES, REPLACED_LIVES = 2, 3


def test_every_sink_has_the_content_of_its_query(
    tmp_path: Path, without_spark: None, case_count: int | None, case_seed: int | None
) -> None:
    checked = 0
    for seed in range(case_count or LIVES):
        checked += random_life(tmp_path / str(seed), seed + 100_000 * (case_seed or 0)).checked
    assert checked > 10


def test_queries_take_the_place_of_others(
    tmp_path: Path, without_spark: None, case_count: int | None, case_seed: int | None
) -> None:
    checked = replaced = 0
    for seed in range(case_count or REPLACED_LIVES):
        life = random_life(tmp_path / str(seed), 500 + seed + 100_000 * (case_seed or 0), 40, REPLACING)
        checked += life.checked
        replaced += life.replaced
    assert checked > 10 and replaced > 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_sink_has_the_content_of_its_query_in_many_more_lives(
    tmp_path: Path, without_spark: None, case_count: int | None
) -> None:
    for seed in range(1000, 1000 + (case_count or 200)):
        random_life(tmp_path / str(seed), seed, 80)
