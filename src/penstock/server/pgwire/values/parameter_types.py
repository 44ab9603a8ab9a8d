"""The type of `$1` where the client says none: that of what it is compared with, or written into."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.server.pgwire.catalog.tables import CatalogImage, system_columns
from penstock.server.pgwire.statements.lexing import Kind, PgToken, Statement
from penstock.server.pgwire.values.wire_types import WireType, type_named, wire_type

_COMPARE = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_TEXTS = frozenset({"LIKE", "ILIKE", "~", "~*", "!~", "||"})
_COUNTS = frozenset({"LIMIT", "OFFSET"})
_TWO_WORDS = {("DOUBLE", "PRECISION"): "double precision", ("CHARACTER", "VARYING"): "character varying"}


def parameter_type(statement: Statement, number: int, image: CatalogImage) -> WireType | None:
    """Return the type of `$n`, None where the statement does not tell."""
    found = statement.tokens
    for index, token in enumerate(found):
        if token.kind is Kind.VALUE and int(token.text[1:]) == number:
            type_ = _at(statement, found, index, image)
            if type_ is not None:
                return type_
    return None


def is_count(statement: Statement, number: int) -> bool:
    """Return whether `$n` is the number of LIMIT or OFFSET."""
    pairs = zip(statement.tokens, statement.tokens[1:], strict=False)
    return any(b.text == f"${number}" and a.word in _COUNTS for a, b in pairs)


def _at(statement: Statement, found: Sequence[PgToken], index: int, image: CatalogImage) -> WireType | None:
    before = found[index - 1].word if index else ""
    after = found[index + 1].word if index + 1 < len(found) else ""
    if after == "::" or (after == "AS" and index >= 2 and found[index - 2].word == "CAST"):
        return _named(found, index + 2)
    if before in _COUNTS:
        return wire_type("int8")
    if before in _TEXTS or after in _TEXTS:
        return wire_type("text")
    if (column := _inserted(statement, found, index, image)) is not None:
        return column
    peer = _peer(found, index)
    return None if peer is None else _column(statement, peer, image)


def _named(found: Sequence[PgToken], index: int) -> WireType | None:
    """Return the type that is written at a place."""
    if index >= len(found):
        return None
    words = [token.word for token in found[index : index + 4]]
    if len(words) > 2 and words[1] == ".":
        return _named(found, index + 2)
    name = _TWO_WORDS.get((words[0], words[1] if len(words) > 1 else ""), found[index].name or "")
    if words[1:3] == ["[", "]"]:
        name += "[]"
    if words[0] == "TIMESTAMP" and words[1:2] != ["WITHOUT"]:
        name = "timestamptz"
    return type_named(name)


def _peer(found: Sequence[PgToken], index: int) -> str | None:
    """Return the name of the column with which a value is compared."""
    at = index - 1
    if at >= 0 and found[at].text in _COMPARE:
        return _name_before(found, at)
    if index + 1 < len(found) and found[index + 1].text in _COMPARE:
        return _name_after(found, index + 2)
    # Of IN (..), BETWEEN .. AND .., and = ANY (..): back over values and commas.
    while at >= 0 and (found[at].kind in (Kind.VALUE, Kind.NUMBER, Kind.TEXT) or found[at].text in (",", "(")
                       or found[at].word in ("AND", "ANY", "=")):  # fmt: skip
        at -= 1
    if at >= 0 and found[at].word in ("IN", "BETWEEN"):
        at -= 1
        return _name_before(found, at if found[at].word == "NOT" else at + 1)
    # `a = $1 AND b = ANY ($2)` ends at the name before the last comparison.
    return None


def _name_before(found: Sequence[PgToken], at: int) -> str | None:
    return found[at - 1].name if at >= 1 else None


def _name_after(found: Sequence[PgToken], at: int) -> str | None:
    name = None
    while at < len(found) and found[at].name is not None:
        name = found[at].name
        if at + 1 >= len(found) or found[at + 1].text != ".":
            break
        at += 2
    return name


def _inserted(statement: Statement, found: Sequence[PgToken], index: int, image: CatalogImage) -> WireType | None:
    """Return the type of the column into which INSERT or UPDATE writes a value."""
    if statement.words(2) != ("INSERT", "INTO"):
        return None
    values = next((n for n, token in enumerate(found) if token.word == "VALUES"), None)
    if values is None or index < values:
        return None
    names = [token.name for token in found[2:values] if token.name is not None]
    is_listed = any(token.text == "(" for token in found[2:values])
    opening = next((n for n, token in enumerate(found[2:values], 2) if token.text == "("), values)
    table = [token.name for token in found[2:opening] if token.name is not None]
    one = image.named(table[-1]) if table and table[-1] else None
    if one is None:
        return None
    place, depth = 0, 0
    for token in found[values + 1 : index]:
        if token.text in "([":
            depth += 1
            place = 0 if depth == 1 else place
        elif token.text in ")]":
            depth -= 1
        elif token.text == "," and depth == 1:
            place += 1
    columns = {column.name.lower(): column.type for column in one.columns}
    if is_listed:
        listed = [name for name in names[len(table) :] if name is not None]
        return columns.get(listed[place].lower()) if place < len(listed) else None
    return one.columns[place].type if place < len(one.columns) else None


def _column(statement: Statement, name: str, image: CatalogImage) -> WireType | None:
    """Return the type of a column of what the statement names; None where that is not one type."""
    words = {one.lower() for token in statement.tokens if (one := token.name) is not None}
    types: set[str] = set()
    for relation in image.relations.values():
        if relation.name.lower() in words:
            types |= {column.type.name for column in relation.columns if column.name.lower() == name.lower()}
    for (_, table), columns in system_columns().items():
        if table in words and name.lower() in columns:
            types.add(columns[name.lower()].name)
    return wire_type(types.pop()) if len(types) == 1 else None
