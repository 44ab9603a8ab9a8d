"""UPDATE and DELETE at a live system: against the content after everything that was posted before, whatever of it has
been read, and without reading that again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from inline_engine import InlineServer, without_spark

from penstock.connectors.contract import Split
from penstock.control.posted_rows import PostedRows
from penstock.control.row_changes import content
from penstock.runtime.live import history
from penstock.runtime.spark.hydration import kept_relations
from penstock.runtime.spark.hydration.update_reader import UpdateReader

__all__ = ["without_spark"]

KINDS = {
    "clocked": "CREATE RELATION R ("
    "op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () OPERATION BY op SYSTEM TIME;",
    "timed": "CREATE RELATION R (ts INT, k INT, v INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;",
    "operations": "CREATE RELATION R ("
    "ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;",
}


class Model:
    """The content of the relation, from the statements alone."""

    def __init__(self, server: InlineServer, kind: str, draw: random.Random) -> None:
        self.server, self.kind, self.draw = server, kind, draw
        self.rows: dict[int, int] = {}
        self.ts = 0

    def stamp(self) -> str:
        """The first columns of a row."""
        self.ts += 1
        return {"clocked": "'+', ", "timed": f"{self.ts}, ", "operations": f"{self.ts}, '+', "}[self.kind]

    def insert(self) -> None:
        fresh = [k for k in range(12) if k not in self.rows]
        keys = self.draw.sample(fresh, min(len(fresh), self.draw.randint(1, 3)))
        if keys:
            values = {k: self.draw.randint(0, 9) for k in keys}
            self.server.post(f"INSERT INTO R VALUES {', '.join(f'({self.stamp()}{k}, {values[k]})' for k in keys)};")
            self.rows |= values

    def update(self) -> None:
        stamp = self.stamp().split(",")[0]
        more = "" if self.kind == "clocked" else f", ts = {stamp}"
        low = self.draw.randint(0, 9)
        self.server.post(f"UPDATE R SET v = (v + 3) % 10{more} WHERE v >= {low};")
        self.rows = {k: (v + 3) % 10 if v >= low else v for k, v in self.rows.items()}

    def delete(self) -> None:
        if self.kind != "clocked":
            return
        key = self.draw.randint(0, 11)
        self.server.post(f"DELETE FROM R WHERE k = {key};")
        self.rows.pop(key, None)

    def check(self) -> None:
        posted, source, number = self.posted()
        left = content(source, posted.table(source, number))
        k, v = (left.columns[source.columns.names.index(name)].to_pylist() for name in "kv")
        assert dict(zip(k, v, strict=True)) == self.rows and len(k) == len(self.rows)

    def posted(self) -> tuple[PostedRows, object, int]:
        applier = self.server.control._applier
        (number,) = (n for n, one in applier.current.stored.objects.items() if one.name == "R")
        return applier._posted, applier.current.bound.sources["r"], number


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_FEWEST", 0)
    monkeypatch.setattr(kept_relations, "_FEW", 0)


@pytest.mark.spread(3)
@pytest.mark.usefixtures("without_spark", "folding")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_statements_change_what_was_posted_before(tmp_path: Path, kind: str, seed: int) -> None:
    draw = random.Random(seed)
    server = InlineServer(tmp_path)
    server.post(KINDS[kind])
    model = Model(server, kind, draw)
    for _ in range(30):
        draw.choice([model.insert, model.update, model.update, model.delete])()
        if draw.random() < 0.4:
            server.run.round()
        if draw.random() < 0.1:
            server.restart()
        model.check()
    server.close()


@pytest.mark.usefixtures("without_spark", "folding")
def test_what_has_been_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = InlineServer(tmp_path)
    server.post(KINDS["clocked"])
    model = Model(server, "clocked", random.Random(1))
    for _ in range(4):
        model.insert()
    server.run.round()
    paths: list[str] = []
    original = UpdateReader.read

    def read(reader: UpdateReader, split: Split, task: object) -> object:
        paths.append(split.path)
        return original(reader, split, task)  # type: ignore[arg-type]

    monkeypatch.setattr(UpdateReader, "read", read)
    model.update()
    assert len(paths) == len(set(paths)) == 4
    model.update()
    # What the run has not read yet is read before the engine changes, and again to be changed.
    assert len(paths) == 6
    server.run.round()
    model.update()
    model.check()
    # A post that the run has not read yet is read here by each statement until it has.
    assert len(paths) in (7, 8, 9) and not set(paths[:4]) & set(paths[4:])
    server.close()
