"""A script of the language that is put together of a client's statements, and where its parts come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from penstock.errors import PenstockError, Position, ScriptErrors
from penstock.language.statements import Statement as ParsedStatement
from penstock.language.statements.script import Script
from penstock.language.statements.values import WrittenValue
from penstock.language.text import SourceText, TextSpan
from penstock.pgwire.protocol.errors import WireError, located
from penstock.pgwire.statements.lexing import Kind, Statement, cql_text
from penstock.pgwire.statements.type_words import types_replaced


@dataclass(frozen=True)
class WrittenCommand:
    """A command of a transaction, which has been parsed where it stands in the script of those before it.

    Args:
        text: without its values.
        tree: with its values, which stand at `values`.
    """

    text: str
    tree: ParsedStatement
    values: tuple[tuple[TextSpan, str], ...] = ()


@dataclass(frozen=True)
class ScriptText:
    """A script.

    Args:
        places: (offset in the script, offset in what the client sent, or None), in order; none of what the server has
            written.
        before: the commands that it begins with; what is behind them has not been parsed.
    """

    text: str
    places: tuple[tuple[int, int | None], ...] = ()
    before: tuple[WrittenCommand, ...] = ()

    @property
    def rest(self) -> str:
        """Return what has not been parsed, in the line and column in which it stands."""
        begin = sum(len(one.text) + len(_BETWEEN) for one in self.before)
        return _VISIBLE.sub(" ", self.text[:begin]) + self.text[begin:]

    def whole(self, rest: Script) -> Script:
        """Return the script, with the commands that it begins with. rest: what is behind them."""
        if not self.before:
            return rest
        values = (*(place for one in self.before for place in one.values), *(rest.source.values or ()))
        return Script(SourceText(self.text, None, values), (*(one.tree for one in self.before), *rest.statements))

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


@dataclass(frozen=True)
class ReadScript:
    """A script that is parsed and has its values. written: its text without them; rest: what is behind the commands
    that it begins with."""

    written: ScriptText
    rest: Script

    @cached_property
    def script(self) -> Script:
        """Return the whole script."""
        return self.written.whole(self.rest)

    @property
    def command(self) -> WrittenCommand:
        """Return its last statement as a command of a transaction."""
        begin = sum(len(one.text) + len(_BETWEEN) for one in self.written.before)
        return WrittenCommand(self.written.text[begin:], self.rest.statements[-1], self.rest.source.values or ())

    @property
    def text(self) -> str:
        """Return its text with its values."""
        return self.script.source.slice(TextSpan(0, len(self.written.text)))


#: What stands between two statements.
_BETWEEN = ";\n"
_VISIBLE = re.compile(r"[^\n]")

#: A statement with the literals of `$1`, `$2`.
Given: TypeAlias = tuple[Statement, Sequence[WrittenValue]]


def script_text(
    given: Sequence[Given],
    names: Callable[[], Collection[str]],
    before: Sequence[WrittenCommand] = (),
    spliced: bool = False,
) -> ScriptText:
    """Return statements as one script.

    Args:
        names: returns those of declarations, in lower case; may block.
        before: commands that it begins with.
        spliced: whether values stand in the text, and not `$1`.

    Raises:
        WireError: 42P02 for a `$n` without a value.
    """
    text = _BETWEEN.join(one.text for one in before)
    places: list[tuple[int, int | None]] = [(0, None)] if before else []
    for statement, values in given:
        if text:
            text += _BETWEEN
        missing = next((t for t in statement.tokens if t.kind is Kind.VALUE and int(t.text[1:]) > len(values)), None)
        if missing is not None:
            raise WireError("42P02", f"there is no value for {missing.text}", offset=missing.start)
        replaced = types_replaced(statement)
        if spliced:
            for index, token in enumerate(statement.tokens):
                if token.kind is Kind.VALUE:
                    replaced[index] = values[int(token.text[1:]) - 1].text
        made = cql_text(statement, names, replaced=replaced)
        if statement.offset is None:
            places.append((len(text), None))
        else:
            places += [(len(text) + here, statement.offset + there) for here, there in made.places]
        text += made.text
    return ScriptText(text, tuple(places), tuple(before))


def script_with_values(parsed: Script, given: Sequence[Given]) -> Script | None:
    """Return a script with values in its trees; None where a clause has one, which takes no expression but a literal in
    the text."""
    if len(parsed.statements) != len(given):
        return None
    made = parsed.with_values([values for _, values in given])
    count = sum(token.kind is Kind.VALUE for statement, _ in given for token in statement.tokens)
    return made if len(made.source.values or ()) == count else None


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
