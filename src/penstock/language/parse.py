"""Text to statements. Every statement is read, so that one's mistake does not hide another's."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, is_dataclass

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import PenstockError, ScriptErrors
from penstock.language.dialect import Cql, Fault, token_span
from penstock.language.grammar.declarations import CqlParser
from penstock.language.hints import hint_at
from penstock.language.statements import BareQuery, Script, Statement
from penstock.language.text import SourceText, Span

#: What sqlglot's expression grammar is known to raise on text that is no expression, beside its own errors.
_GIVES_UP = (AttributeError, TypeError, ValueError, KeyError, IndexError, AssertionError, RecursionError)


MAX_DEPTH = 100
_STATEMENTS = ("CREATE", "INSERT", "EXPLAIN", "SHOW", "DROP")


@dataclass
class Parsed:
    """statements: those that can be read; errors: of those that cannot; lost: names (lower case) these would have
    declared, so that their users are not blamed too."""

    statements: list[Statement] = field(default_factory=list)
    errors: list[PenstockError] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)


def parse_statements(source: SourceText) -> Parsed:
    """All statements of `source`."""
    parsed = Parsed()
    text, unclosed = source.text, None
    try:
        tokens = Cql().tokenize(text)
    except TokenError:
        unclosed = _unclosed(source)
        tokens = _before(text, unclosed)
    for token in tokens:
        token.comments = []
    parts = _split(tokens)
    if unclosed is not None and parts:
        parsed.lost |= _declared(parts.pop())  # the one that the quotes open in
    for part in parts:
        rest = part
        while rest:
            rest = _read(source, rest, parsed)
        if unclosed is not None and parsed.errors:
            break  # from here on, what is inside of quotes and what is not may be mixed up
    if unclosed is not None:
        parsed.errors.append(unclosed)
    return parsed


def _before(text: str, unclosed: PenstockError) -> list[Token]:
    """The tokens in front of quotes that are never closed."""
    place = unclosed.position
    lines = text.split("\n")
    end = 0 if place is None else sum(len(line) + 1 for line in lines[: place.line - 1]) + place.column - 1
    try:
        return Cql().tokenize(text[:end])
    except TokenError:
        return []


def _read(source: SourceText, tokens: list[Token], parsed: Parsed) -> list[Token]:
    """Read one statement; what is left of `tokens` when a semicolon is missing in them."""
    try:
        statement, at, faults = _parse_one(source, tokens)
    except PenstockError as error:
        parsed.errors.append(error)
        parsed.lost |= _declared(tokens)
        return _next_statement(source, tokens, 1)
    parsed.statements.append(statement)
    parsed.errors += faults
    if at < len(tokens):
        hint = "a statement ends with a semicolon"
        span = token_span(tokens[at])
        parsed.errors.append(source.error("P0101", f"expected ';', found '{source.slice(span)}'", span, hint))
    return tokens[at:]


def _next_statement(source: SourceText, tokens: list[Token], start: int) -> list[Token]:
    """From where a statement begins, at the start of a line, behind one that could not be read."""
    for i in range(start, len(tokens)):
        if _begins(source, tokens[i]):
            return tokens[i:]
    return []


def _begins(source: SourceText, token: Token) -> bool:
    before = source.text[: token.start].rpartition("\n")[2]
    return token.text.upper() in _STATEMENTS and not before.strip()


def _declared(tokens: list[Token]) -> set[str]:
    """The name behind CREATE STREAM and its like."""
    words = [token.text.lower() for token in tokens[:5] if token.text.lower() not in ("non", "retroactive")]
    return {words[2]} if len(words) > 2 and words[0] == "create" else set()


def parse_script(text: str, file: str | None = None) -> Script:
    """The statements of a script, unbound. Raises ScriptErrors with every syntax error in it."""
    source = SourceText(text, file)
    parsed = parse_statements(source)
    if parsed.errors:
        raise ScriptErrors(parsed.errors)
    return Script(source, tuple(parsed.statements))


def parse_query(source: SourceText) -> BareQuery:
    """A text that is one query, with or without a semicolon. Raises ScriptErrors."""
    parsed = parse_statements(source)
    if parsed.errors:
        raise ScriptErrors(parsed.errors)
    statements = parsed.statements
    if len(statements) != 1 or not isinstance(statements[0], BareQuery):
        span = statements[1 if len(statements) > 1 else 0].span if statements else Span(0, 1)
        raise ScriptErrors([source.error("P0101", "expected one query and nothing else", span)])
    return statements[0]


def _split(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _parse_one(source: SourceText, tokens: list[Token]) -> tuple[Statement, int, list[PenstockError]]:
    """A statement, how many of the tokens are its own, and the faults that could be passed over."""
    parser = CqlParser(dialect=Cql())
    parser.reset()
    parser.sql = source.text
    parser._chunks = [tokens]
    parser._advance_chunk()
    try:
        statement = parser.statement()
        if parser._curr and not _begins(source, parser._curr):
            raise Fault("", parser._curr)
    except Fault as fault:
        raise _error(source, tokens, fault) from None
    except (ParseError, *_GIVES_UP) as error:
        deep = isinstance(error, RecursionError)
        message = "this is nested too deeply" if deep else "this cannot be read as CQL"
        token = parser._curr or tokens[-1]
        raise source.error("P0101", message, token_span(token)) from None
    if _too_deep(statement):
        raise source.error("P0101", f"this is nested more than {MAX_DEPTH} levels deep", statement.span)
    faults = {fault.token.start if fault.token else -1: _error(source, tokens, fault) for fault in parser.faults}
    return statement, parser._index if parser._curr else len(tokens), list(faults.values())


def _too_deep(statement: Statement) -> bool:
    """Whether a tree is deeper than what every layer above walks by recursion. A chain of ORs is balanced when it is
    bound, and counts as one level."""
    stack: list[tuple[object, int]] = [(statement, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            return True
        if isinstance(node, tuple | list):
            stack.extend((part, depth) for part in node)
        elif isinstance(node, exp.Expr):
            stack.extend((v, depth + (not isinstance(node, exp.Or))) for v in node.args.values())
        elif is_dataclass(node):
            stack.extend((getattr(node, f.name), depth + 1) for f in fields(node) if f.compare)
    return False


def _error(source: SourceText, tokens: list[Token], fault: Fault) -> PenstockError:
    last = token_span(tokens[-1])
    span = token_span(fault.token) if fault.token else Span(last.end, last.end + 1)
    index = next((i for i, token in enumerate(tokens) if token is fault.token), len(tokens))
    hint = fault.hint or hint_at(tokens, index)
    if fault.message:
        return source.error(fault.code, fault.message, span, hint)
    found = f"'{source.slice(span)}'" if fault.token else "the end of the statement"
    message = f"expected {fault.expected}, found {found}" if fault.expected else f"unexpected {found}"
    return source.error(fault.code, message, span, hint)


def _unclosed(source: SourceText) -> PenstockError:
    """The error of a text that ends inside quotes or a comment: it opens behind the longest text that can be read."""
    for match in reversed(list(re.finditer(r"['\"`]|/\*", source.text))):
        try:
            Cql().tokenize(source.text[: match.start()])
        except TokenError:
            continue
        span = Span(match.start(), match.end())
        return source.error("P0101", f"{match[0]} opens here and is never closed", span)
    return source.error("P0101", "the text cannot be read", Span(0, 1))
