"""A script of the language that is put together of a client's statements, and where its parts come from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from penstock.errors import PenstockError, Position, ScriptErrors
from penstock.server.pgwire.protocol.errors import WireError, located
from penstock.server.pgwire.statements.lexing import Kind, Statement, cql_text
from penstock.server.pgwire.statements.type_words import types_replaced


@dataclass(frozen=True)
class ScriptText:
    """A script. places: (offset in the script, offset in what the client sent, or None), in order."""

    text: str
    places: tuple[tuple[int, int | None], ...]

    def offset(self, position: Position | None) -> int | None:
        """Return the offset in what the client sent of a position of an error; None where it has none there."""
        if position is None:
            return None
        lines = self.text.split("\n")
        at = sum(len(line) + 1 for line in lines[: position.line - 1]) + position.column - 1
        before = [place for place in self.places if place[0] <= at]
        if not before or before[-1][1] is None:
            return None
        return before[-1][1] + at - before[-1][0]

    def error(self, error: PenstockError) -> WireError:
        """Return an error of the script with its place in what the client sent; of several the first."""
        first = error.errors[0] if isinstance(error, ScriptErrors) else error
        return located(first, self.offset(first.position))


def script_text(
    given: Sequence[tuple[Statement, Callable[[int], str] | None]], names: Callable[[], Collection[str]],
    before: Sequence[str] = (),
) -> ScriptText:  # fmt: skip
    """Return statements as one script.

    Args:
        given: each with what returns the literal of `$n`.
        names: returns those of declarations, in lower case; may block.
        before: texts of the language that come first.
    """
    text = "".join(f"{one};\n" for one in before)
    places: list[tuple[int, int | None]] = [(0, None)] if text else []
    for statement, value_of in given:
        if text and not text.endswith(";\n"):
            text += ";\n"
        made = cql_text(statement, value_of, names, replaced=types_replaced(statement))
        if statement.offset is None:
            places.append((len(text), None))
        else:
            places += [(len(text) + here, statement.offset + there) for here, there in made.places]
        text += made.text
    return ScriptText(text, tuple(places))


def inserted_rows(statement: Statement) -> int:
    """Return the number of rows that INSERT .. VALUES has."""
    depth = count = 0
    behind = False
    for token in statement.tokens:
        behind = behind or token.word == "VALUES"
        if token.kind is Kind.MARK and token.text == "(":
            count += int(behind and not depth)
            depth += 1
        elif token.kind is Kind.MARK and token.text == ")":
            depth -= 1
    return count
