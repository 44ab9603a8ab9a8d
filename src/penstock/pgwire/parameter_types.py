"""Find the type of `$1` where the client declares none: that of what it is compared with, or written into."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from penstock.pgwire.catalog.declarations.declared import CatalogImage
from penstock.pgwire.catalog.declarations.tables import system_columns
from penstock.pgwire.statements.lexing import Kind, PgToken, Statement
from penstock.pgwire.values.wire_types import WireType, type_named, type_of_oid, wire_type

_COMPARE = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_TEXTS = frozenset({"LIKE", "ILIKE", "~", "~*", "!~", "||"})
_COUNTS = frozenset({"LIMIT", "OFFSET"})
_TWO_WORDS = {("DOUBLE", "PRECISION"): "double precision", ("CHARACTER", "VARYING"): "character varying"}


class ParameterTypes:
    """The types of all values of a statement. What is looked up takes time in proportion to the statement, however
    many values it has."""

    def __init__(self, statement: Statement, image: CatalogImage) -> None:
        self._statement, self._tokens, self._image = statement, statement.tokens, image
        self._columns: dict[str, WireType | None] = {}
        self._places: dict[int, list[int]] = {}
        for index, token in enumerate(self._tokens):
            if token.kind is Kind.VALUE:
                self._places.setdefault(int(token.text[1:]), []).append(index)

    def of(self, number: int) -> WireType | None:
        """Return the type of `$n`, None where the statement does not determine it."""
        for index in self._places.get(number, ()):
            type_ = self._at(index)
            if type_ is not None:
                return type_
        return None

    def _at(self, index: int) -> WireType | None:
        found = self._tokens
        before = found[index - 1].word if index else ""
        after = found[index + 1].word if index + 1 < len(found) else ""
        if after == "::" or (after == "AS" and index >= 2 and found[index - 2].word == "CAST"):
            return _named(found, index + 2)
        if before == "(" and index >= 3 and found[index - 2].word in ("ANY", "SOME", "ALL"):
            # An array of what it is compared with.
            name = _name_before(found, index - 3) if found[index - 3].text in _COMPARE else None
            element = None if name is None else self._column(name)
            return None if element is None else type_of_oid(element.array)
        if before in _COUNTS:
            return wire_type("int8")
        if before in _TEXTS or after in _TEXTS:
            return wire_type("text")
        if (column := self._inserted.get(index)) is not None:
            return column
        peer = self._peer(index)
        if peer is None:
            return None
        if peer not in self._columns:
            self._columns[peer] = self._column(peer)
        return self._columns[peer]

    def _peer(self, index: int) -> str | None:
        """Return the name of the column with which a value is compared."""
        found, at = self._tokens, index - 1
        if at >= 0 and found[at].text in _COMPARE:
            return _name_before(found, at)
        if index + 1 < len(found) and found[index + 1].text in _COMPARE:
            return _name_after(found, index + 2)
        # Of IN (..), BETWEEN .. AND .., and = ANY (..): back over values and commas.
        at = self._backwards[at] if at >= 0 else -1
        if at >= 0 and found[at].word in ("IN", "BETWEEN"):
            at -= 1
            return _name_before(found, at if found[at].word == "NOT" else at + 1)
        # `a = $1 AND b = ANY ($2)` ends at the name before the last comparison.
        return None

    @cached_property
    def _backwards(self) -> list[int]:
        """By token, the last one up to it that stands in no list of values; -1 for none."""
        found: list[int] = []
        for index, token in enumerate(self._tokens):
            is_listed = (
                token.kind in (Kind.VALUE, Kind.NUMBER, Kind.TEXT)
                or token.text in (",", "(")
                or token.word in ("AND", "ANY", "=")
            )
            found.append((found[-1] if found else -1) if is_listed else index)
        return found

    @cached_property
    def _inserted(self) -> dict[int, WireType]:
        """By place, the types of the columns into which INSERT writes values."""
        found = self._tokens
        if self._statement.words(2) != ("INSERT", "INTO"):
            return {}
        values = next((n for n, token in enumerate(found) if token.word == "VALUES"), None)
        if values is None:
            return {}
        names = [token.name for token in found[2:values] if token.name is not None]
        is_listed = any(token.text == "(" for token in found[2:values])
        opening = next((n for n, token in enumerate(found[2:values], 2) if token.text == "("), values)
        table = [token.name for token in found[2:opening] if token.name is not None]
        one = self._image.named(table[-1]) if table and table[-1] else None
        if one is None:
            return {}
        columns = {column.name.lower(): column.type for column in one.columns}
        listed = (
            [columns.get(name.lower()) for name in names[len(table) :]]
            if is_listed
            else [column.type for column in one.columns]
        )
        types: dict[int, WireType] = {}
        place, depth = 0, 0
        for index, token in enumerate(found[values + 1 :], values + 1):
            if token.text in ("(", "["):
                depth += 1
                place = 0 if depth == 1 else place
            elif token.text in (")", "]"):
                depth -= 1
            elif token.text == "," and depth == 1:
                place += 1
            elif token.kind is Kind.VALUE and place < len(listed) and (type_ := listed[place]) is not None:
                types[index] = type_
        return types

    @cached_property
    def _words(self) -> set[str]:
        return {name.lower() for token in self._tokens if (name := token.name) is not None}

    def _column(self, name: str) -> WireType | None:
        """Return the type of a column of what the statement names; None where that is not one type."""
        words, types = self._words, set[str]()
        for relation in self._image.relations.values():
            if relation.name.lower() in words:
                types |= {column.type.name for column in relation.columns if column.name.lower() == name.lower()}
        for (_, table), columns in system_columns().items():
            if table in words and name.lower() in columns:
                types.add(columns[name.lower()].name)
        return wire_type(types.pop()) if len(types) == 1 else None


def _named(found: Sequence[PgToken], index: int) -> WireType | None:
    """Return the type that is written at a place."""
    while index + 2 < len(found) and found[index + 1].text == ".":
        index += 2
    if index >= len(found):
        return None
    words = [token.word for token in found[index : index + 4]]
    name = _TWO_WORDS.get((words[0], words[1] if len(words) > 1 else ""), found[index].name or "")
    if words[1:3] == ["[", "]"]:
        name += "[]"
    if words[0] == "TIMESTAMP" and words[1:2] != ["WITHOUT"]:
        name = "timestamptz"
    if name == "char" and found[index].kind is Kind.NAME:
        name = '"char"'
    return type_named(name)


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
