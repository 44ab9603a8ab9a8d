"""Commands that follow each other with the engine on Spark: whatever comes behind a command, with no, one or two rounds
in between and with a loss of the process in each gap, every answer is what the law says.

Each kind of command has a query of its own, so that the law of each follows from the rows read at its own boundary.
Rounds run without Spark. Pairs are enumerated, with a sample of them in `make test`; triples are drawn.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark
from inline_run import Crash
from test_waiting_for_rows import lost_of

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import declared_sources
from penstock.control.engine import EngineVersion
from penstock.language.scripts import bind_script
from penstock.testing.compare import first_difference
from penstock.testing.faults import PowerLost
from penstock.testing.live import Episode, heartbeat, run_live, takes_over
from penstock.testing.oracle import timely_rows
from penstock.testing.scalars.values import Event, event_order

__all__ = ["without_spark"]

RETAIN = " RETAIN 10000 SECONDS"
DECLARED = f"""
CREATE STREAM S (ts INT, k INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND{RETAIN};
CREATE STREAM G (ts INT, k INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R (ts INT, k INT, w INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION T (k INT, c INT) FROM HTTP ();
CREATE VIEW V AS SELECT k, SUM(v) AS s FROM S [RANGE 6 SECONDS] GROUP BY k;
"""
SELECTS = {
    "joined": "SELECT ISTREAM(s.v AS k, R.w AS n) FROM S [NOW] s, R WHERE s.k = R.k",
    "pairs": "SELECT s.v AS k, CAST(R.w AS BIGINT) AS n FROM S [RANGE 5 SECONDS] s, R WHERE s.k = R.k",
    "counts": "SELECT k, COUNT(*) AS n FROM S [RANGE 9 SECONDS] GROUP BY k",
    "sums": "SELECT k, SUM(v) AS n FROM S [RANGE 12 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "gone": "SELECT k, SUM(v) AS n FROM G [RANGE 4 SECONDS] GROUP BY k",
    "static": "SELECT s.v AS k, CAST(T.c AS BIGINT) AS n FROM S [RANGE 5 SECONDS] s, T WHERE s.k = T.k",
    "view": "SELECT k, s AS n FROM V WHERE s > 3",
    "content": "SELECT k, CAST(w AS BIGINT) AS n FROM R",
    "both": "SELECT a.v AS k, SUM(b.v) AS n FROM S [RANGE 4 SECONDS] a, G [RANGE 4 SECONDS] b WHERE a.k = b.k "
    "GROUP BY a.v",
    "last": "SELECT k, COUNT(*) AS n FROM G [ROWS 3] GROUP BY k",
}
NOW, WARM, BEGINNING = (Start(mode) for mode in (StartMode.NOW, StartMode.WARM, StartMode.BEGINNING))
WAIT = Start(StartMode.WARM, wait=True)
COLUMNS = {"S": ("ts", "k", "v"), "G": ("ts", "k", "v"), "R": ("ts", "k", "w"), "T": ("k", "c")}
#: How long the process lives behind a command: on; until the command is answered; until the command behind it is
#: accepted; until the engine has gone over to that; and until a round has written its state, or all its answers.
DEATHS = ("", "answered", "accepted", "changed", "state", "delivered")


def law_queries() -> dict[str, Query]:
    script = DECLARED.replace("HTTP", "MEMORY").replace(RETAIN, "")
    script += "".join(f"CREATE QUERY {name} AS {select};" for name, select in SELECTS.items())
    return {query.name: query for query in bind_script(script).queries}


QUERIES = law_queries()


@dataclass
class Life:
    """A result, and what it should contain. events: compared one by one; else the content at the heartbeat alone."""

    query: Query
    episodes: list[Episode] = field(default_factory=list)
    is_paused: bool = False
    events: bool = True


@dataclass
class Course:
    """A server, what happens to it, and what its results should be."""

    folder: Path
    draw: random.Random
    steps: list[str] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)
    #: By name of a query that answers, the one that is to take its place.
    coming: dict[str, Episode] = field(default_factory=dict)
    rows: dict[str, list[tuple[int, ...]]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    tick: int = 0
    #: The tick up to which elements of G are gone: it keeps some while something waits for its rows.
    gone: int = 0

    def __post_init__(self) -> None:
        self.server = InlineServer(self.folder / "checkpoint")
        self.server.post(DECLARED)
        self.insert("T", [(k, 10 * k) for k in range(4)])
        self.insert("R", [(0, k, 100 + k) for k in range(5)])
        self.feed()

    # -- rows --------------------------------------------------------------------------------------------------

    def insert(self, source: str, rows: list[tuple[int, ...]]) -> None:
        self.rows[source] += rows
        self.server.control.insert(source, self.table(source, rows))

    def table(self, source: str, rows: Sequence[tuple[int, ...]]) -> pa.Table:
        columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS[source])
        return pa.table(dict(zip(COLUMNS[source], (pa.array(c, pa.int32()) for c in columns), strict=True)))

    def feed(self) -> None:
        """Post some rows of each stream, now and then of the relation, and answer."""
        for source in ("S", "G"):
            ticks = sorted(self.tick + self.draw.randint(0, 2) for _ in range(self.draw.randint(1, 4)))
            self.insert(source, [(tick, self.draw.randint(0, 5), self.draw.randint(0, 9)) for tick in ticks])
        self.insert("R", [(self.tick, self.draw.randint(0, 5), self.draw.randint(200, 299))])
        self.tick += 3
        self.answer()

    def level(self) -> None:
        """Post rows with which all sources reach one instant: what is to take a place has taken it then."""
        for tick in (self.tick + 20, self.tick + 40):
            for source in ("S", "G", "R"):
                self.insert(source, [(tick, 0, 1)])
            self.answer()
        assert not self.coming, self.told()

    def answer(self) -> None:
        self.steps.append(f"rows up to {max(row[0] for row in self.rows['R'])}")
        self.server.run.round()
        if any(one.start.wait for one in (*self.coming.values(), *(life.episodes[-1] for life in self.lives.values()))):
            # Something waits for rows, or is to take the place of a query.
            self.server.settle()
        self.look()
        gone = lost_of(self.server, "G")
        assert gone is not None, "it keeps nothing"
        self.gone = gone

    def look(self) -> None:
        """Let what is due take the place of what answers, which is what the law says."""
        for name, coming in list(self.coming.items()):
            if self.lives[name].is_paused:
                continue
            is_due = takes_over(self.lives[name].episodes, coming, self.tables())
            if is_due:
                # The first round of an epoch runs at once.
                self.server.run.round()
                self.server.settle()
            assert (self.server.control.query(name)[1].coming is None) == is_due, self.told(name)
            if is_due:
                self.steps.append(f"{name} is another one")
                del self.coming[name]
                self.ends(name)
                self.lives[name].query, self.lives[name].events = coming.query, False
                self.lives[name].episodes.append(replace(coming, shown=self.read))

    @property
    def read(self) -> dict[str, int]:
        return {name: len(rows) for name, rows in self.rows.items()}

    def lost(self, query: Query) -> dict[str, int]:
        return {"G": self.gone} if "G" in declared_sources(query.root) else {}

    # -- commands ----------------------------------------------------------------------------------------------

    def do(self, statement: str, death: str = "") -> None:
        """Execute a statement; death: "accepted" or "changed", where the process dies meanwhile."""
        self.steps.append(statement + (f" -- dies when it is {death}" if death else ""))
        if not death:
            self.server.post(statement)
            return
        reached, change = threading.Event(), self.server.engine.change

        def dying(*arguments: Any) -> EngineVersion:
            if death == "changed":
                change(*arguments)
            reached.set()
            raise PowerLost

        self.server.engine.change = dying  # type: ignore[method-assign]
        with suppress(PowerLost):
            self.server.control.submit(statement)
        assert reached.wait(60), "it is never applied"
        self.die()

    def execute(self, statement: str, effect: Callable[[], object], death: str, is_first: bool = False) -> None:
        """Execute a statement of which the law knows the effect. death: see DEATHS; is_first: no command is before."""
        self.do(statement, "" if is_first or death not in ("accepted", "changed") else death)
        effect()
        if death == "answered":
            self.die()
        elif death in ("state", "delivered"):
            self.steps.append(f"the round dies: {death}")
            try:
                self.server.run.round(death)
            except Crash:
                self.die()
        self.look()

    def die(self) -> None:
        """Start again, and wait until everything that was accepted is done."""
        self.steps.append("starts again")
        self.server.restart()
        while any(one.state.value in ("PENDING", "HYDRATING") for _, _, one in self.server.control.commands()):
            time.sleep(0.001)
        failed = [one for _, _, one in self.server.control.commands() if one.code]
        assert not failed, failed

    def begins(self, name: str, select: str, start: Start) -> None:
        query = QUERIES[select]
        self.lives[name] = Life(query, [self.episode(query, start)])

    def episode(self, query: Query, start: Start) -> Episode:
        contents = {"T": len(self.rows["T"])}
        return Episode(query, start, self.read, lost=self.lost(query), contents=contents)

    def ends(self, name: str) -> None:
        life = self.lives[name]
        life.episodes[-1] = replace(life.episodes[-1], ended=self.read)

    def goes_on(self, name: str, select: str, start: Start) -> None:
        query = QUERIES[select]
        self.lives[name].query = query
        self.lives[name].episodes.append(self.episode(query, start))
        self.lives[name].is_paused, self.lives[name].events = False, False

    def comes(self, name: str, select: str) -> None:
        """Note that another query is to take the place of one, without loss of an instant."""
        query = QUERIES[select]
        self.coming[name] = Episode(query, WAIT, self.read, lost=self.lost(query))

    # -- the law -----------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, pa.Table]:
        return {name: self.table(name, rows) for name, rows in self.rows.items()}

    def told(self, name: str = "") -> str:
        """Return what happened, and when a query answered and is to be another one."""
        life, coming = self.lives.get(name), self.coming.get(name)
        episodes = [*([] if life is None else life.episodes), *([] if coming is None else [coming])]
        return "\n".join([*self.steps, name, *map(shown, episodes)])

    def end(self) -> int:
        """Let windows run out, and all sources reach one instant; return how many rows were compared."""
        for _ in range(5):
            self.feed()
        compared = self.check()
        self.level()
        return compared + self.check()

    def check(self) -> int:
        """Compare every result with the law; return how many rows were compared."""
        inputs, compared = self.tables(), 0
        for name, life in self.lives.items():
            if life.is_paused:
                continue
            sources = {n: s for n, s in declared_sources(life.query.root).items() if not s.is_static}
            beat = heartbeat(sources, {n: timely_rows(s, inputs[n]) for n, s in sources.items()})
            found = self.emitted(name, life.query, beat)
            expected = sorted((e for e in run_live(life.episodes, inputs) if e[0] <= beat), key=event_order)
            if not life.events:
                found, expected = content(found), content(expected)
            compared += len(expected)
            law = ["the law:", *map(str, expected), "emitted:", *map(str, found)]
            about = "\n".join([self.told(name), f"up to {beat}", *law])
            assert first_difference(expected, found) is None, about
        return compared

    def emitted(self, name: str, query: Query, beat: int) -> list[Event]:
        rows = self.server.emitted(name)
        first = 1 if query.root.is_stream else 2
        events = [(row[0], None if first == 1 else row[1], tuple(row[first:])) for row in rows]
        return sorted((event for event in events if event[0] <= beat), key=event_order)


def shown(episode: Episode) -> str:
    return f"{episode.query.text}, {episode.start}, from {episode.begun} to {episode.ended}, shown {episode.shown}"


def content(events: list[Event]) -> list[Event]:
    """Return what is there after all events, as events of one instant."""
    found: Counter[Any] = Counter()
    for _, op, row in events:
        found[row] += 1 if op == "+" else -1
    return sorted(((0, "+", row) for row, count in found.items() for _ in range(count)), key=event_order)


@dataclass(frozen=True)
class Kind:
    """A kind of command. before: what it needs, of the position of the command; statement: it; effect: what the law
    knows of it."""

    name: str
    before: Callable[[Course, str], None]
    statement: Callable[[Course, str], str]
    effect: Callable[[Course, str], None]


def created(select: str, start: Start, words: str = "") -> Kind:
    words = words or f"START {start.words}"

    def statement(course: Course, i: str) -> str:
        return f"CREATE QUERY q{i} {words} AS {SELECTS[select]};"

    return Kind(f"CREATE {words} {select}", lambda c, i: None, statement, lambda c, i: c.begins(f"q{i}", select, start))


def create_at(select: str, ahead: int) -> Kind:
    def effect(course: Course, i: str) -> None:
        course.begins(f"q{i}", select, Start(StartMode.AT, course.tick + ahead))

    def statement(course: Course, i: str) -> str:
        return f"CREATE QUERY q{i} START AT {course.tick + ahead} AS {SELECTS[select]};"

    return Kind(f"CREATE AT {ahead} {select}", lambda c, i: None, statement, effect)


def stands(*names: str, select: str = "counts") -> Callable[[Course, str], None]:
    """Return what registers queries that stand before the commands."""

    def before(course: Course, i: str) -> None:
        for name in names:
            course.do(f"CREATE QUERY {name}{i} AS {SELECTS[select]};")
            course.begins(f"{name}{i}", select, NOW)

    return before


def paused(how: str) -> Callable[[Course, str], None]:
    def before(course: Course, i: str) -> None:
        stands("p")(course, i)
        course.feed()
        course.do(f"ALTER QUERY p{i} PAUSE{how};")
        course.ends(f"p{i}")

    return before


def pause(course: Course, i: str) -> None:
    course.ends(f"p{i}")
    course.lives[f"p{i}"].is_paused = True


def shown_again(course: Course, i: str) -> None:
    life = course.lives[f"p{i}"]
    life.episodes.append(replace(life.episodes[-1], ended=None, shown=course.read))
    life.events = False


def replaced(select: str, start: Start) -> Kind:
    def effect(course: Course, i: str) -> None:
        if start.wait:
            course.comes(f"p{i}", select)
            return
        course.ends(f"p{i}")
        course.goes_on(f"p{i}", select, start)

    def statement(course: Course, i: str) -> str:
        return f"ALTER QUERY p{i} AS {SELECTS[select]} START {start.words};"

    return Kind(f"ALTER AS {select} START {start.words}", stands("p"), statement, effect)


def resumed(start: Start) -> Kind:
    return Kind(
        f"RESUME {start.words}",
        paused(""),
        lambda c, i: f"ALTER QUERY p{i} RESUME START {start.words};",
        lambda c, i: c.goes_on(f"p{i}", "counts", start),
    )


def exchange(course: Course, i: str) -> None:
    one, other = course.lives[f"p{i}"], course.lives[f"o{i}"]
    course.ends(f"p{i}"), course.ends(f"o{i}")
    episodes = [replace(life.episodes[-1], ended=None, shown=course.read) for life in (other, one)]
    one.query, other.query = other.query, one.query
    for life, episode in zip((one, other), episodes, strict=True):
        life.episodes.append(episode)
        life.events = False


def rename(course: Course, i: str) -> None:
    course.lives[f"x{i}"] = course.lives.pop(f"p{i}")


def two(course: Course, i: str) -> None:
    stands("p", select="counts")(course, i)
    stands("o", select="sums")(course, i)


KINDS = (
    created("joined", NOW), created("pairs", NOW), created("counts", NOW), created("static", NOW), created("view", NOW),
    created("content", NOW), created("joined", WARM), created("counts", WARM), created("sums", WARM),
    created("view", WARM), created("counts", BEGINNING), created("pairs", BEGINNING), created("gone", WAIT),
    created("both", WAIT), created("last", WAIT), create_at("sums", -4), create_at("counts", 5),
    Kind("PAUSE", stands("p"), lambda c, i: f"ALTER QUERY p{i} PAUSE;", pause),
    Kind("PAUSE WITH STATE", stands("p"), lambda c, i: f"ALTER QUERY p{i} PAUSE WITH STATE;", pause),
    resumed(NOW), resumed(WARM), resumed(BEGINNING),
    Kind("RESUME silent", paused(" WITH STATE"), lambda c, i: f"ALTER QUERY p{i} RESUME;", shown_again),
    Kind("DROP", stands("p"), lambda c, i: f"DROP QUERY p{i};", lambda c, i: c.lives.pop(f"p{i}") and None),
    Kind("RENAME", stands("p"), lambda c, i: f"ALTER QUERY p{i} RENAME TO x{i};", rename),
    replaced("pairs", NOW), replaced("pairs", WARM), replaced("sums", WARM), replaced("gone", WAIT),
    replaced("last", WAIT), Kind("SWAP", two, lambda c, i: f"ALTER QUERY p{i} SWAP WITH o{i};", exchange),
)  # fmt: skip


@contextmanager
def opened(folder: Path, seed: int) -> Iterator[Course]:
    """A course in a new folder; errors tell its steps."""
    folder.mkdir(parents=True)
    course = Course(folder, random.Random(seed))
    try:
        yield course
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError("\n".join([*course.steps, f"{type(error).__name__}: {error}"])) from error
    finally:
        course.server.close()


def follow(folder: Path, kinds: Sequence[Kind], gaps: Sequence[int], death: str, seed: int) -> int:
    """Execute commands one behind the other; return how many rows were compared.

    Args:
        gaps: rounds with rows behind each of them.
        death: see DEATHS; behind each command, and in each but the first one.
    """
    with opened(folder, seed) as course:
        numbered = [(kind, str(number)) for number, kind in enumerate(kinds)]
        for kind, i in numbered:
            kind.before(course, i)
        course.feed()
        for number, (kind, i) in enumerate(numbered):
            course.execute(kind.statement(course, i), partial(kind.effect, course, i), death, number == 0)
            for _ in range(gaps[number]):
                course.feed()
        return course.end()


def follow_at_once(folder: Path, kinds: Sequence[Kind], death: str, seed: int) -> int:
    """Execute commands from clients that do not wait for each other; return how many rows were compared."""
    with opened(folder, seed) as course:
        numbered = [(kind, str(number)) for number, kind in enumerate(kinds)]
        for kind, i in numbered:
            kind.before(course, i)
        course.feed()
        statements = [kind.statement(course, i) for kind, i in numbered]
        course.steps += ["at once:", *statements]
        with ThreadPoolExecutor(len(statements)) as clients:
            list(clients.map(course.server.post, statements))
        for kind, i in numbered:
            kind.effect(course, i)
        if death:
            course.die()
        course.look()
        return course.end()


#: Cases of `make test`, and of the slow form.
PAIRS, TRIPLES, AT_ONCE, MANY_TRIPLES, MANY_AT_ONCE = 40, 10, 10, 2000, 1000


def all_pairs() -> list[tuple[tuple[Kind, Kind], int, str]]:
    return [(pair, gap, death) for pair in itertools.product(KINDS, KINDS) for gap in range(3) for death in DEATHS]


def test_pairs_of_commands(tmp_path: Path, without_spark: None, case_count: int | None, case_seed: int | None) -> None:
    draw, compared = random.Random(case_seed or 37), 0
    for number, (pair, gap, death) in enumerate(draw.sample(all_pairs(), case_count or PAIRS)):
        compared += follow(tmp_path / str(number), pair, [gap, 0], death, draw.randrange(10**6))
    assert compared > 1000


def test_a_change_that_waits_where_a_standing_query_was_bound_without_what_is_kept_for_it(
    tmp_path: Path, without_spark: None
) -> None:
    """After a restart the query that reads the stream already has its declaration without RETAIN."""
    first, second = (
        next(kind for kind in KINDS if kind.name == name)
        for name in ("CREATE START WARM WAIT last", "ALTER AS last START WARM WAIT")
    )
    assert follow(tmp_path / "case", (first, second), [1, 0], "accepted", 990709) > 0


def test_triples_of_commands(
    tmp_path: Path, without_spark: None, case_count: int | None, case_seed: int | None
) -> None:
    draw, compared = random.Random(case_seed or 38), 0
    for number in range(case_count or TRIPLES):
        kinds, gaps = draw.choices(KINDS, k=3), draw.choices((0, 0, 1, 2), k=3)
        compared += follow(tmp_path / str(number), kinds, gaps, draw.choice(DEATHS), draw.randrange(10**6))
    assert compared > 200


def test_commands_of_four_clients_at_once(
    tmp_path: Path, without_spark: None, case_count: int | None, case_seed: int | None
) -> None:
    draw, compared = random.Random(case_seed or 39), 0
    for number in range(case_count or AT_ONCE):
        kinds, death = draw.choices(KINDS, k=4), draw.choice(("", "answered"))
        compared += follow_at_once(tmp_path / str(number), kinds, death, draw.randrange(10**6))
    assert compared > 200


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_every_pair_of_commands(tmp_path: Path, without_spark: None, case_seed: int | None) -> None:
    draw = random.Random(case_seed or 37)
    for number, (pair, gap, death) in enumerate(all_pairs()):
        follow(tmp_path / str(number), pair, [gap, 0], death, draw.randrange(10**6))


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_many_triples_of_commands(tmp_path: Path, without_spark: None, case_seed: int | None) -> None:
    test_triples_of_commands(tmp_path / "triples", without_spark, MANY_TRIPLES, case_seed)
    test_commands_of_four_clients_at_once(tmp_path / "at once", without_spark, MANY_AT_ONCE, case_seed)
