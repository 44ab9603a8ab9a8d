"""The JSON of a plan: its limits, and typed access to its parts.

Every mistake names its place by a JSON pointer (RFC 6901), such as `/logical/inputs/0/fields/predicate`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.deep_trees import deep
from penstock.errors import PenstockError, nearest
from penstock.language.limits import MAX_OPERATORS

FORMAT = "penstock.plan/1"
#: Characters of a plan.
MAX_CHARACTERS = 4_000_000
#: Levels of nested brackets: an operator has two, the fields of the deepest few more.
MAX_LEVELS = 2 * MAX_OPERATORS + 20


class PlanError(PenstockError):
    """A mistake in a plan as data, whose message has its place."""


def fault(pointer: str, message: str, code: str = "P0106", hint: str | None = None) -> PlanError:
    """Return the error at a place of a plan."""
    return PlanError(code, f"plan, {pointer or 'the document'}: {message}", hint=hint)


@dataclass(frozen=True)
class Part:
    """A value of the document, and the JSON pointer to it."""

    value: Any
    pointer: str = ""

    def at(self, key: str | int) -> str:
        """Return the pointer to a member."""
        return f"{self.pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"

    def object(self, known: Collection[str], needed: Collection[str] = ()) -> dict[str, Part]:
        """Return the members of an object. Raises PenstockError P0106 for a key that is not known or lacks."""
        if not isinstance(self.value, dict):
            raise fault(self.pointer, f"an object is needed, this is {_shown(self.value)}")
        for key in self.value:
            if key not in known:
                raise fault(self.at(key), "there is no such field", hint=nearest(key, known))
        for key in needed:
            if key not in self.value:
                raise fault(self.pointer, f"the field {key} is missing")
        return {key: Part(value, self.at(key)) for key, value in self.value.items()}

    def items(self) -> list[Part]:
        """Return the items of an array."""
        if not isinstance(self.value, list):
            raise fault(self.pointer, f"an array is needed, this is {_shown(self.value)}")
        return [Part(value, self.at(number)) for number, value in enumerate(self.value)]

    def text(self) -> str:
        """Return a string, which has characters of Unicode only."""
        if not isinstance(self.value, str):
            raise fault(self.pointer, f"a string is needed, this is {_shown(self.value)}")
        if any("\ud800" <= letter <= "\udfff" for letter in self.value):
            raise fault(self.pointer, "this string has half of a character (a lone surrogate)")
        return self.value

    def name(self) -> str:
        """Return a string that is not empty."""
        if not self.text():
            raise fault(self.pointer, "this name is empty")
        return self.text()

    def one_of(self, words: Collection[str]) -> str:
        word = self.text()
        if word not in words:
            raise fault(self.pointer, f"{word!r} is not one of {', '.join(words)}", hint=nearest(word, words))
        return word

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise fault(self.pointer, f"true or false is needed, this is {_shown(self.value)}")
        return self.value

    def whole(self, least: int, most: int) -> int:
        """Return a whole number between two."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise fault(self.pointer, f"a whole number is needed, this is {_shown(self.value)}")
        if not least <= self.value <= most:
            raise fault(self.pointer, f"this number is not between {least} and {most}")
        return self.value


def _shown(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


@deep
def parsed(text: str) -> Part:
    """Return a document. Raises PenstockError P0105 for one beyond the limits, P0106 for what is no JSON."""
    if len(text) > MAX_CHARACTERS:
        message = f"this plan has {len(text):,} characters, {MAX_CHARACTERS:,} are the limit"
        raise PenstockError("P0105", message)
    if _levels(text) > MAX_LEVELS:
        raise PenstockError("P0105", f"this plan is nested in more than {MAX_LEVELS:,} levels, which is the limit")
    try:
        return Part(json.loads(text, object_pairs_hook=_members, parse_constant=_no_constant))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        hint = (
            r"in a text of CQL, ' and \ are written twice"
            if text.lstrip().startswith("{")
            else "the plan itself stands there, as EXPORT PLAN OF q returns it, and no name of a file"
        )
        raise fault("", f"this is no JSON: {error.msg} ({place})", hint=hint) from None
    except (ValueError, RecursionError) as error:
        raise fault("", f"this is no JSON: {error}") from None


@deep
def printed(document: Mapping[str, object]) -> str:
    """Return a document as text."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _levels(text: str) -> int:
    """Return the levels of nested brackets of a text, whatever it is."""
    level = most = 0
    quoted = escaped = False
    for letter in text:
        if quoted:
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == '"':
                quoted = False
        elif letter == '"':
            quoted = True
        elif letter in "{[":
            level += 1
            most = max(most, level)
        elif letter in "}]":
            level -= 1
    return most


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the field {key} occurs twice in one object")
        members[key] = value
    return members


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def sources_named(text: str) -> Iterator[str]:
    """Yield the names of the sources that a plan reads; none of a text that is no plan, which is reported where it is
    bound."""
    try:
        document = parsed(text).value
    except PenstockError:
        return
    waiting = [document.get("logical")] if isinstance(document, dict) else []
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            fields, inputs = part.get("fields"), part.get("inputs")
            if isinstance(fields, dict) and isinstance(name := fields.get("source"), str):
                yield name
            waiting += inputs if isinstance(inputs, list) else []
