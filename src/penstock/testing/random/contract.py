"""The contract of the modules of random queries: columns, tables and cases, and the query maker (`worlds.py`) as the
modules that add a clause to its queries use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from penstock.testing.choices import Choices


@dataclass(frozen=True)
class RandomColumn:
    name: str
    type: str


@dataclass(frozen=True)
class Table:
    """A source that FROM may name. `is_stream`: it may have a window."""

    name: str
    columns: tuple[RandomColumn, ...]
    is_stream: bool


@dataclass
class RandomCase:
    """A script and the rows of its sources as text, one list of cells per row.

    `origin`: the tick at which rows begin, 0 for about the first.
    """

    statements: list[str] = field(default_factory=list)
    inputs: dict[str, list[list[str]]] = field(default_factory=dict)
    arrivals: dict[str, list[str]] = field(default_factory=dict)
    origin: int = 0

    def render(self) -> str:
        blocks = ["statement\n" + "\n".join(self.statements)]
        for name, rows in self.inputs.items():
            came = self.arrivals.get(name)
            cells = rows if came is None else [[at, *row] for at, row in zip(came, rows, strict=True)]
            head = f"input {name}" if came is None else f"input {name} by clock"
            blocks.append(head + "\n" + "\n".join(", ".join(row) for row in cells))
        return "\n\n".join(blocks) + "\n"


class QueryMaker(Protocol):
    """Draw parts of a query. `tables`: those that FROM may name; `names`: the number of aliases in use."""

    choices: Choices
    tables: list[Table]
    names: int

    def source(self, depth: int) -> tuple[tuple[RandomColumn, ...], str]:
        """Return a FROM item: its columns and its text."""

    def predicate(self, scope: tuple[RandomColumn, ...]) -> str:
        """Return a condition on a column of `scope`."""

    def aggregate(self, scope: tuple[RandomColumn, ...], rough: bool) -> tuple[str, str]:
        """Return the text and the type of an aggregate. `rough`: its result may depend on rounding."""

    def equality(self, one: str, other: str) -> str:
        """Return a condition that two columns are equal, sometimes NULL like NULL."""

    def comparable(self, left: tuple[RandomColumn, ...], right: tuple[RandomColumn, ...]) -> list[tuple[str, str]]:
        """Return the names of two columns, one of each side, that have one type with an order."""
