"""LIKE and regular expressions.

Arrow's engine (RE2) carries out what it understands; look-around and back references go over the distinct values with
Python's. A pattern that neither understands is an error when the query is bound, if it is a literal, else NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import BOOLEAN, INT, STRING
from penstock.expressions.datum import Arguments, Datum, Kernel, is_scalar, over_distinct
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.registry import Function, Rule, takes
from penstock.expressions.text_equality import equals_text

Typed = tuple[tuple[Expression, ...], pa.DataType]


@lru_cache(maxsize=1024)
def like_parts(pattern: str, escape: str) -> tuple[tuple[str, ...], str]:
    """(the pattern cut into parts, the kind of each: t for a text, % or _ for a wildcard)."""
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


def _like(fold: bool) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        escape = _text(arguments[2]) if len(arguments) > 2 else "\\"
        value, pattern = arguments[:2]
        if is_scalar(pattern) and pattern.is_valid and escape is not None:
            return _like_literal(value, pattern.as_py(), escape, fold)

        def match(text: str, against: str, mark: str = "\\") -> bool:
            found = _python(_like_regex(against, mark), re.IGNORECASE if fold else 0)
            return found.fullmatch(text) is not None

        return over_distinct(match, arguments, type_)

    return run


def _text(datum: Datum) -> str | None:
    return datum.as_py() if is_scalar(datum) else None


@lru_cache(maxsize=1024)
def _python(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The compiled pattern; ValueError when it is malformed."""
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise ValueError(str(error)) from None


@lru_cache(maxsize=1024)
def _arrow_takes(pattern: str) -> bool:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


def _checked(rule: Rule) -> Rule:
    """`rule` for a function whose second argument is a regular expression, which must be well-formed."""

    def run(name: str, arguments: Sequence[Expression]) -> Typed:
        pattern = arguments[1]
        if isinstance(pattern, Literal) and isinstance(pattern.value, str) and not _arrow_takes(pattern.value):
            try:
                _python(pattern.value)
            except ValueError as error:
                raise PenstockError("P0203", f"{name}: malformed regular expression: {error}") from None
        return rule(name, arguments)

    return run


def _regex_literal(datum: Datum) -> str | None:
    """The pattern, when it is a literal that Arrow's engine takes."""
    text = _text(datum)
    return text if text is not None and _arrow_takes(text) else None


def _rlike(arguments: Arguments, type_: pa.DataType) -> Datum:
    pattern = _regex_literal(arguments[1])
    if pattern is not None:
        return pc.match_substring_regex(arguments[0], pattern)
    return over_distinct(lambda text, regex: _python(regex).search(text) is not None, arguments, type_)


def _java_replacement(text: str) -> Callable[[re.Match[str]], str]:
    """A replacement in Java's notation: $1 is a group, a backslash takes the next letter literally."""
    pieces = re.findall(r"\\(.)|\$(\d)|([^\\$]+|.)", text, re.DOTALL)

    def build(match: re.Match[str]) -> str:
        return "".join(escaped or ((match[int(group)] or "") if group else plain) for escaped, group, plain in pieces)

    return build


def _replace(arguments: Arguments, type_: pa.DataType) -> Datum:
    pattern, new = _regex_literal(arguments[1]), _text(arguments[2])
    if pattern is not None and new is not None and not set(new) & set("\\$"):
        return pc.replace_substring_regex(arguments[0], pattern, new)

    def replace(text: str, regex: str, replacement: str) -> str:
        return _python(regex).sub(_java_replacement(replacement), text)

    return over_distinct(replace, arguments, type_)


def _extract(arguments: Arguments, type_: pa.DataType) -> Datum:
    def extract(text: str, regex: str, group: int = 1) -> str | None:
        match = _python(regex).search(text)
        return "" if match is None else match[group] or ""

    return over_distinct(extract, arguments, type_)


def _count(arguments: Arguments, type_: pa.DataType) -> Datum:
    pattern = _regex_literal(arguments[1])
    if pattern is not None:
        return pc.count_substring_regex(arguments[0], pattern).cast(INT)
    return over_distinct(lambda text, regex: len(_python(regex).findall(text)), arguments, type_)


def _row(name: str, signature: str, result: Any, kernel: Kernel, help_: str, **more: Any) -> Function:
    return Function(name, signature, _checked(result), kernel, help_, **more)


FUNCTIONS = (
    Function(
        "LIKE", "string, pattern [, escape]", takes(BOOLEAN, STRING), _like(False),
        "% is any text, _ any letter, the escape letter (a backslash) takes the next one as it is",
        operator="string LIKE pattern [ESCAPE letter]",
    ),
    Function(
        "ILIKE", "string, pattern [, escape]", takes(BOOLEAN, STRING), _like(True), "LIKE regardless of case",
        operator="string ILIKE pattern [ESCAPE letter]",
    ),
    _row(
        "RLIKE", "string, regex", takes(BOOLEAN, STRING), _rlike, "whether a regular expression matches somewhere",
        aliases=("REGEXP_LIKE", "REGEXP"),
    ),
    _row(
        "REGEXP_REPLACE", "string, regex, replacement", takes(STRING, STRING), _replace,
        "every match replaced; $1 is the first group",
    ),
    _row(
        "REGEXP_EXTRACT", "string, regex [, group]", takes(STRING, STRING, STRING, INT), _extract,
        "a group (the first) of the first match, '' without one",
    ),
    _row("REGEXP_COUNT", "string, regex", takes(INT, STRING), _count, "number of matches"),
)  # fmt: skip
