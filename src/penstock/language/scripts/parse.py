"""Text to statements. Every statement is parsed, so that an error in one does not hide those of others."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.deep_trees import deep, on_deep_stack
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.dialect import Cql, Fault, token_span
from penstock.language.grammar.fragments import GIVES_UP, curly_quote, located, parser_over, unclosed_quote
from penstock.language.limits import MAX_SCRIPT, MAX_STATEMENTS, TOO_DEEP, beyond_limits, too_deep, too_many
from penstock.language.statements import OneTimeSelect, is_first_word, read_statement
from penstock.language.statements.script import Script
from penstock.language.statements.statement import Statement
from penstock.language.text import SourceText, TextSpan

#: Levels that the parser reads on the caller's stack: it calls itself some 25 times a level.
_SHALLOW = 8

#: Words that may stand between CREATE and the name of what is declared.
_BEFORE_NAMES = ("or", "replace", "non", "retroactive", "if", "not", "exists")


@dataclass
class ParsedScript:
    """The result of parsing. statements: the valid ones; errors: of the others; lost: names (lower case) that those
    would have declared, so that statements that use them are not reported too.
    """

    statements: list[Statement] = field(default_factory=list)
    errors: list[PenstockError] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)


@deep
def parse_statements(source: SourceText) -> ParsedScript:
    """Parse all statements of `source`."""
    parsed = ParsedScript()
    text, unclosed = source.text, None
    if len(text) > MAX_SCRIPT:
        message = f"this script has {len(text):,} characters, {MAX_SCRIPT:,} are the limit"
        parsed.errors.append(source.error("P0105", message, TextSpan(0, 1)))
        return parsed
    try:
        tokens = Cql().tokenize(text)
    except TokenError:
        unclosed = unclosed_quote(source)
        tokens = _before(text, unclosed)
    for token in tokens:
        token.comments = []
    parts = _split(tokens)
    if unclosed is not None and parts:
        parsed.lost |= _declared(parts.pop())  # the statement in which the quotes open
    if len(parts) > MAX_STATEMENTS:
        parsed.errors.append(
            source.error("P0105", too_many(len(parts), MAX_STATEMENTS), token_span(parts[MAX_STATEMENTS][0]))
        )
        return parsed
    for part in parts:
        curly = curly_quote(source, part)
        if curly is not None:
            parsed.errors.append(curly)
            parsed.lost |= _declared(part)
            continue
        rest = part
        while rest:
            rest = _read(source, rest, parsed)
        if unclosed is not None and parsed.errors:
            break  # after this point, quoted and unquoted text may be confused
    if unclosed is not None:
        parsed.errors.append(unclosed)
    return parsed


def _before(text: str, unclosed: PenstockError) -> list[Token]:
    """Return the tokens before quotes that are never closed."""
    place = unclosed.position
    lines = text.split("\n")
    end = 0 if place is None else sum(len(line) + 1 for line in lines[: place.line - 1]) + place.column - 1
    try:
        return Cql().tokenize(text[:end])
    except TokenError:
        return []


def _read(source: SourceText, tokens: list[Token], parsed: ParsedScript) -> list[Token]:
    """Parse one statement; return the rest of `tokens`, which is not empty when a semicolon is missing in them."""
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
    """Return the tokens from where a statement begins, at the start of a line, after one that could not be parsed."""
    for i in range(start, len(tokens)):
        if _begins(source, tokens[i - 1], tokens[i]):
            return tokens[i:]
    return []


def _begins(source: SourceText, before: Token | None, token: Token) -> bool:
    """Return whether a statement begins with `token`, the first word in its line. before: the token before it."""
    if not is_first_word(token.text):
        return False
    between = source.text[before.end + 1 if before else 0 : token.start]
    line = between.rpartition("\n")
    return bool(line[1] or not before) and not line[2].strip()


def _declared(tokens: list[Token]) -> set[str]:
    """Return the name after CREATE STREAM and the like."""
    words = [word for token in tokens[:8] if (word := token.text.lower()) not in _BEFORE_NAMES]
    return {words[2]} if len(words) > 2 and words[0] == "create" else set()


def parse_script(text: str, file: str | None = None, parameters: bool = False) -> Script:
    """Return the statements of a script, unbound. parameters: whether `$1` stands for a value, which
    `Script.with_values` puts there. Raises ScriptErrors with every syntax error in it."""
    source = SourceText.of(text, file, parameters)
    parsed = parse_statements(source)
    if parsed.errors:
        raise ScriptErrors(parsed.errors)
    return Script(source, tuple(parsed.statements))


def parse_query(source: SourceText) -> OneTimeSelect:
    """Parse a text that is one query, with or without a semicolon. Raises ScriptErrors."""
    parsed = parse_statements(source)
    if parsed.errors:
        raise ScriptErrors(parsed.errors)
    statements = parsed.statements
    if len(statements) != 1 or not isinstance(statements[0], OneTimeSelect):
        span = statements[1 if len(statements) > 1 else 0].span if statements else TextSpan(0, 1)
        hint = "a query is SELECT ..., without CREATE QUERY; in Python execute(...) takes statements"
        raise ScriptErrors([source.error("P0101", "expected one query and nothing else", span, hint)])
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
    """Return a statement, the number of its tokens, and the faults after which parsing could continue."""
    deepest = too_deep(tokens)
    if deepest is not None:
        raise source.error("P0105", TOO_DEEP, token_span(deepest))
    if too_deep(tokens, _SHALLOW) is None:
        return _parsed(source, tokens)
    return on_deep_stack(lambda: _parsed(source, tokens))


def _parsed(source: SourceText, tokens: list[Token]) -> tuple[Statement, int, list[PenstockError]]:
    parser = parser_over(source, tokens)
    try:
        statement = read_statement(parser)
        if parser._curr and not _begins(source, parser._prev, parser._curr):
            raise Fault("", parser._curr)
    except Fault as fault:
        raise located(source, tokens, fault) from None
    except (ParseError, *GIVES_UP):
        token = parser._curr or tokens[-1]
        raise source.error("P0101", "this cannot be read as CQL", token_span(token)) from None
    beyond = beyond_limits(statement)
    if beyond is not None:
        raise source.error("P0105", beyond, statement.span)
    faults = {fault.token.start if fault.token else -1: located(source, tokens, fault) for fault in parser.faults}
    return statement, parser._index if parser._curr else len(tokens), list(faults.values())
