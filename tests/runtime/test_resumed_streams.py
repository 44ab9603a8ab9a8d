"""Streams whose results go on with the engine on Spark, after a pause or with another query: each instant once.

What leaves before its instant is complete is of the one instant behind the heartbeat. There the result has what
followed from the input that had been read, and from whoever answers then the rest. Other instants are those of the law.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.language.scripts import bind_script
from penstock.testing.live import Episode, run_live

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND{more};"
KEPT = " RETAIN 10000 SECONDS"
EACH = "SELECT ISTREAM(v) FROM S [NOW]"


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    yield made
    made.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_an_instant_that_was_begun_is_completed(server: InlineServer, restarts: bool) -> None:
    """Also with what came while the query was paused; nothing of it is emitted twice."""
    server.post(STREAM.format(more=KEPT) + f"CREATE QUERY q AS {EACH};")
    server.insert("S", [(1, 1), (2, 2), (2, 3)])
    assert server.emitted("q") == [(1, 1), (2, 2), (2, 3)]
    server.post("ALTER QUERY q PAUSE;")
    server.insert("S", [(2, 4), (2, 2)])
    if restarts:
        server.restart()
    server.post("ALTER QUERY q RESUME;")
    server.insert("S", [(2, 5), (3, 6), (4, 7)])
    assert server.emitted("q")[3:] == [(2, 4), (2, 2), (2, 5), (3, 6), (4, 7)]


@pytest.mark.parametrize(
    ("start", "emitted"),
    [
        ("WARM", [(5, 50), (6, 60), (7, 70)]),
        ("AT 3", [(4, 40), (5, 50), (6, 60), (7, 70)]),
        ("BEGINNING", [(3, 30), (4, 40), (5, 50), (6, 60), (7, 70)]),
        ("AT 5", [(6, 60), (7, 70)]),
        ("NOW", [(6, 60), (7, 70)]),
    ],
)
def test_a_pause_is_left_out_or_made_up_for(server: InlineServer, start: str, emitted: list[tuple[int, int]]) -> None:
    """What was emitted of 2 follows from what had been read; 3 and 4 were answered during the pause by nobody."""
    server.post(STREAM.format(more=KEPT) + f"CREATE QUERY q AS {EACH};")
    server.insert("S", [(1, 10), (2, 20)])
    server.post("ALTER QUERY q PAUSE;")
    server.insert("S", [(3, 30), (4, 40), (5, 50)])
    server.post(f"ALTER QUERY q RESUME START {start};")
    server.insert("S", [(6, 60), (7, 70)])
    assert server.emitted("q") == [(1, 10), (2, 20), *emitted]


def test_a_changed_query_goes_on_with_full_windows(server: InlineServer) -> None:
    server.post(STREAM.format(more=KEPT) + "CREATE QUERY q AS SELECT RSTREAM(SUM(v) AS s) FROM S [RANGE 3 SECONDS];")
    server.insert("S", [(tick, tick) for tick in range(1, 7)])
    before = server.emitted("q")
    assert before[-1] == (5, 12)
    server.post("CREATE OR REPLACE QUERY q START WARM AS SELECT RSTREAM(SUM(v) AS s) FROM S [RANGE 5 SECONDS];")
    server.insert("S", [(7, 7), (8, 8)])
    assert server.emitted("q")[len(before) :] == [(6, 20), (7, 25)]


def test_without_a_provider_the_former_stream_goes_on_until_nothing_is_missing(server: InlineServer) -> None:
    select = "SELECT RSTREAM(SUM(v) AS s) FROM S [RANGE {} SECONDS]"
    server.post(STREAM.format(more="") + f"CREATE QUERY q AS {select.format(3)};")
    server.insert("S", [(tick, tick) for tick in range(1, 7)])
    before = server.emitted("q")
    server.post(f"ALTER QUERY q AS {select.format(5)} START WARM WAIT;")
    server.restart()
    for tick in range(7, 16):
        server.insert("S", [(tick, tick)])
        server.settle()
    # The last element that is gone is that of 6, which counts at 10 for the last time. The exchange comes when that has
    # been answered, and is behind the instant of which the former stream may have emitted something.
    former = [(tick, 3 * tick - 3) for tick in range(6, 13)]
    assert server.emitted("q")[len(before) :] == [*former, *((tick, 5 * tick - 10) for tick in range(13, 15))]
    assert server.control.query("q")[1].beside is None


SILENCE = ("PAUSE WITH STATE", [(3, 30), (4, 40), (5, 50), (6, 60)])
EVEN = "SELECT ISTREAM(v) FROM S [NOW] WHERE v % 20 = 0"


@pytest.mark.spread(2)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("steps", "emitted"),
    [
        # Shown again, and replaced before its heartbeat has moved.
        ((*SILENCE, "RESUME", f"AS {EVEN} START AT 3"), [(4, 40), (6, 60), (8, 80)]),
        ((*SILENCE, "RESUME", f"AS {EVEN} START AT 1"), [(4, 40), (6, 60), (8, 80)]),
        # It has computed more by then; and a moment later the heartbeat has moved.
        ((*SILENCE, "RESUME", [(6, 61)], f"AS {EVEN} START AT 1"), [(4, 40), (6, 60), (8, 80)]),
        ((*SILENCE, "RESUME", [(6, 61), (7, 70)], f"AS {EVEN} START AT 3"), [(6, 60), (6, 61), (7, 70), (8, 80)]),
        # Silent again, or left out.
        ((*SILENCE, "RESUME", "PAUSE WITH STATE", "RESUME", f"AS {EVEN} START AT 3"), [(4, 40), (6, 60), (8, 80)]),
        ((*SILENCE, "RESUME", "PAUSE", "RESUME START AT 4"), [(5, 50), (6, 60), (7, 70), (8, 80)]),
        # One that was to begin later has answered nothing either.
        ((f"AS {EVEN} START AT 9", *SILENCE[1:], f"AS {EVEN} AND v > 0 START AT 3"), [(4, 40), (6, 60), (8, 80)]),
    ],
)
def test_what_nobody_has_answered_can_be_answered(
    server: InlineServer, steps: tuple[str | list[tuple[int, int]], ...], emitted: list[tuple[int, int]], restarts: bool
) -> None:
    """What was computed and withheld is none of what a result has."""
    server.post(STREAM.format(more=KEPT) + f"CREATE QUERY q AS {EACH};")
    server.insert("S", [(1, 10), (2, 20)])
    for step in steps:
        if isinstance(step, str):
            server.post(f"ALTER QUERY q {step};")
        else:
            server.insert("S", step)
        if restarts:
            server.restart()
    server.insert("S", [(7, 70), (8, 80)])
    assert server.emitted("q") == [(1, 10), (2, 20), *emitted]


def test_what_follows_from_a_relation_alone_is_not_shown_again(server: InlineServer) -> None:
    """A stream that is resumed NOW has had it."""
    server.post(
        "CREATE RELATION U (ts INT, op STRING, k INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;"
        "CREATE QUERY q AS SELECT ISTREAM(k) FROM U;"
    )

    def update(*rows: tuple[int, str, int]) -> None:
        ts, op, k = zip(*rows, strict=True)
        columns = {"ts": pa.array(ts, pa.int32()), "op": op, "k": pa.array(k, pa.int32())}
        server.control.insert("U", pa.table(columns))
        server.run.round()

    update((1, "+", 10), (2, "+", 20), (5, "+", 50))
    before = server.emitted("q")
    assert (1, 10) in before and (2, 20) in before
    server.post("ALTER QUERY q PAUSE;")
    server.post("ALTER QUERY q RESUME START NOW;")
    server.post("ALTER QUERY q AS SELECT ISTREAM(k) FROM U WHERE k > 0 START NOW;")
    update((6, "+", 60), (8, "+", 80), (9, "-", 80))
    after = server.emitted("q")[len(before) :]
    assert [row for row in after if row[0] > 5] == [(6, 60), (8, 80)]
    assert not [row for row in after if row[0] < 5]
    assert server.emitted("q").count((5, 50)) == 1


@pytest.mark.parametrize(
    ("command", "emitted"),
    [
        ("AS {even} START NOW", [10, 12]),
        ("AS {even} START WARM", [6, 8, 10, 12]),
        ("RESUME START NOW", [10, 11, 12, 13]),
        ("RESUME START WARM", [5, 6, 7, 8, 9, 10, 11, 12, 13]),
        ("AS {each} START NOW", [5, 6, 7, 8, 9, 10, 11, 12, 13]),
    ],
)
def test_rows_that_wait_for_another_source_are_of_the_query_that_can_answer_them(
    server: InlineServer, command: str, emitted: list[int]
) -> None:
    """5 to 9 have been read, and the join has been answered up to 4. By itself a query goes on."""
    join = "SELECT ISTREAM(s.v AS v, l.w AS w) FROM S [NOW] AS s, L AS l WHERE l.k = s.v % 2"
    even = f"{join} AND s.v % 2 = 0"
    server.post(STREAM.format(more=KEPT))
    server.post(
        "CREATE RELATION L (k INT, w INT, ts INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY q AS {join};"
    )

    def level(*rows: tuple[int, int, int]) -> None:
        k, w, ts = (pa.array(column, pa.int32()) for column in zip(*rows, strict=True))
        server.control.insert("L", pa.table({"k": k, "w": w, "ts": ts}))
        server.run.round()

    server.insert("S", [(tick, tick) for tick in range(1, 10)])
    level((0, 100, 1), (1, 101, 1))
    level((0, 200, 5))
    before = server.emitted("q")
    assert before == [(tick, tick, 100 + tick % 2) for tick in range(1, 5)]
    if command.startswith("RESUME"):
        server.post("ALTER QUERY q PAUSE;")
    server.post(f"ALTER QUERY q {command.format(each=join, even=even)};")
    server.insert("S", [(10, 10), (11, 11)])
    level((1, 301, 13), (0, 300, 14))
    server.insert("S", [(tick, tick) for tick in range(12, 18)])
    levels = {0: 200, 1: 101}
    assert sorted(server.emitted("q")[len(before) :]) == [
        (tick, tick, 301 if tick == 13 else levels[tick % 2]) for tick in emitted
    ]


# -- lives -----------------------------------------------------------------------------------------------------

SELECTS = (
    EACH,
    "SELECT ISTREAM(v) FROM S [NOW] WHERE v % 2 = 0",
    "SELECT ISTREAM(a.v) FROM S [NOW] a, S [RANGE 4 SECONDS] b WHERE a.v = b.v + 1",
    "SELECT DSTREAM(v) FROM S [RANGE 3 SECONDS]",
    "SELECT RSTREAM(CAST(COUNT(*) AS INT) AS v) FROM S [RANGE 6 SECONDS SLIDE 2 SECONDS]",
    "SELECT ISTREAM(CAST(COUNT(*) AS INT) AS v) FROM S [RANGE 3 SECONDS]",
)
STARTS = (StartMode.NOW, StartMode.WARM, StartMode.WARM, StartMode.AT, StartMode.BEGINNING)


@dataclass
class Line:
    """A result and its episodes. begun: the instants that were answered in part when its query changed."""

    query: Query
    episodes: list[Episode]
    state: str = "running"
    begun: set[int] = field(default_factory=set)


class Lives:
    """Some streams and what happens to them."""

    def __init__(self, server: InlineServer, draw: random.Random) -> None:
        self.server, self.draw = server, draw
        self.rows: list[tuple[int, int]] = []
        self.lines: dict[str, Line] = {}
        self.steps: list[str] = []
        self.slack = draw.choice((0, 0, 2))
        more = f" ORDER WITHIN {self.slack} SECONDS" if self.slack else ""
        self.post(STREAM.format(more=more + KEPT))
        plain = STREAM.format(more=more).replace("HTTP", "MEMORY")
        self.queries = [bind_script(f"{plain} CREATE QUERY q AS {select};").queries[0] for select in SELECTS]
        for name in ("q0", "q1"):
            number = draw.randrange(len(SELECTS))
            self.post(f"CREATE QUERY {name} AS {SELECTS[number]};")
            self.lines[name] = Line(self.queries[number], [Episode(self.queries[number], Start(), {"S": 0})])

    @property
    def high(self) -> int:
        return max((ts for ts, _ in self.rows), default=0)

    @property
    def read(self) -> dict[str, int]:
        return {"S": len(self.rows)}

    def post(self, statement: str) -> None:
        self.steps.append(statement)
        self.server.post(statement)

    def insert(self) -> None:
        low = max(0, self.high - self.slack)
        rows = [(low + self.draw.randint(0, 2), self.draw.randint(0, 5)) for _ in range(self.draw.randint(1, 4))]
        rows = rows if self.slack else sorted(rows)
        self.steps.append(f"insert {rows}")
        self.rows += rows
        self.server.insert("S", rows)

    def start(self) -> tuple[Start, str]:
        mode = self.draw.choice(STARTS)
        at = self.draw.randint(0, self.high + 3) if mode is StartMode.AT else None
        return Start(mode, at), f"START {mode.value}" + ("" if at is None else f" {at}")

    def stop(self, line: Line) -> None:
        if line.state == "running":
            line.episodes[-1] = replace(line.episodes[-1], ended=self.read)
        line.begun.add(self.high - self.slack)

    def step(self) -> None:
        kind = self.draw.choice(("insert",) * 5 + ("pause", "resume", "resume", "replace", "swap", "restart"))
        name = self.draw.choice(list(self.lines))
        line = self.lines[name]
        if kind == "insert" or not self.rows:
            self.insert()
        elif kind == "restart":
            self.steps.append(kind)
            self.server.restart()
        elif kind == "pause" and line.state == "running":
            silent = self.draw.random() < 0.3
            self.post(f"ALTER QUERY {name} PAUSE{' WITH STATE' if silent else ''};")
            self.stop(line)
            line.state = "silent" if silent else "paused"
        elif kind == "resume" and line.state == "silent":
            self.post(f"ALTER QUERY {name} RESUME;")
            line.episodes.append(replace(line.episodes[-1], ended=None, shown=self.read))
            line.state = "running"
        elif kind == "resume" and line.state == "paused":
            start, text = self.start()
            self.post(f"ALTER QUERY {name} RESUME {text};")
            line.episodes.append(Episode(line.query, start, self.read))
            line.state = "running"
        elif kind == "replace" and line.state == "running":
            (start, text), number = self.start(), self.draw.randrange(len(SELECTS))
            if self.queries[number] is line.query:
                return  # by itself it would go on
            self.post(f"ALTER QUERY {name} AS {SELECTS[number]} {text};")
            self.stop(line)
            line.query = self.queries[number]
            line.episodes.append(Episode(line.query, start, self.read))
        elif kind == "swap" and all(one.state == "running" for one in self.lines.values()):
            self.post("ALTER QUERY q0 SWAP WITH q1;")
            first, second = self.lines.values()
            for one in (first, second):
                self.stop(one)
            episodes = [replace(one.episodes[-1], ended=None, shown=self.read) for one in (second, first)]
            first.query, second.query = second.query, first.query
            for one, episode in zip((first, second), episodes, strict=True):
                one.episodes.append(episode)

    def check(self) -> int:
        """Compare all instants that are complete and were not answered in part; return how many rows there are."""
        ticks, values = zip(*self.rows, strict=True)
        inputs = {"S": pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(values, pa.int32())})}
        compared = 0
        for name, line in self.lines.items():
            final = self.high - self.slack - 1
            expected = [(ts, *row) for ts, _, row in run_live(line.episodes, inputs)]
            found = self.server.emitted(name)
            sides = [
                Counter(row for row in side if row[0] <= final and row[0] not in line.begun)
                for side in (expected, found)
            ]
            shown = [
                sorted(((sides[0] - sides[1]) + (sides[1] - sides[0])).items()),
                sorted(line.begun),
                expected,
                found,
            ]
            assert sides[0] == sides[1], "\n".join([*self.steps, name, *map(str, shown), *map(str, line.episodes)])
            compared += sides[0].total()
        return compared


def random_life(folder: Path, seed: int, steps: int = 35) -> int:
    server = InlineServer(folder / "checkpoint")
    try:
        lives = Lives(server, random.Random(seed))
        for _ in range(steps):
            lives.step()
        for name, line in lives.lines.items():
            if line.state == "paused":
                start, text = lives.start()
                lives.post(f"ALTER QUERY {name} RESUME {text};")
                line.episodes.append(Episode(line.query, start, lives.read))
        for _ in range(4):
            lives.insert()
        return lives.check()
    finally:
        server.close()


LIVES = 2


def test_streams_are_what_the_law_says(
    tmp_path: Path, without_spark: None, case_count: int | None, case_seed: int | None
) -> None:
    compared = 0
    for seed in range(case_count or LIVES):
        compared += random_life(tmp_path / str(seed), seed + 100_000 * (case_seed or 0))
    assert compared > 10


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_streams_are_what_the_law_says_in_many_more_lives(
    tmp_path: Path, without_spark: None, case_count: int | None
) -> None:
    for seed in range(1000, 1000 + (case_count or 200)):
        random_life(tmp_path / str(seed), seed, 70)
