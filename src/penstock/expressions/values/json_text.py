"""JSON in texts: parsing it, paths into it, and its values as text.

Contract: texts are parsed strictly by RFC 8259; invalid JSON, or JSON nested deeper than `DEEPEST`, is `BAD`. Numbers
keep the digits they were written with. Of equal keys in one object the first is used, as in Spark.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Limit of nested brackets. Without it the depth of the call stack would decide what can be parsed.
DEEPEST = 200
#: Limit of the texts of one column that are cached after they have been parsed, until another column is.
_KEPT_BYTES = 4 * 2**20

BAD = object()


class Number(str):
    """A number by its digits."""


def _unlike(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        made = {}
        for key, value in pairs:
            made.setdefault(key, value)
    return made


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_unlike, strict=True
)
#: The beginning or end of a level; brackets within strings are not counted. A string may lack its end, so that no quote
#: in it is tried as another beginning.
_LEVELS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def read(text: str) -> object:
    """Return the value of a JSON text, or `BAD`."""
    if text.count("[") + text.count("{") > DEEPEST and _depth(text) > DEEPEST:
        return BAD
    try:
        value, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip(" \t\r\n")))
    except (ValueError, RecursionError):
        return BAD
    return BAD if text[end:].strip(" \t\r\n") else value


def _depth(text: str) -> int:
    deepest = depth = 0
    for match in _LEVELS.finditer(text):
        mark = match[0]
        depth += 1 if mark in "[{" else -1 if mark in "]}" else 0
        deepest = max(deepest, depth)
    return deepest


def as_json(value: object) -> str:
    """Return the JSON text of a value, without blanks."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(key)}:{as_json(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(_whole(text), ensure_ascii=False)


def as_text(value: object) -> str | None:
    """Return a string without quotes, the JSON text of anything else; NULL for null."""
    if isinstance(value, Number) or not isinstance(value, str):
        return None if value is None else as_json(value)
    return _whole(value)


def _whole(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can represent and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


# --- paths ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Path:
    """A path. `before`: keys and indices from the root; `after`: those within each member of the array there, None
    without `[*]`.
    """

    before: tuple[str | int, ...]
    after: tuple[str | int, ...] | None = None


_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\['(?P<quoted>[^']+)'\]|\[(?P<index>\d{1,9})\]|\[(?P<every>\*)\]")


def parse_path(text: str) -> Path | None:
    """Return the path of `$.a['b c'][0][*].d`, with at most one `[*]`; None for anything else."""
    if not text.startswith("$"):
        return None
    parts: list[list[str | int]] = [[]]
    position = 1
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or match["name"] == "*":
            return None
        if match["every"]:
            parts.append([])
        elif match["index"]:
            parts[-1].append(int(match["index"]))
        else:
            parts[-1].append(match["name"] or match["quoted"])
        position = match.end()
    if len(parts) > 2:
        return None
    return Path(tuple(parts[0]), tuple(parts[1]) if len(parts) == 2 else None)


def follow(value: object, steps: tuple[str | int, ...]) -> object:
    """Return the value at a path, or `BAD` where there is none. A negative index counts from the end."""
    for step in steps:
        if isinstance(step, str):
            value = value.get(step, BAD) if isinstance(value, dict) else BAD
        elif isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return BAD
    return value


def text_at(value: object, path: Path) -> str | None:
    """Return the result of GET_JSON_OBJECT: the text of the value at a path; several matches of `[*]` give an array, a
    single match itself.
    """
    found = follow(value, path.before)
    if path.after is None or found is BAD:
        return None if found is BAD else as_text(found)
    if not isinstance(found, list):
        return None
    members = [m for m in (follow(member, path.after) for member in found) if m is not BAD]
    if not members:
        return None
    return as_json(members) if len(members) > 1 else as_json(members[0])


# --- columns ----------------------------------------------------------------------------------------------------------


class _Last(threading.local):
    """The column that was parsed last: several paths into one column parse its texts once."""

    column: pa.Array | None = None
    values: tuple[list[object], npt.NDArray[np.int64]] = ([], np.empty(0, np.int64))


_LAST = _Last()


def read_column(texts: pa.Array) -> tuple[list[object], npt.NDArray[np.int64]]:
    """Return (the values of the distinct texts, the index of each row's); NULL is `BAD`."""
    if texts is _LAST.column:
        return _LAST.values
    encoded = texts.dictionary_encode(null_encoding="encode")
    values = [BAD if text is None else read(text) for text in encoded.dictionary.to_pylist()]
    found = values, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    small = texts.nbytes <= _KEPT_BYTES
    _LAST.column, _LAST.values = (texts, found) if small else (None, ([], found[1][:0]))
    return found


def over_texts(texts: pa.Array, function: Callable[[object], str | None]) -> pa.Array:
    """Apply `function` to the value of each text, NULL where that is invalid JSON."""
    values, rows = read_column(texts)
    results = pa.array([None if value is BAD else function(value) for value in values], pa.string())
    return results.take(pa.array(rows))
