"""Random relations with primary keys, and NON RETROACTIVE ones beside a stream: a part of `worlds.py`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.testing.choices import Choices
from penstock.testing.random.contract import RandomCase, RandomColumn, Table


class Relations:
    """The parts of a random case about relations. `nrrs`: the NON RETROACTIVE relations declared."""

    choices: Choices
    result: RandomCase
    tables: list[Table]
    names: int
    calendar: bool
    nrrs: Sequence[Table] = ()

    if TYPE_CHECKING:

        def columns(self) -> tuple[RandomColumn, ...]: ...
        def row(self, columns: tuple[RandomColumn, ...]) -> list[str]: ...
        def tick(self, tick: int) -> str: ...
        @property
        def ts_type(self) -> str: ...
        def ticks(self, count: int) -> list[int]: ...
        def declare(self, kind: str, name: str, columns: Sequence[str], tail: str) -> None: ...
        def predicate(self, scope: tuple[RandomColumn, ...]) -> str: ...
        def window(self, columns: tuple[RandomColumn, ...]) -> str: ...
        def join_condition(self, left: tuple[RandomColumn, ...], right: tuple[RandomColumn, ...]) -> str | None: ...

    def clock(self) -> None:
        """Draw the arrival of the rows of all timed sources by the wall clock; streams may fall idle, or be stamped by
        it.
        """
        stamped = self.calendar
        for i, statement in enumerate(self.result.statements):
            name = statement.split()[statement.split().index("(ts") - 1] if "(ts" in statement else None
            if name is None:
                continue
            at, came = 0, []
            for _ in self.result.inputs[name]:
                at += self.choices.pick((1, 0, 2, 9))
                came.append(self.tick(at))
            self.result.arrivals[name] = came
            if not statement.startswith("CREATE STREAM"):
                continue
            if stamped and self.choices.chance(50):
                head, _, _ = statement.partition(" TIMESTAMP BY")
                self.result.statements[i] = head.replace("(ts TIMESTAMP, ", "(") + " SYSTEM TIME;"
                self.result.inputs[name] = [row[1:] for row in self.result.inputs[name]]
            elif self.choices.chance(60):
                timeout = f" IDLE TIMEOUT {self.choices.integer(1, 6)} SECONDS"
                self.result.statements[i] = statement.removesuffix(";") + timeout + ";"

    def keyed(self, name: str) -> None:
        """Declare a relation with a primary key: static, replaced by key, or with + and -, some of which are
        rejected.
        """
        columns = self.columns()
        kind = self.choices.pick(("replace", "operation", "operation", "static"))
        self.updates_by_key(name, columns, kind)
        self.tables.append(Table(name, columns, False))

    def nrr(self, name: str) -> Table:
        """Declare a NON RETROACTIVE relation; it may be joined with a stream only (`with_nrr`)."""
        columns = self.columns()
        kind = self.choices.pick(("operation", "replace", "insert"))
        self.updates_by_key(name, columns, kind, "NON RETROACTIVE RELATION")
        return Table(name, columns, False)

    def updates_by_key(
        self, name: str, columns: tuple[RandomColumn, ...], kind: str, declared_as: str = "RELATION"
    ) -> None:
        keys = ["k", *(c.name for c in columns[1:] if self.choices.chance(25))]
        ticks = self.ticks(self.choices.integer(0, 9))
        self.result.inputs[name] = [
            [
                *([self.tick(tick)] if kind != "static" else []),
                *([self.choices.pick(("+", "-", "+"))] if kind == "operation" else []),
                *self.row(columns),
            ]
            for tick in ticks
        ]
        declared = [f"ts {self.ts_type}"] if kind != "static" else []
        declared += ["op STRING"] if kind == "operation" else []
        declared += [f"{c.name} {c.type}" for c in columns]
        declared += [f"PRIMARY KEY ({', '.join(keys)})"] if kind != "insert" else []
        tail = f" TIMESTAMP BY ts{'' if self.calendar else ' UNIT SECOND'}" if kind != "static" else ""
        self.declare(declared_as, name, declared, tail + (" OPERATION BY op" if kind == "operation" else ""))

    def with_nrr(self) -> tuple[tuple[RandomColumn, ...], tuple[RandomColumn, ...], str, list[str]]:
        """Return a stream with one or two NON RETROACTIVE relations: the columns of each, their text, and
        conditions.
        """
        self.names += 1
        alias = f"x{self.names}"
        table = self.choices.pick([t for t in self.tables if t.is_stream and any(c.type == "INT" for c in t.columns)])
        scope = tuple(RandomColumn(f"{alias}.{c.name}", c.type) for c in table.columns)
        number = next(c.name for c in scope if c.type == "INT")
        text = f"{table.name}{self.counted(self.window(table.columns))} AS {alias}"
        beside: tuple[RandomColumn, ...] = ()
        where: list[str] = []
        if self.choices.chance(25):
            self.names += 1
            table = self.choices.pick([t for t in self.tables if t.is_stream])
            more = tuple(RandomColumn(f"x{self.names}.{c.name}", c.type) for c in table.columns)
            if condition := self.join_condition(scope, more):
                window = self.counted(self.window(table.columns))
                text = f"{text} JOIN {table.name}{window} AS x{self.names} ON {condition}"
                scope += more
        for nrr in self.nrrs[: self.choices.integer(1, len(self.nrrs))]:
            self.names += 1
            more = tuple(RandomColumn(f"x{self.names}.{c.name}", c.type) for c in nrr.columns)
            name = nrr.name
            if self.choices.chance(15):
                name = f"(SELECT * FROM {nrr.name} WHERE {self.predicate(nrr.columns)})"
            right = f"{name} AS x{self.names}"
            condition = self.join_condition(scope + beside, more) or f"{number} = {more[0].name}"
            if self.choices.chance(50):
                text = f"{text} JOIN {right} ON {condition}"
            else:
                text = f"{right}, {text}" if self.choices.chance(30) else f"{text}, {right}"
                where.append(condition)
            beside += more
        return scope, beside, text, where

    @staticmethod
    def counted(window: str) -> str:
        """Return `window` in a form that an NRR accepts: with SLIDE in rows, elements would arrive with later ones."""
        return re.sub(r" SLIDE \d+ ROWS", "", window)
