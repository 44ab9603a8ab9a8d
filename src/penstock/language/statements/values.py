"""The values of `$1`, `$2` of a parsed statement, put into its tree as literals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from sqlglot import exp

from penstock.language.dialect import span_of
from penstock.language.grammar.fragments import parse_expression
from penstock.language.queries import EmbeddedQuery
from penstock.language.text import LEAVES, SourceText, TextSpan

T = TypeVar("T")


@dataclass(frozen=True)
class WrittenValue:
    """A value as a literal: its text, and the tree that the text would be parsed to."""

    text: str
    tree: exp.Expr

    @staticmethod
    def null() -> WrittenValue:
        return WrittenValue("NULL", exp.Null())

    @staticmethod
    def boolean(value: bool) -> WrittenValue:
        return WrittenValue("TRUE" if value else "FALSE", exp.Boolean(this=value))

    @staticmethod
    def number(text: str) -> WrittenValue:
        """Return a number from its digits, with a point and a sign where it has them."""
        digits = text.removeprefix("-")
        tree = exp.Literal.number(digits)
        if digits == text:
            return WrittenValue(text, tree)
        return WrittenValue(f"({text})", exp.Paren(this=exp.Neg(this=tree)))

    @staticmethod
    def string(value: str) -> WrittenValue:
        return WrittenValue(string_text(value), exp.Literal.string(value))

    @staticmethod
    def binary(value: bytes) -> WrittenValue:
        return WrittenValue(f"X'{value.hex()}'", exp.HexString(this=value.hex()))

    def cast(self, type_: str) -> WrittenValue:
        """Return the value in a cast. type_: as it is written."""
        tree = _cast_to(type_).copy()
        tree.set("this", self.tree)
        return WrittenValue(f"CAST({self.text} AS {type_})", tree)


def string_text(text: str) -> str:
    """Return the literal of a text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@cache
def _cast_to(type_: str) -> exp.Expr:
    return parse_expression(SourceText(f"CAST(NULL AS {type_})"))


class ValuePlacement:
    """Puts values into trees. Trees without a parameter are left as they are, and so are those of others.

    Attributes:
        placed: the text that is read in place of each parameter, by its place.
    """

    def __init__(self) -> None:
        self.placed: dict[TextSpan, str] = {}

    def tree(self, tree: T, values: Sequence[WrittenValue]) -> T:
        """Return the tree of a statement, or a part of one, with values in place of its parameters. Raises IndexError
        for a parameter without a value."""
        found: Any = tree
        if type(tree) in LEAVES:
            return tree
        if isinstance(tree, exp.Expr):
            found = self._expression(tree, values)
        elif isinstance(tree, tuple):
            parts = tuple(self.tree(part, values) for part in tree)
            found = tree if all(new is old for new, old in zip(parts, tree, strict=True)) else parts
        elif is_dataclass(tree) and not isinstance(tree, type):
            own = {field.name: getattr(tree, field.name) for field in fields(tree)}
            changed = {name: new for name, old in own.items() if (new := self.tree(old, values)) is not old}
            found = replace(tree, **changed) if changed else tree
        result: T = found
        return result

    def _expression(self, node: exp.Expr, values: Sequence[WrittenValue]) -> exp.Expr:
        if isinstance(node, exp.Parameter):
            return self._literal(node, values)
        if node.find(exp.Parameter, EmbeddedQuery) is None:
            return node
        whole = node.copy()
        parameters = []
        for part in list(whole.find_all(exp.Parameter, EmbeddedQuery)):
            if isinstance(part, EmbeddedQuery):
                part.set("cql", self.tree(part.tree, values))
            elif isinstance(part, exp.Parameter):
                parameters.append((part, self._literal(part, values)))
        replace_nodes(parameters)
        return whole

    def _literal(self, parameter: exp.Parameter, values: Sequence[WrittenValue]) -> exp.Expr:
        value, span = values[parameter.this - 1], span_of(parameter)
        self.placed[span] = value.text
        made: exp.Expr = value.tree.copy()
        for part in made.walk():
            part.meta["span"] = span
        return made


def replace_nodes(replacements: Iterable[tuple[exp.Expr, exp.Expr]]) -> None:
    """Put nodes in the place of others, none of which is a root, in the time of their number: `Expr.replace` counts the
    places of all items of a list anew for each."""
    lists: dict[tuple[int, str], tuple[exp.Expr, dict[int, exp.Expr]]] = {}
    for old, new in replacements:
        parent, key = old.parent, old.arg_key
        assert parent is not None and key is not None, "a root is in no place"
        if old.index is None:
            parent.set(key, new)
        else:
            lists.setdefault((id(parent), key), (parent, {}))[1][old.index] = new
    for (_, key), (parent, placed) in lists.items():
        parent.set(key, [placed.get(i, item) for i, item in enumerate(parent.args[key])])
