"""The grammar of what a stream promises (docs/promises.md): UNIQUE, FOREIGN KEY, CLUSTERED BY and ORDERED BY."""

from __future__ import annotations

from dataclasses import replace

from sqlglot.tokenizer_core import Token, TokenType

from penstock.algebra.properties.promises import PromiseMode
from penstock.language.clauses import PromiseClause, PromiseKind
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.queries import Count, Duration, Name
from penstock.types import Interval

_COLUMN = "a column name"
#: The first token of each kind; FOREIGN KEY is one.
_BEGINNINGS = ("UNIQUE", "FOREIGN KEY", "CLUSTERED", "ORDERED")
_WITHIN = "k is a number of rows or a length of time: WITHIN 3 ROWS, WITHIN 10 SECONDS"


def read_promise(parser: ClauseGrammar) -> PromiseClause | None:
    """Parse [CONSTRAINT name] promise [mode]; return None where none is next."""
    start, name = parser._here(), _read_name(parser)
    found = _read_kind(parser)
    if found is None:
        if name is not None:
            parser._fail("UNIQUE, FOREIGN KEY, CLUSTERED BY or ORDERED BY")
        return None
    return replace(found, name=name, mode=_read_mode(parser), span=parser._since(start))


def read_reference(parser: ClauseGrammar, column: Name) -> PromiseClause | None:
    """Parse [CONSTRAINT name] REFERENCES ... [mode] behind the column that refers; return None where it is not next."""
    start, name = parser._here(), _read_name(parser)
    if not parser._match(TokenType.REFERENCES):
        if name is not None:
            parser._fail("REFERENCES", hint="other promises follow the clauses of the stream, behind its connector")
        return None
    found = _read_parent(parser, PromiseClause(PromiseKind.FOREIGN_KEY, (column,)))
    return replace(found, name=name, mode=_read_mode(parser), span=parser._since(start))


def _read_name(parser: ClauseGrammar) -> Name | None:
    """Parse [CONSTRAINT name]."""
    return parser._name("a name for the constraint") if parser._take("CONSTRAINT") else None


def begins_promise(token: Token) -> bool:
    """Return whether a promise may begin with a word."""
    return token.text.upper() in ("CONSTRAINT", *_BEGINNINGS)


def refuse_among_columns(parser: ClauseGrammar) -> None:
    """Raise a fault where a promise is next in place of a column, or behind one: it follows the connector."""
    token, following, third = parser._curr, parser._ahead(1), parser._ahead(2)
    opens = following is not None and following.token_type is TokenType.L_PAREN
    named = third is not None and begins_promise(third) and parser._at("CONSTRAINT")
    behind = token.token_type is TokenType.UNIQUE and parser._prev.token_type is not TokenType.COMMA
    if (
        token.token_type is TokenType.FOREIGN_KEY
        or named
        or (token.token_type is TokenType.UNIQUE and (opens or behind))
    ):
        hint = "it follows the connector, as in FROM ... TIMESTAMP BY at UNIQUE (k)"
        raise parser._misplaced("a promise does not stand among the columns", parser._here(), hint)


def _read_kind(parser: ClauseGrammar) -> PromiseClause | None:
    if parser._match(TokenType.UNIQUE):
        return PromiseClause(PromiseKind.UNIQUE, parser._names(_COLUMN))
    if parser._match(TokenType.FOREIGN_KEY):
        columns = parser._names(_COLUMN)
        if not parser._match(TokenType.REFERENCES):
            parser._fail("REFERENCES", hint="as in FOREIGN KEY (id) REFERENCES Orders (id) WITHIN 3 ROWS")
        return _read_parent(parser, PromiseClause(PromiseKind.FOREIGN_KEY, columns))
    if parser._take("CLUSTERED", "BY"):
        columns = parser._names(_COLUMN)
        return PromiseClause(PromiseKind.CLUSTERED, columns, within=_read_within(parser))
    if parser._take("ORDERED", "BY"):
        columns = parser._names(_COLUMN)
        descending = parser._mark("DESC")
        return PromiseClause(PromiseKind.ORDERED, columns, descending=descending, within=_read_within(parser))
    return None


def _read_parent(parser: ClauseGrammar, clause: PromiseClause) -> PromiseClause:
    """Parse `parent [(column, ...)] [WITHIN k]`."""
    parent = parser._name("the name of a stream")
    columns = parser._names(_COLUMN) if parser._curr.token_type is TokenType.L_PAREN else ()
    return replace(clause, parent=parent, parent_columns=columns, within=_read_within(parser))


def _read_within(parser: ClauseGrammar) -> Count | Duration | None:
    """Parse WITHIN k. A sign is read, so that the error of a negative k names it."""
    if not parser._take("WITHIN"):
        return None
    start = parser._here()
    negative = parser._match(TokenType.DASH)
    following = parser._ahead(1)
    if parser._curr.token_type is not TokenType.NUMBER:
        duration = parser._duration()
    elif following is None:
        parser._advance()
        parser._fail("ROWS or a unit of time", hint=_WITHIN)
    elif following.text.upper() in ("ROWS", "ROW"):
        number, _ = parser._whole("a whole number of rows", hint=_WITHIN)
        parser._advance()
        return Count(-number if negative else number, parser._since(start))
    else:
        duration = parser._duration()
    interval = duration.interval
    return Duration(Interval(-interval.amount, interval.unit) if negative else interval, parser._since(start))


def _read_mode(parser: ClauseGrammar) -> PromiseMode | None:
    word = parser._take_any(*(mode.value for mode in PromiseMode))
    return None if word is None else PromiseMode(word)
