"""Documents of JSON: the type of what is written as JSON, and typed access to the fields of a document that was read.

Contract: a field that is missing raises KeyError, one of another type than the caller expects raises TypeError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

#: A value of JSON.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
#: An object of JSON.
Document: TypeAlias = Mapping[str, Json]

# -- fields of an object: `name` is the field ------------------------------------------------------------------


def integer(document: Document, name: str) -> int:
    """Return the integer in a field."""
    return as_integer(document[name], name)


def optional_integer(document: Document, name: str) -> int | None:
    """Return the integer in a field, None for null."""
    return as_optional_integer(document[name], name)


def flag(document: Document, name: str) -> bool:
    """Return the boolean in a field."""
    return as_boolean(document[name], name)


def text(document: Document, name: str) -> str:
    """Return the string in a field."""
    return as_text(document[name], name)


def array(document: Document, name: str) -> Sequence[Json]:
    """Return the array in a field."""
    return as_array(document[name], name)


def integers(document: Document, name: str) -> list[int]:
    """Return the array of integers in a field."""
    return [as_integer(value, name) for value in array(document, name)]


def texts(document: Document, name: str) -> list[str]:
    """Return the array of strings in a field."""
    return [as_text(value, name) for value in array(document, name)]


def integer_pairs(document: Document, name: str) -> list[tuple[int, int]]:
    """Return the array of pairs of integers in a field."""
    pairs = (as_array(pair, name) for pair in array(document, name))
    return [(as_integer(first, name), as_integer(second, name)) for first, second in pairs]


def nested(document: Document, name: str) -> Document:
    """Return the object in a field."""
    return as_document(document[name], name)


# -- values: `name` is the field they stand in, for the error --------------------------------------------------


def as_integer(value: Json, name: str) -> int:
    """Return `value`, which must be an integer."""
    if not isinstance(value, int):
        raise _other_type(value, "an integer", name)
    return value


def as_optional_integer(value: Json, name: str) -> int | None:
    """Return `value`, which must be an integer or null."""
    return None if value is None else as_integer(value, name)


def as_boolean(value: Json, name: str) -> bool:
    """Return `value`, which must be a boolean."""
    if not isinstance(value, bool):
        raise _other_type(value, "a boolean", name)
    return value


def as_number(value: Json, name: str) -> float:
    """Return `value`, which must be a number."""
    if not isinstance(value, int | float):
        raise _other_type(value, "a number", name)
    return value


def as_text(value: Json, name: str) -> str:
    """Return `value`, which must be a string."""
    if not isinstance(value, str):
        raise _other_type(value, "a string", name)
    return value


def as_array(value: Json, name: str) -> Sequence[Json]:
    """Return `value`, which must be an array."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _other_type(value, "an array", name)
    return value


def as_document(value: Json, name: str) -> Document:
    """Return `value`, which must be an object."""
    if not isinstance(value, Mapping):
        raise _other_type(value, "an object", name)
    return value


def _other_type(value: Json, expected: str, name: str) -> TypeError:
    return TypeError(f"the field {name} holds {type(value).__name__}, not {expected}")
