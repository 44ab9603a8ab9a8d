"""A script as the commands of one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.errors import PenstockError, Position, ScriptErrors
from penstock.language.parse import parse_statements
from penstock.language.statements import CreateQuery, Statement, TransactionStatement
from penstock.language.text import SourceText, TextSpan


@dataclass(frozen=True)
class ParsedCommands:
    """The statements of a script, without BEGIN and COMMIT.

    Args:
        texts: of each statement, as written.
        query_texts: the query of each CREATE QUERY as written, empty for others.
        rolled_back: the script ends in ROLLBACK: it is checked, and changes nothing.
        marked: it has BEGIN and COMMIT or ROLLBACK.
    """

    source: SourceText
    statements: tuple[Statement, ...]
    texts: tuple[str, ...]
    query_texts: tuple[str, ...]
    rolled_back: bool = False
    marked: bool = False


def parse_commands(script: str, file: str | None = None) -> ParsedCommands:
    """Parse a script, which is one transaction. file: its name, for messages. Raises ScriptErrors with all its
    errors."""
    source = SourceText.of(script, file)
    parsed = parse_statements(source)
    if parsed.errors:
        raise ScriptErrors(parsed.errors)
    statements = parsed.statements
    words = [one.word if isinstance(one, TransactionStatement) else "" for one in statements]
    marked = [i for i, word in enumerate(words) if word]
    if (marked and (words[0], words[-1]) not in (("BEGIN", "COMMIT"), ("BEGIN", "ROLLBACK"))) or len(marked) > 2:
        wrong = statements[marked[1 if words[0] == "BEGIN" and len(marked) > 1 else 0]]
        raise ScriptErrors(
            [
                source.error(
                    "P0732", "a script is one transaction: BEGIN is its first statement, COMMIT or ROLLBACK its last",
                    wrong.span, "post transactions one after the other",
                )
            ]
        )  # fmt: skip
    kept = [one for one in statements if not isinstance(one, TransactionStatement)]
    return ParsedCommands(
        source,
        tuple(kept),
        tuple(source.slice(one.span) for one in kept),
        tuple(source.slice(one.query.span) if isinstance(one, CreateQuery) else "" for one in kept),
        bool(words) and words[-1] == "ROLLBACK",
        bool(marked),
    )


def into_spans(commands: ParsedCommands) -> dict[str, TextSpan]:
    """Return the places of INTO, by query."""
    queries = (one for one in commands.statements if isinstance(one, CreateQuery))
    return {one.name.text: one.into.span for one in queries if one.into is not None}


@contextmanager
def placed_at(source: SourceText, span: TextSpan) -> Iterator[None]:
    """Give errors that have no place that of a statement."""
    try:
        yield
    except PenstockError as error:
        error.at(source.position(span))
        raise


@contextmanager
def placed_in(script: str, statement: str) -> Iterator[None]:
    """Give errors that have no place that of a statement, by its text in a script."""
    try:
        yield
    except PenstockError as error:
        start = script.find(statement)
        error.at(Position.at(script, start, len(statement)) if start >= 0 else None)
        raise
