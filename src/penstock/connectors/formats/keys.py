"""Names of columns in files and records: compared without regard to case, everywhere.

Contract: a declared column is the column, key or field whose name equals its own when both are in lower case. Where a
file or a record has two such names it is ambiguous: a file does not fit, a record is malformed. There is no order of
preference between them, so that the meaning of a name does not depend on earlier data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from penstock.arrays import Bytes, Int64s
from penstock.compilation import loop
from penstock.errors import nearest

#: Letters of other alphabets whose lower case is a letter of ASCII.
_KELVIN = "\u212a".encode()
#: An escape that may be a letter, a digit, `_` or `-`.
_ESCAPED = re.compile(rb"\\u(?:00(?:[46][0-9A-Fa-f]|[57][0-9AaFf]|3[0-9]|2[Dd])|212[Aa])")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def folded(name: str) -> str:
    """Return the common form of all names of the same column."""
    return name.lower()


def places(names: Iterable[str]) -> dict[str, list[int]]:
    """Return folded name -> its positions in `names`."""
    indices: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        indices.setdefault(folded(name), []).append(index)
    return indices


def unknown_name(name: str, names: Iterable[str], owner: str) -> str:
    """Return the reason why a record or file is refused that has a name which none of the columns `names` has."""
    hint = nearest(name, names)
    return f"{owner} has no column {name[:200] or 'without a name'}" + ("" if hint is None else f"; {hint}")


def spellings(data: bytes, names: Sequence[str]) -> list[str] | None:
    """Return how `names` are spelled as keys in some JSON, if each is spelled in one way; its own spelling if it does
    not occur.

    None if a name has two spellings, or if a quick scan cannot decide.
    """
    if not all(_PLAIN.fullmatch(name) for name in names):
        return _spelled_as_declared(data, names)
    if (not data.isascii() and _KELVIN in data) or (b"\\" in data and _ESCAPED.search(data)):
        return None
    view = np.frombuffer(data, dtype=np.uint8)
    lower = [np.frombuffer(folded(name).encode(), dtype=np.uint8) for name in names]
    ends = np.cumsum([0, *map(len, lower)])
    firsts = np.full(len(names), -1, np.int64)
    letters = np.concatenate([np.empty(0, np.uint8), *lower])
    if not _one_spelling(view, np.flatnonzero(view == ord(":")), letters, ends, firsts):
        return None
    return [
        name if at < 0 else view[at : at + len(name)].tobytes().decode("ascii")
        for name, at in zip(names, firsts.tolist(), strict=True)
    ]


@loop
def _one_spelling(data: Bytes, colons: Int64s, letters: Bytes, ends: Int64s, firsts: Int64s) -> bool:
    """Return whether each of some names has one spelling wherever it is a key; `firsts` receives its first position.

    `letters`, `ends`: the names in lower case, concatenated. A text before a colon within a text counts too.
    """
    count, expected = firsts.shape[0], 0
    for colon in colons:
        end = colon - 1
        while end > 0 and data[end] <= 32:
            end -= 1
        if end <= 0 or data[end] != 34:
            continue
        # Most records have their keys in the same order.
        for k in range(expected, expected + count):
            k = k - count if k >= count else k
            start = end - (ends[k + 1] - ends[k])
            if start <= 0 or data[start - 1] != 34:
                continue
            if firsts[k] >= 0 and _equal_bytes(data, start, end, firsts[k]):
                expected = k + 1
                break
            if _is_name(data, start, end, letters, ends[k]):
                if firsts[k] >= 0:
                    return False
                firsts[k] = start
                break
    return True


@loop
def _equal_bytes(data: Bytes, start: int, end: int, other_start: int) -> bool:
    for at in range(start, end):  # noqa: SIM110 - numba compiles loops
        if data[at] != data[other_start + at - start]:
            return False
    return True


@loop
def _is_name(data: Bytes, start: int, end: int, letters: Bytes, first: int) -> bool:
    """Return whether the bytes from `start` to `end` are the name that begins at `first`, ignoring case."""
    for at in range(start, end):
        letter = letters[first + at - start]
        if data[at] != letter and not (97 <= letter <= 122 and data[at] == letter - 32):
            return False
    return True


def _spelled_as_declared(data: bytes, names: Sequence[str]) -> list[str] | None:
    """Return the same for names of any letters: whether no key is spelled differently."""
    if b"\\" in data:
        return None
    text = data.decode("utf-8")
    lower = text.lower()
    all_as_declared = (lower.count(f'"{folded(name)}"') == text.count(f'"{name}"') for name in names)
    return list(names) if all(all_as_declared) else None
