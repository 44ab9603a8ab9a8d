"""The words of types that PostgreSQL and the language have for different things: `int8` has eight bytes there and eight
bits here, and `numeric` without digits has as many as a value has there, and ten before the point here."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from penstock.pgwire.statements.lexing import Kind, PgToken, Statement

_WORDS = {
    "INT8": "BIGINT",
    "INT4": "INT",
    "INT2": "SMALLINT",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "NAME": "STRING",
    "BPCHAR": "STRING",
}
_DECIMAL = frozenset({"NUMERIC", "DECIMAL", "DEC"})
#: Digits of a decimal of the language, and how many of them are behind the point where the value is not known.
_MOST, _BEHIND = 38, 18


def types_replaced(statement: Statement) -> dict[int, str]:
    """Return what to write in place of tokens, by their index: the types of casts and of declared columns; and what is
    cast to `bytea` where it is written in PostgreSQL's way."""
    found = statement.tokens
    replaced: dict[int, str] = {}
    casts = _types_of_casts(found)
    for index in [*casts, *_types_of_columns(found)]:
        word = found[index].word
        if word in _WORDS:
            replaced[index] = _WORDS[word]
        elif word in _DECIMAL and index in casts and _text(found, index + 1) != "(":
            replaced[index] = _decimal(found, casts[index])
        elif word == "BYTEA" and index in casts and (data := _bytes(found, casts[index])) is not None:
            replaced[casts[index]] = data
    return replaced


def _text(found: Sequence[PgToken], index: int) -> str:
    return found[index].text if 0 <= index < len(found) else ""


def _types_of_casts(found: Sequence[PgToken]) -> dict[int, int]:
    """Return the tokens that are types of casts, each with the last token of what is cast."""
    types: dict[int, int] = {}
    #: Of each open parenthesis, whether it is that of CAST.
    open_: list[bool] = []
    for index, token in enumerate(found):
        if token.kind is Kind.MARK and token.text == "(":
            open_.append(index > 0 and found[index - 1].word in ("CAST", "TRY_CAST"))
        elif token.kind is Kind.MARK and token.text == ")":
            open_ = open_[:-1]
        elif token.text == "::" or (token.word == "AS" and open_ and open_[-1]):
            types[index + 1] = index - 1
    return {index: of for index, of in types.items() if index < len(found) and found[index].kind is Kind.WORD}


def _types_of_columns(found: Sequence[PgToken]) -> list[int]:
    """Return the tokens that are types of the columns of CREATE STREAM, RELATION and ARCHIVE."""
    if not found or found[0].word != "CREATE" or not any(one.word in ("STREAM", "RELATION") for one in found[1:4]):
        return []
    types: list[int] = []
    depth = 0
    for index, token in enumerate(found):
        if token.kind is Kind.MARK and token.text in "()":
            depth += 1 if token.text == "(" else -1
            if not depth:
                break
        elif depth == 1 and _text(found, index - 2) in ("(", ",") and found[index - 1].name is not None:
            types.append(index)
    return types


def _decimal(found: Sequence[PgToken], of: int) -> str:
    """Return the type that has the digits of a literal, or many where a decimal is not known. of: the token before."""
    text = found[of].value if found[of].kind is Kind.TEXT else found[of].text
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        number = Decimal("NaN")
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or found[of].kind not in (Kind.TEXT, Kind.NUMBER):
        return f"DECIMAL({_MOST}, {_BEHIND})"
    before = max(1, number.adjusted() + 1)
    behind = max(0, min(-exponent, _MOST - before))
    return f"DECIMAL({min(_MOST, before + behind)}, {behind})"


def _bytes(found: Sequence[PgToken], of: int) -> str | None:
    """Return the literal of bytes for a text such as `\\x0aff`."""
    text = found[of].value if of >= 0 and found[of].kind is Kind.TEXT else ""
    if not text.startswith("\\x"):
        return None
    try:
        return f"X'{bytes.fromhex(text[2:]).hex()}'"
    except ValueError:
        return None
