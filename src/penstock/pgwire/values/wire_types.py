"""The types of PostgreSQL that values have on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parents[1] / "catalog" / "types.txt"


@dataclass(frozen=True)
class WireType:
    """A type. size: in bytes, negative where it differs; shown: as format_type writes it; element: oid of an array's
    elements, 0 for others; array: oid of its arrays; row: of pg_type, as `types.txt` has it."""

    oid: int
    name: str
    size: int
    shown: str
    element: int
    array: int
    row: tuple[str, ...]


@cache
def _all() -> dict[str, WireType]:
    found: dict[str, WireType] = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        row = tuple(line.split(" "))
        shown = row[12].replace("_", " ") if not row[12].startswith(("pg_", "_")) else row[12]
        is_array = row[5] == "A"
        one = WireType(int(row[0]), row[1], int(row[2]), shown, int(row[8]) if is_array else 0, int(row[9]), row)
        found[one.name] = one
    return found


def all_types() -> tuple[WireType, ...]:
    """Return every type, by oid."""
    return tuple(_all().values())


def wire_type(name: str) -> WireType:
    """Return a type by its name in pg_type, such as `int4` or `_text`."""
    return _all()[name]


@cache
def _by_oid() -> dict[int, WireType]:
    return {one.oid: one for one in all_types()}


def type_of_oid(oid: int) -> WireType | None:
    return _by_oid().get(oid)


@cache
def _by_word() -> dict[str, WireType]:
    words = {one.name: one for one in all_types()} | {one.shown: one for one in all_types()}
    others = {
        "int": "int4",
        "decimal": "numeric",
        "string": "text",
        "float": "float8",
        "double": "float8",
        "tinyint": "int2",
        "binary": "bytea",
        "serial": "int4",
        "bigserial": "int8",
        "timestamp_ltz": "timestamptz",
    }
    return words | {word: words[name] for word, name in others.items()}


def type_named(word: str) -> WireType | None:
    """Return the type of a name as statements write it, such as `int`, `character varying` or `text[]`."""
    word = " ".join(word.lower().split()).removeprefix("pg_catalog.")
    if word.endswith("[]"):
        element = type_named(word[:-2])
        return None if element is None else type_of_oid(element.array)
    if word in ("char", '"char"'):
        # In quotes it is a type of its own.
        return wire_type("bpchar" if word == "char" else "char")
    return _by_word().get(word.strip('"'))


#: The least and the most of types of whole numbers.
INTEGERS = {
    "int2": (-(1 << 15), (1 << 15) - 1),
    "int4": (-(1 << 31), (1 << 31) - 1),
    "int8": (-(1 << 63), (1 << 63) - 1),
    "oid": (0, (1 << 32) - 1),
    "xid": (0, (1 << 32) - 1),
}
