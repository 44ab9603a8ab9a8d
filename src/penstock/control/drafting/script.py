"""A script as the commands of one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from penstock.errors import PenstockError, Position, ScriptErrors
from penstock.language.statements import CreateQuery, Statement
from penstock.language.statements.script import Script
from penstock.language.statements.transactions import TransactionStatement
from penstock.language.text import SourceText, TextSpan


@dataclass(frozen=True)
class ScriptCommands:
    """The statements of a script that is one transaction.

    Args:
        script: without BEGIN and COMMIT.
        rolled_back: it ends in ROLLBACK: it is checked, and changes nothing.
        marked: it has BEGIN and COMMIT or ROLLBACK.
    """

    script: Script
    rolled_back: bool = False
    marked: bool = False

    @property
    def source(self) -> SourceText:
        return self.script.source

    @property
    def statements(self) -> tuple[Statement, ...]:
        return self.script.statements

    @cached_property
    def into_spans(self) -> dict[str, TextSpan]:
        """Return the places of INTO, by query."""
        queries = (one for one in self.statements if isinstance(one, CreateQuery))
        return {one.name.text: one.into.span for one in queries if one.into is not None}


#: What the system posts itself, without a text.
NO_COMMANDS = ScriptCommands(Script.made())


def commands_of(script: Script) -> ScriptCommands:
    """Return the commands of a script. Raises ScriptErrors P0732 where it is not one transaction."""
    statements = script.statements
    words = [one.word if isinstance(one, TransactionStatement) else "" for one in statements]
    marked = [i for i, word in enumerate(words) if word]
    if (marked and (words[0], words[-1]) not in (("BEGIN", "COMMIT"), ("BEGIN", "ROLLBACK"))) or len(marked) > 2:
        wrong = statements[marked[1 if words[0] == "BEGIN" and len(marked) > 1 else 0]]
        raise ScriptErrors(
            [
                script.source.error(
                    "P0732",
                    "a script is one transaction: BEGIN is its first statement, COMMIT or ROLLBACK its last",
                    wrong.span,
                    "post transactions one after the other",
                )
            ]
        )
    kept = script.with_only(*(one for one in statements if not isinstance(one, TransactionStatement)))
    return ScriptCommands(kept, bool(words) and words[-1] == "ROLLBACK", bool(marked))


@contextmanager
def placed_at(position: Position | None) -> Iterator[None]:
    """Give errors that have no place that of a statement."""
    try:
        yield
    except PenstockError as error:
        error.at(position)
        raise
