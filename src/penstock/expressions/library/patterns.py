"""LIKE and regular expressions, evaluated only by Arrow's engine (RE2).

RE2 takes time in proportion to the text, whatever the pattern, and refuses constructs that cannot be matched in such
time: back references, look-around, possessive quantifiers. A pattern that it refuses is an error when the query is
bound, if it is a literal, else NULL. If patterns differ from row to row, each is applied to the rows that have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import BOOLEAN, INT, STRING
from penstock.expressions.library.registry import Function, Rule, takes
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.text_equality import equals_text
from penstock.expressions.values.datum import LONGEST_BYTES, Arguments, Datum, Kernel, held_bytes, is_scalar

#: The remark on all of them in docs/functions.md.
NOTE = r"""Patterns take time in proportion to the text: they are evaluated by RE2. What cannot be evaluated in such
time is refused (`P0203`): back references, look-around, possessive quantifiers and atomic groups, repetitions of more
than 1,000. A pattern that is not a literal and that RE2 refuses gives NULL in its row. Where it differs from Java's
regular expressions, which Spark has: `$` without `(?m)` matches at the very end alone, not before a last line break;
`\s` leaves out the vertical tab; `\h`, `\R`, `\Z`, `\G`, `(?x)` and sets of classes (`[a&&b]`) do not exist; `\uXXXX`
is written `\x{XXXX}`; `\p{..}` takes Unicode's general categories and scripts; REGEXP_REPLACE does not match the
empty text right behind a match. Groups count from 1 to 9, 0 is the whole match. LIKE takes any pattern.
"""

Typed = tuple[tuple[Expression, ...], pa.DataType]


@lru_cache(maxsize=1024)
def like_parts(pattern: str, escape: str) -> tuple[tuple[str, ...], str]:
    """Return (the pattern cut into parts, the kind of each: t for a text, % or _ for a wildcard)."""
    parts: list[str] = []
    kinds = ""
    position = 0
    while position < len(pattern):
        letter = pattern[position]
        if letter == escape and position + 1 < len(pattern):
            position += 1
            letter, kind = pattern[position], "t"
        else:
            kind = letter if letter in "%_" else "t"
        if kind == "t" and kinds.endswith("t"):
            parts[-1] += letter
        elif not (kind == "%" and kinds.endswith("%")):
            parts.append(letter)
            kinds += kind
        position += 1
    return tuple(parts), kinds


@lru_cache(maxsize=1024)
def _like_regex(pattern: str, escape: str) -> str:
    parts, kinds = like_parts(pattern, escape)
    texts = {"%": ".*", "_": "."}
    return r"(?s)\A" + "".join(texts.get(k) or re.escape(p) for p, k in zip(parts, kinds, strict=True))


def _like_literal(value: Datum, pattern: str, escape: str, fold: bool) -> Datum:
    parts, kinds = like_parts(pattern, escape)
    if kinds in ("", "t") and not fold:
        return equals_text(value, "".join(parts).encode())
    if kinds == "%t%":
        return pc.match_substring(value, parts[1], ignore_case=fold)
    if kinds == "t%":
        return pc.starts_with(value, parts[0], ignore_case=fold)
    if kinds == "%t":
        return pc.ends_with(value, parts[1], ignore_case=fold)
    return pc.match_substring_regex(value, _like_regex(pattern, escape) + r"\z", ignore_case=fold)


def _matches_like(text: str, pattern: str, escape: str) -> bool:
    """Match LIKE character by character, for patterns too long for RE2. Between two % the first match suffices."""
    parts, kinds = like_parts(pattern, escape)
    sections: list[list[str | None]] = [[]]
    for part, kind in zip(parts, kinds, strict=True):
        if kind == "%":
            sections.append([])
        else:
            sections[-1] += [None] if kind == "_" else list(part)
    first, *middle = sections
    if not _fits(text, 0, first) or (not middle and len(text) != len(first)):
        return False
    if not middle:
        return True
    start, last = len(first), middle.pop()
    for section in middle:
        while start + len(section) <= len(text) and not _fits(text, start, section):
            start += 1
        start += len(section)
    end = len(text) - len(last)
    return end >= start and _fits(text, end, last)


def _fits(text: str, start: int, section: list[str | None]) -> bool:
    letters = text[start : start + len(section)]
    return len(letters) == len(section) and all(w in (None, c) for c, w in zip(letters, section, strict=True))


def _like(fold: bool) -> Kernel:
    def match(value: Datum, pattern: str, escape: str = "\\") -> Datum:
        try:
            return _like_literal(value, pattern, escape, fold)
        except pa.ArrowInvalid:
            texts, against = (value, pattern) if not fold else (pc.utf8_lower(value), pattern.lower())
            if is_scalar(texts):
                return pa.scalar(texts.is_valid and _matches_like(texts.as_py(), against, escape), BOOLEAN)
            found = [None if t is None else _matches_like(t, against, escape) for t in texts.to_pylist()]
            return pa.array(found, BOOLEAN)

    return _by_pattern(match)


def _by_pattern(function: Callable[..., Datum]) -> Kernel:
    """Return the kernel of `function`, which is called with the texts and the other arguments as Python values.

    Rows with different other arguments are separate calls. NULL where one of them is NULL, or is refused
    (`pa.ArrowInvalid`).
    """

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        texts, *others = arguments
        if all(is_scalar(other) for other in others):
            return _called(function, texts, [other.as_py() for other in others], type_)
        length = next(len(other) for other in others if not is_scalar(other))
        columns = [[o.as_py()] * length if is_scalar(o) else o.to_pylist() for o in others]
        rows: dict[tuple[object, ...], list[int]] = {}
        for row, values in enumerate(zip(*columns, strict=True)):
            rows.setdefault(values, []).append(row)
        if is_scalar(texts):
            texts = pa.array([texts.as_py()] * length, texts.type)
        parts = [_called(function, texts.take(pa.array(at)), list(values), type_) for values, at in rows.items()]
        if not parts:
            return pa.nulls(0, type_)
        order = np.argsort(np.array([row for at in rows.values() for row in at], np.int64))
        return pa.concat_arrays([_plain(part, type_) for part in parts]).take(pa.array(order))

    return run


def _plain(array: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array if array.type == type_ else array.cast(type_)


def _called(function: Callable[..., Datum], texts: Datum, values: list[object], type_: pa.DataType) -> Datum:
    try:
        found = None if None in values else function(texts, *values)
    except pa.ArrowInvalid:
        found = None
    if found is not None:
        return found
    return pa.scalar(None, type_) if is_scalar(texts) else pa.nulls(len(texts), type_)


@lru_cache(maxsize=1024)
def _refused(pattern: str) -> str | None:
    """Return why RE2 refuses `pattern`, None if it does not."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


#: Constructs that RE2 does not support, by their beginning, and their names.
_LEFT_OUT = (
    (r"\\[1-9k]", "a back reference"),
    (r"\(\?<?[=!]", "look-around"),
    (r"\(\?>|[+*?}]\+", "an atomic group or possessive quantifier"),
)


def _malformed(name: str, pattern: str, reason: str) -> PenstockError:
    for mark, what in _LEFT_OUT:
        if re.search(mark, reason):
            message = f"{name}: the regular expression {pattern!r} has {what}"
            hint = "patterns are evaluated in linear time, which excludes these; see docs/functions.md, Patterns"
            return PenstockError("P0203", message, hint=hint)
    return PenstockError("P0203", f"{name}: malformed regular expression: {reason}")


def _literal(arguments: Sequence[Expression], number: int) -> object:
    """Return the value of an argument that is a literal, else None."""
    argument = arguments[number] if number < len(arguments) else None
    return argument.value if isinstance(argument, Literal) else None


def _checked(rule: Rule) -> Rule:
    """Return `rule` for a function whose second argument is a regular expression, which must be well-formed."""

    def run(name: str, arguments: Sequence[Expression]) -> Typed:
        pattern = _literal(arguments, 1)
        if isinstance(pattern, str):
            if reason := _refused(pattern):
                raise _malformed(name, pattern, reason)
            _check_groups(name, pattern, _literal(arguments, 2))
        return rule(name, arguments)

    return run


def _check_groups(name: str, pattern: str, third: object) -> None:
    """Check the groups of a literal pattern.

    Raises:
        PenstockError: P0203, a literal group or replacement names a group that `pattern` does not have.
    """
    try:
        if name == "REGEXP_REPLACE" and isinstance(third, str):
            _replace(pa.array([""]), pattern, third)
        elif name == "REGEXP_EXTRACT" and isinstance(third, int):
            _extract(pa.array([""]), pattern, third)
    except pa.ArrowInvalid:
        message = f"{name}: the regular expression {pattern!r} has no such group as {third!r} names"
        raise PenstockError("P0203", message, hint="groups count from 1 to 9; 0 is the whole match") from None


def _rlike(texts: Datum, pattern: str) -> Datum:
    return pc.match_substring_regex(texts, pattern)


def _rewrite(replacement: str) -> str:
    """Translate a replacement from Java's notation ($1 is a group, a backslash escapes the next character) to RE2's."""
    pieces = re.findall(r"\\(.)|\$(\d)|([^\\$]+|.)", replacement, re.DOTALL)
    return "".join(
        "\\" + group if group else (escaped or plain).replace("\\", "\\\\") for escaped, group, plain in pieces
    )


def _replace(texts: Datum, pattern: str, replacement: str) -> Datum:
    written = _rewrite(replacement)
    # Each match, at most one per character, inserts the replacement; all matches of a group together insert the text
    # once.
    grown = len(written.encode()) + len(re.findall(r"\\\d", written))
    if held_bytes(texts) * (1 + grown) + grown > LONGEST_BYTES:
        texts = _short(texts, pattern, len(written.encode()), len(re.findall(r"\\\d", written)))
    return pc.replace_substring_regex(texts, pattern, written)


def _short(texts: Datum, pattern: str, brought: int, groups: int) -> Datum:
    """Return `texts`, NULL where the result may be too long."""
    found = pc.multiply(pc.count_substring_regex(texts, pattern).cast(pa.int64()), brought)
    length = pc.add(found, pc.multiply(pc.binary_length(texts).cast(pa.int64()), 1 + groups))
    return pc.if_else(pc.less_equal(length, LONGEST_BYTES), texts, pa.scalar(None, STRING))


def _extract(texts: Datum, pattern: str, group: int = 1) -> Datum:
    """Return the group of the first match in each text, '' where there is none."""
    if not 0 <= group <= 9:
        raise pa.ArrowInvalid(f"no group {group}")
    if reason := _refused(pattern):
        raise pa.ArrowInvalid(reason)
    # A quotation may be left open (\Qa.b), and would extend over the following text.
    closed = pattern + "\\E" if _refused(f"(?:{pattern})") else pattern
    whole = rf"\A(?s:.*?)({closed})(?s:.*)\z" if group == 0 else rf"\A(?s:.*?)(?:{closed})(?s:.*)\z"
    found = pc.replace_substring_regex(texts, whole, f"\\{max(1, group)}")
    return pc.if_else(pc.match_substring_regex(texts, pattern), found, "")


def _count(texts: Datum, pattern: str) -> Datum:
    return pc.count_substring_regex(texts, pattern).cast(INT)


def _row(name: str, signature: str, result: Any, kernel: Kernel, help_: str, **more: Any) -> Function:
    return Function(name, signature, _checked(result), kernel, help_, checks=True, **more)


FUNCTIONS = (
    Function(
        "LIKE", "string, pattern [, escape]", takes(BOOLEAN, STRING), _like(False),
        "% is any text, _ any character; the escape character (a backslash) makes the next one literal",
        operator="string LIKE pattern [ESCAPE letter]",
    ),
    Function(
        "ILIKE", "string, pattern [, escape]", takes(BOOLEAN, STRING), _like(True), "LIKE regardless of case",
        operator="string ILIKE pattern [ESCAPE letter]",
    ),
    _row(
        "RLIKE", "string, regex", takes(BOOLEAN, STRING), _by_pattern(_rlike),
        "whether a regular expression matches somewhere",
        aliases=("REGEXP_LIKE", "REGEXP"),
    ),
    _row(
        "REGEXP_REPLACE", "string, regex, replacement", takes(STRING, STRING), _by_pattern(_replace),
        "every match replaced; $1 is the first group",
    ),
    _row(
        "REGEXP_EXTRACT", "string, regex [, group]", takes(STRING, STRING, STRING, INT), _by_pattern(_extract),
        "a group (the first) of the first match, '' without one",
    ),
    _row("REGEXP_COUNT", "string, regex", takes(INT, STRING), _by_pattern(_count), "number of matches"),
)  # fmt: skip
