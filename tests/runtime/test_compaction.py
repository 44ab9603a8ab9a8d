"""Posts of a relation that were read long ago lie in few files, and everything that reads the relation gets what the
law says, whatever has been compacted and removed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from compaction_kit import compacted_of, compacting, pinned, posts, selected
from inline_engine import InlineServer, without_spark
from test_changes_of_posted_rows import KINDS as CHANGED
from test_changes_of_posted_rows import Model

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script, bind_select
from penstock.runtime.live import history
from penstock.runtime.spark.hydration import compaction, kept_relations
from penstock.runtime.spark.retention import merging
from penstock.testing.live import NOTHING, Episode, run_live
from penstock.testing.one_time import assert_same_rows, rows_of
from penstock.testing.oracle import run_oracle_once

__all__ = ["without_spark"]

STREAMS = (
    "CREATE STREAM S (ts INT, k INT, x INT) FROM {} () TIMESTAMP BY ts UNIT SECOND{};",
    "CREATE STREAM T (ts INT, k INT, x INT) FROM {} () TIMESTAMP BY ts UNIT SECOND{};",
)
KINDS = {
    "bag": "CREATE RELATION R (ts INT, op STRING, k INT, v INT) FROM {} () "
    "TIMESTAMP BY ts UNIT SECOND OPERATION BY op;",
    "keyed": "CREATE RELATION R (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM {} () "
    "TIMESTAMP BY ts UNIT SECOND OPERATION BY op;",
    "replacing": "CREATE RELATION R (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM {} () "
    "TIMESTAMP BY ts UNIT SECOND;",
    "growing": "CREATE RELATION R (ts INT, op STRING, k INT, v INT) FROM {} () TIMESTAMP BY ts UNIT SECOND;",
}
SELECTS = (
    "SELECT k, v FROM R",
    "SELECT COUNT(*) AS n, SUM(v) AS s FROM R",
    "SELECT S.k, x, v FROM S [RANGE 9 SECONDS], R WHERE S.k = R.k",
)
QUERIES = (
    "SELECT k AS a, v AS b FROM R",
    "SELECT S.k AS a, v + x AS b FROM S [RANGE 9 SECONDS], R WHERE S.k = R.k",
    "SELECT T.k AS a, v + x AS b FROM T [RANGE 5 SECONDS], R WHERE T.k = R.k",
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is compacted and folded as soon as possible."""
    monkeypatch.setattr(history, "_FEWEST", 0)
    monkeypatch.setattr(kept_relations, "_FEW", 0)
    monkeypatch.setattr(compaction, "FEW", 1)
    monkeypatch.setattr(merging, "FEW", 1)


@dataclass
class Line:
    """A query, how it began, and which rows of each source had been read then."""

    query: Query
    start: Start
    begun: dict[str, int]
    folded: int


@dataclass
class Life:
    """A relation and streams that come along more slowly, as posted, and as the law has them."""

    server: InlineServer
    draw: random.Random
    kind: str
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {"R": [], "S": [], "T": []})
    lines: dict[str, Line] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        declared = KINDS[self.kind], *STREAMS
        self.law = "".join(one.format("MEMORY", "") for one in declared)
        retain = "", " RETAIN 1 HOUR", " RETAIN 1 HOUR"
        self.server.post("".join(one.format("HTTP", more) for one, more in zip(declared, retain, strict=True)))

    def table(self, name: str) -> pa.Table:
        names = ("ts", "op", "k", "v") if name == "R" else ("ts", "k", "x")
        types = [pa.string() if one == "op" else pa.int32() for one in names]
        columns = zip(*self.rows[name], strict=True) if self.rows[name] else ([] for _ in names)
        return pa.table([pa.array(list(c), t) for c, t in zip(columns, types, strict=True)], names=list(names))

    def tables(self) -> dict[str, pa.Table]:
        return {name: self.table(name) for name in self.rows}

    def high(self, name: str) -> int:
        return max((row[0] for row in self.rows[name]), default=0)

    # -- what happens ------------------------------------------------------------------------------------------

    def insert(self, name: str) -> None:
        """Some rows, now and then a late one."""
        draw, tick = self.draw, self.high(name)
        rows: list[tuple[Any, ...]] = []
        for _ in range(draw.randint(1, 4)):
            tick += draw.randint(0, 2)
            ts = max(0, tick - 5) if draw.random() < 0.1 else tick
            key, value = draw.randint(0, 3), draw.randint(0, 4)
            rows.append((ts, draw.choice("++-"), key, value) if name == "R" else (ts, key, value))
        before = self.table(name).num_rows
        self.rows[name] += rows
        self.server.control.insert(name, self.table(name).slice(before), None)
        self.server.run.round()

    def compact(self) -> None:
        compacting(self.server, self.draw.choice((0, 0, 5, 40)), self.draw.choice((2**28, 2**28, 1))).compact()
        self.seen["compacted"] += 1

    def restart(self) -> None:
        self.server.restart()

    def register(self) -> None:
        name, text = f"q{len(self.lines)}", self.draw.choice(QUERIES)
        mode = self.draw.choice(list(StartMode))
        start = Start(mode, self.draw.randint(0, self.high("R") + 3) if mode is StartMode.AT else None)
        shown = f"START {mode.value}" + (f" {start.at}" if start.at is not None else "")
        folded = compacted_of(self.server).folded
        try:
            self.server.post(f"CREATE QUERY {name} {shown} AS {text};")
        except PenstockError as error:
            # Only what has been folded is refused, and NOW never.
            assert error.code == "P0703" and "relation_retention" in str(error) and folded is not None, error
            assert mode is not StartMode.NOW
            self.seen["refused"] += 1
            return
        self.seen[mode.value] += 1
        (query,) = bind_script(f"{self.law} CREATE QUERY q AS {text};").queries
        begun = {source: len(rows) for source, rows in self.rows.items()}
        self.lines[name] = Line(query, start, begun, NOTHING if folded is None else folded)

    # -- the law -----------------------------------------------------------------------------------------------

    def select(self) -> None:
        text, folded = self.draw.choice(SELECTS), compacted_of(self.server).folded
        behind = max(row[0] for row in self.rows["S"]) - 1 if "S" in text and self.rows["S"] else NOTHING
        tick = max(ts for ts, *_ in self.rows["R"]) - 1 if "S" not in text else behind
        as_of = self.draw.randint(0, tick) if tick > 0 and self.draw.random() < 0.5 else None
        text += "" if as_of is None else f" AS OF {as_of}"
        try:
            self.check_select(text, selected(self.server, text, self.law))
            self.seen["selected"] += 1
        except PenstockError as error:
            # A stream may have begun before what has been folded.
            assert error.code == "P0721" and folded is not None, error
            assert (tick if as_of is None else as_of) < folded and "relation_retention" in str(error)
            self.seen["not kept"] += 1

    def check_select(self, text: str, found: Any) -> None:
        law: OneTimeQuery = bind_select(text, bind_script(self.law).catalog).query
        if found.answer.tick is not None:
            expected = run_oracle_once(replace(law, as_of=found.answer.tick), self.tables())
            assert_same_rows(law, rows_of(found.answer.table), expected)

    def check(self) -> None:
        for name, line in self.lines.items():
            beat = self.server.heartbeat(name)
            if beat is None or (line.start.at is not None and beat < line.start.at):
                continue
            has_op = not line.query.root.is_stream
            emitted = ((row[0], row[1] if has_op else "+", row[1 + has_op :]) for row in self.server.emitted(name))
            found = content(event for event in emitted if event[0] <= beat)
            episode = Episode(line.query, line.start, line.begun, folded=line.folded)
            expected = content(event for event in run_live([episode], self.tables()) if event[0] <= beat)
            assert found == expected, (name, line, beat)
            self.seen["checked"] += 1


def content(events: Any) -> dict[Any, int]:
    found: Counter[Any] = Counter()
    for _, op, row in events:
        found[tuple(row)] += -1 if op == "-" else 1
    return {row: count for row, count in found.items() if count}


@pytest.mark.spread(2)
@pytest.mark.usefixtures("without_spark", "few")
@pytest.mark.parametrize(("seed", "kind"), list(enumerate(KINDS)))
def test_every_reader_gets_what_the_law_says(
    tmp_path: Path, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    life = Life(InlineServer(tmp_path), draw, kind)
    life.insert("R")
    for number in range(24):
        monkeypatch.setattr(compaction, "_SMALL", draw.choice((0, 2**18, 2**18)))
        life.insert(draw.choice("RRRRST" if number > 12 else "RRRRS"))
        if draw.random() < 0.4:
            life.compact()
        if draw.random() < 0.15:
            life.restart()
        if draw.random() < 0.3:
            life.select()
        if draw.random() < 0.2:
            life.register()
        life.check()
    assert compacted_of(life.server).splits > 10 and len(posts(tmp_path)) < len(life.rows["R"])
    assert life.seen["checked"] > 5, life.seen
    life.server.close()


@pytest.mark.usefixtures("without_spark", "few")
@pytest.mark.parametrize("kind", CHANGED)
def test_statements_change_what_has_been_compacted(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a relation is larger than what is kept in memory."""
    server = InlineServer(tmp_path)
    server.post(CHANGED[kind])
    model, plain = Model(server, kind, random.Random(1)), CHANGED[kind].replace("HTTP", "MEMORY")
    if kind != "clocked":
        monkeypatch.setattr(kept_relations, "_LIMIT", 1)
    for number in range(16):
        model.insert() if number % 4 == 0 else model.update()
        server.run.round()
        compacting(server).compact()
        if number == 9:
            server.restart()
    if kind != "clocked":
        # Its last instant is final after a later one.
        server.post(f"INSERT INTO R VALUES ({model.stamp()}99, 0);")
        server.run.round()
    rows = selected(server, "SELECT k, v FROM R", plain).answer.table.to_pylist()
    assert {row["k"]: row["v"] for row in rows if row["k"] != 99} == model.rows
    assert compacted_of(server).splits > 10 and len(posts(tmp_path)) < 8
    server.close()


@pytest.mark.usefixtures("without_spark", "few")
def test_what_a_reader_needs_stays_until_it_has_ended(tmp_path: Path) -> None:
    life = Life(InlineServer(tmp_path), random.Random(5), "bag")
    for _ in range(8):
        life.insert("R")
    with pinned(life.server, "SELECT k, v FROM R AS OF 1", life.law) as answered:
        life.compact()
        for _ in range(6):
            life.insert("R")
            life.compact()
        assert len(posts(tmp_path)) == 14 and compacted_of(life.server).splits == 14
        life.check_select("SELECT k, v FROM R AS OF 1", answered())
    life.compact()
    assert len(posts(tmp_path)) < 8
    life.server.close()


@pytest.mark.usefixtures("without_spark", "few")
def test_a_relation_that_is_declared_again_begins_anew(tmp_path: Path) -> None:
    life = Life(InlineServer(tmp_path), random.Random(6), "bag")
    for _ in range(9):
        life.insert("R")
        life.compact()
    before = compacted_of(life.server).place
    assert list(before.iterdir())
    life.server.post(f"DROP RELATION R; {KINDS['keyed'].format('HTTP')}")
    for _ in range(4):
        life.insert("S")
    assert not before.exists()
    life.rows["R"] = []
    life.insert("R")
    life.compact()
    life.check_select(
        "SELECT k, v FROM R",
        selected(
            life.server,
            "SELECT k, v FROM R",
            life.law.replace(KINDS["bag"].format("MEMORY"), KINDS["keyed"].format("MEMORY")),
        ),
    )
    life.server.close()
