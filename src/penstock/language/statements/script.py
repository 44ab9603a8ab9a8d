"""A parsed script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.deep_trees import deep
from penstock.errors import Position
from penstock.language.queries import NOWHERE
from penstock.language.statements import print_statement
from penstock.language.statements.statement import Statement
from penstock.language.statements.values import ValuePlacement, WrittenValue
from penstock.language.text import SourceText


@dataclass(frozen=True)
class Script:
    """A parsed script: plain data, which one process can send to another.

    Args:
        source: its text, in which each statement has its span.
        statements: all of the script in order, or some of them. One that the program has made has no place in the text.
    """

    source: SourceText
    statements: tuple[Statement, ...]

    @staticmethod
    def made(*statements: Statement) -> Script:
        """Return statements that the program has made."""
        return Script(SourceText(""), statements)

    @property
    def text(self) -> str:
        """Return the statements as text, without what is between them."""
        return ";\n".join(self.text_of(one) for one in self.statements)

    def text_of(self, statement: Statement) -> str:
        """Return a statement as it is written, without its semicolon; printed where the program has made it."""
        return print_statement(statement) if statement.span == NOWHERE else self.source.slice(statement.span)

    def position_of(self, statement: Statement) -> Position | None:
        """Return the place of a statement; None for one that the program has made."""
        return None if statement.span == NOWHERE else self.source.position(statement.span)

    @deep
    def with_values(self, values: Sequence[Sequence[WrittenValue]]) -> Script:
        """Return the script with values in place of `$1`, `$2`. values: of each statement. Raises IndexError for one
        that is missing."""
        placement = ValuePlacement()
        statements = tuple(placement.tree(one, own) for one, own in zip(self.statements, values, strict=True))
        placed = sorted(placement.placed.items(), key=lambda value: value[0].start)
        return Script(replace(self.source, values=tuple(placed)), statements)

    def with_only(self, *statements: Statement) -> Script:
        """Return these statements in place of its own; their places are those in the whole text."""
        return replace(self, statements=statements)
