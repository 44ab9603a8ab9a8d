"""The functions of the language by topic, and the table that combines them."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.expressions.library import (
    arithmetic,
    bits,
    comparison,
    conditional,
    dates,
    formats,
    hashes,
    inclusion,
    json,
    logic,
    math,
    patterns,
    sketches,
    strings,
    urls,
    zones,
)
from penstock.expressions.library.registry import Function

#: topic -> its entries, in the order of docs/functions.md.
TOPICS: Mapping[str, tuple[Function, ...]] = MappingProxyType(
    {
        "Arithmetic": arithmetic.FUNCTIONS,
        "Comparison": comparison.FUNCTIONS,
        "Logic": logic.FUNCTIONS,
        "Conditions and NULL": conditional.FUNCTIONS,
        "Mathematics": math.FUNCTIONS,
        "Bits and hashes": (*bits.FUNCTIONS, *hashes.FUNCTIONS),
        "Strings": (*strings.FUNCTIONS, *formats.FUNCTIONS),
        "Patterns": patterns.FUNCTIONS,
        "Dates and times": dates.FUNCTIONS,
        "Time zones": zones.FUNCTIONS,
        "URLs": urls.FUNCTIONS,
        "JSON": json.FUNCTIONS,
        "Sketches": sketches.FUNCTIONS,
    }
)

#: topic -> remarks on all its functions.
NOTES: Mapping[str, str] = MappingProxyType(
    {"Patterns": patterns.NOTE, "Time zones": zones.NOTE, "JSON": json.NOTE, "Sketches": sketches.NOTE}
)

#: canonical name or alias -> entry.
TABLE: Mapping[str, Function] = MappingProxyType(
    {name: row for rows in (*TOPICS.values(), inclusion.FUNCTIONS) for row in rows for name in (row.name, *row.aliases)}
)
