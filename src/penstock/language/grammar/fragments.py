"""Parse parts of statements for the binder too, an expression or a query, and place their errors."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.deep_trees import deep, on_deep_stack
from penstock.errors import PenstockError
from penstock.language.dialect import Cql, Fault, token_span
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.hints import hint_at, misplaced, of_other_systems
from penstock.language.limits import TOO_DEEP, beyond_limits, too_deep
from penstock.language.queries import QueryTree
from penstock.language.quotes import quoted_parts
from penstock.language.text import SourceText, TextSpan

#: What sqlglot's expression grammar is known to raise on text that is no expression, beside its own errors.
GIVES_UP = (AttributeError, TypeError, ValueError, KeyError, IndexError, AssertionError)

_CURLY = re.compile("[\u2018-\u201f\u00ab\u00bb\u2039\u203a\u2032\u2033]")


@deep
def parse_expression(source: SourceText) -> exp.Expr:
    """Parse a text that is one scalar expression. Raises PenstockError."""
    try:
        tokens = Cql().tokenize(source.text)
    except TokenError:
        raise unclosed_quote(source) from None
    if not tokens:
        raise source.error("P0101", "expected an expression, found nothing", TextSpan(0, 1))
    for token in tokens:
        token.comments = []
    curly = curly_quote(source, tokens)
    if curly is not None:
        raise curly
    deepest = too_deep(tokens)
    if deepest is not None:
        raise source.error("P0105", TOO_DEEP, token_span(deepest))
    return on_deep_stack(lambda: _expression(source, tokens))


def _expression(source: SourceText, tokens: list[Token]) -> exp.Expr:
    parser = parser_over(source, tokens)
    try:
        node = parser.expression_alone()
        if parser.faults:
            raise parser.faults[0]
    except Fault as fault:
        raise located(source, tokens, fault) from None
    except (ParseError, *GIVES_UP):
        token = parser._curr or tokens[-1]
        raise source.error("P0101", "this cannot be read as an expression of CQL", token_span(token)) from None
    beyond = beyond_limits(node)
    if beyond is not None:
        raise source.error("P0105", beyond, TextSpan(0, 1))
    return node


def parse_query_tree(text: str) -> QueryTree:
    """Parse a text that is one query, and was one before."""
    return parser_over(SourceText(text), Cql().tokenize(text)).query()


def parser_over(source: SourceText, tokens: list[Token]) -> ClauseGrammar:
    parser = ClauseGrammar(dialect=Cql())
    parser.reset()
    parser.sql = source.text
    parser.takes_values = source.values is not None
    parser._chunks = [tokens]
    parser._advance_chunk()
    return parser


def curly_quote(source: SourceText, tokens: list[Token]) -> PenstockError | None:
    """Return the error for a statement with a typographic quotation mark, as word processors insert, None
    without one.
    """
    for token in tokens:
        found = _CURLY.search(token.text) if token.token_type is TokenType.VAR else None
        if found is not None:
            at = source.text.find(found[0], token.start)
            hint = "texts are enclosed in straight quotes, as in 'text'; backticks quote names"
            return source.error("P0101", f"{found[0]} is not a quotation mark of CQL", TextSpan(at, at + 1), hint)
    return None


def located(source: SourceText, tokens: list[Token], fault: Fault) -> PenstockError:
    last = token_span(tokens[-1])
    span = token_span(fault.token) if fault.token else TextSpan(last.end, last.end + 1)
    index = next((i for i, token in enumerate(tokens) if token is fault.token), len(tokens))
    foreign = None if fault.message else of_other_systems(tokens, index)
    hint = foreign or fault.hint or (None if fault.message else misplaced(tokens, index)) or hint_at(tokens, index)
    if fault.message:
        return source.error(fault.code, fault.message, span, hint)
    found = f"'{source.slice(span)}'" if fault.token else "the end of the statement"
    message = f"expected {fault.expected}, found {found}" if fault.expected else f"unexpected {found}"
    return source.error(fault.code, message, span, hint)


def unclosed_quote(source: SourceText) -> PenstockError:
    """Return the error for a text that ends inside quotes or a comment, at the place where they open."""
    for part in quoted_parts(source.text):
        if part.end is None:
            start = part.start + (part.mark.startswith("r"))
            mark = part.mark.removeprefix("r")
            span = TextSpan(start, start + len(mark))
            return source.error("P0101", f"{mark} is opened here and never closed", span)
    return source.error("P0101", "the text cannot be read", TextSpan(0, 1))
