"""Functions of strings. Positions count code points from 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import BINARY, BOOLEAN, INT, STRING, implicit
from penstock.expressions.library.registry import Function, takes
from penstock.expressions.nodes import Expression
from penstock.expressions.values.datum import (
    LONGEST_BYTES,
    Arguments,
    Datum,
    Kernel,
    held_bytes,
    is_scalar,
    over_distinct,
)

Typed = tuple[tuple[Expression, ...], pa.DataType]

#: Limit of characters of a result of REPEAT, SPACE or padding; other texts are limited by `LONGEST_BYTES`, so that no
#: row exhausts the machine. A longer value is NULL.
_LONGEST = 2**20

#: Pairs of characters that LEVENSHTEIN may compare, about a second.
_PAIRS = 2**28


def _plain(kernel: Callable[..., Datum], *more: object) -> Kernel:
    """Return a kernel of Arrow's own applied to the first argument."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        return kernel(arguments[0], *more)

    return run


def _distinct(function: Callable[..., object]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        return over_distinct(function, arguments, type_)

    return run


#: Characters that have several capitals: ß is SS.
_GROWING = "".join(c for c in map(chr, range(0x80, 0xFB18)) if len(c.upper()) > 1)


def _cased(kernel: Callable[..., Datum], python: Callable[[str], str], special: str) -> Kernel:
    """Return a kernel for upper or lower case. Arrow's kernel maps single characters; texts with a `special` one use
    Python's.
    """

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (text,) = arguments
        plain = kernel(text)
        if is_scalar(text):
            return plain if text.as_py() is None else pa.scalar(python(text.as_py()), STRING)
        odd = pc.fill_null(pc.match_substring_regex(text, f"[{special}]"), False)
        if not pc.any(odd).as_py():
            return plain
        return pc.replace_with_mask(plain, odd, over_distinct(python, [text.filter(odd)], STRING))

    return run


def _value(datum: Datum) -> Any:
    """Return the value of a literal, None for NULL or a column."""
    return datum.as_py() if is_scalar(datum) else None


def _length(arguments: Arguments, type_: pa.DataType) -> Datum:
    (value,) = arguments
    return (pc.binary_length if value.type == BINARY else pc.utf8_length)(value).cast(INT)


def _length_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    (value,) = arguments
    return (value if value.type == BINARY else implicit(value, STRING, name),), INT


def _concat(arguments: Arguments, type_: pa.DataType) -> Datum:
    empty = pa.scalar("", STRING)
    if len(arguments) == 1:
        return arguments[0]
    if sum(map(held_bytes, arguments)) > LONGEST_BYTES:
        arguments = (_short(arguments), *arguments[1:])
    return pc.binary_join_element_wise(*arguments, empty, null_handling="emit_null")


def _short(arguments: Arguments) -> Datum:
    """Return the first argument, NULL where all arguments together are too long."""
    total: Datum = pa.scalar(0, pa.int64())
    for argument in arguments:
        total = pc.add(total, pc.binary_length(argument).cast(pa.int64()))
    return pc.if_else(pc.less_equal(total, LONGEST_BYTES), arguments[0], pa.scalar(None, STRING))


def _concat_ws(arguments: Arguments, type_: pa.DataType) -> Datum:
    separator, *texts = arguments
    between = _value(separator)
    if between is None or not texts or sum(map(held_bytes, texts)) + len(between) * len(texts) > LONGEST_BYTES:
        return over_distinct(_join, arguments, type_, null_in=True)
    # Arrow's own skipping of NULLs loses the rows where all are NULL: prepend the separator to each text instead.
    empty = pa.scalar("", STRING)
    led = [pc.coalesce(pc.binary_join_element_wise(separator, text, empty), empty) for text in texts]
    return pc.utf8_slice_codeunits(_concat((*led,), type_), len(between))


def _join(separator: str | None, *texts: str | None) -> str | None:
    if separator is None:
        return None
    parts = [text for text in texts if text is not None]
    if sum(map(len, parts)) + len(separator) * len(parts) > LONGEST_BYTES:
        raise ValueError("too long")
    return separator.join(parts)


def _substring(text: str, start: int, length: int | None = None) -> str:
    first = start - 1 if start > 0 else start + len(text) if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(first, 0) : max(last, 0)]


def _substring_kernel(arguments: Arguments, type_: pa.DataType) -> Datum:
    text, start = arguments[0], _value(arguments[1])
    length = _value(arguments[2]) if len(arguments) > 2 else 2**31 - 1
    if is_scalar(text) or start is None or length is None or start < 0:
        return over_distinct(_substring, arguments, type_)
    first = max(start - 1, 0)
    return pc.utf8_slice_codeunits(text, first, first + max(length, 0))


def _left(text: str, length: int) -> str:
    return text[: max(length, 0)]


def _right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def _trim(kernel: Callable[..., Datum], python: Callable[[str, str], str]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        letters = " " if len(arguments) == 1 else _value(arguments[1])
        if letters and not is_scalar(arguments[0]):
            return kernel(arguments[0], letters)
        return over_distinct(lambda text, chars: python(text, chars) if chars else text, arguments, type_)

    return run


def _replace(arguments: Arguments, type_: pa.DataType) -> Datum:
    old, new = _value(arguments[1]), "" if len(arguments) == 2 else _value(arguments[2])
    if old == "":
        return arguments[0]
    if old is not None and new is not None and not is_scalar(arguments[0]):
        times = held_bytes(arguments[0]) // len(old.encode())
        if held_bytes(arguments[0]) + times * len(new.encode()) <= LONGEST_BYTES:
            return pc.replace_substring(arguments[0], old, new)
    return over_distinct(_replaced, arguments, type_)


def _replaced(text: str, old: str, new: str = "") -> str:
    if not old:
        return text
    if len(new) > len(old) and len(text) + text.count(old) * (len(new) - len(old)) > LONGEST_BYTES:
        raise ValueError("too long")
    return text.replace(old, new)


def _test(kernel: Callable[..., Datum], python: Callable[[str, str], bool]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        part = _value(arguments[1])
        if part is not None and not is_scalar(arguments[0]):
            return kernel(arguments[0], part)
        return over_distinct(python, arguments, type_)

    return run


def _split_part(text: str, separator: str, part: int) -> str:
    if part == 0:
        raise ValueError("parts count from 1")
    parts = text.split(separator) if separator else [text]
    index = part - 1 if part > 0 else part + len(parts)
    return parts[index] if 0 <= index < len(parts) else ""


def _substring_index(text: str, separator: str, count: int) -> str:
    if not separator or count == 0:
        return ""
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[count:])


def _pad(left: bool) -> Callable[..., str]:
    def pad(text: str, length: int, fill: str = " ") -> str:
        missing = length - len(text)
        if missing > 0 and fill and length > _LONGEST:
            raise ValueError("too long")
        if missing <= 0 or not fill:
            return text[: max(length, 0)]
        filling = (fill * (missing // len(fill) + 1))[:missing]
        return filling + text if left else text + filling

    return pad


def _pad_kernel(left: bool) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        length, fill = _value(arguments[1]), " " if len(arguments) < 3 else _value(arguments[2])
        if is_scalar(arguments[0]) or length is None or fill is None or len(fill) != 1 or not 0 <= length <= _LONGEST:
            return over_distinct(_pad(left), arguments, type_)
        padded = (pc.utf8_lpad if left else pc.utf8_rpad)(arguments[0], length, fill)
        return pc.utf8_slice_codeunits(padded, 0, length)

    return run


def _repeat(text: str, times: int) -> str:
    if len(text) * times > _LONGEST:
        raise ValueError("too long")
    return text * max(times, 0)


def _locate(part: str, text: str, start: int = 1) -> int:
    return text.find(part, start - 1) + 1 if start > 0 else 0


def _initcap(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _translate(text: str, letters: str, others: str) -> str:
    table: dict[int, str | None] = {}
    for position, letter in enumerate(letters):
        table.setdefault(ord(letter), others[position] if position < len(others) else None)
    return text.translate(table)


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _char(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _levenshtein(left: str, right: str) -> int:
    if len(left) * len(right) > _PAIRS:
        raise ValueError("too long")
    others = np.frombuffer(right.encode("utf-32-le"), np.uint32)
    places = np.arange(len(right) + 1)
    row = places.copy()
    for number, letter in enumerate(left, 1):
        # First substitutions and deletions, then insertions, each of which costs 1 more than the position before it.
        best = np.minimum(row[1:] + 1, row[:-1] + (others != ord(letter)))
        row = np.minimum.accumulate(np.concatenate(([number], best)) - places) + places
    return int(row[-1])


def _concat_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    if not arguments:
        raise PenstockError("P0204", "CONCAT takes at least 1 argument, not 0")
    return takes(STRING, STRING)(name, arguments)


FUNCTIONS = (
    Function(
        "UPPER", "string", takes(STRING, STRING), _cased(pc.utf8_upper, str.upper, _GROWING), "in capitals", ("UCASE",)
    ),
    Function(
        "LOWER", "string", takes(STRING, STRING), _cased(pc.utf8_lower, str.lower, "İΣ"), "in lower case",
        ("LCASE",),
    ),
    Function(
        "LENGTH", "string", _length_rule, _length, "number of code points, or of bytes of a BINARY",
        ("CHAR_LENGTH", "CHARACTER_LENGTH", "LEN"),
    ),
    Function("OCTET_LENGTH", "string", takes(INT, BINARY), _length, "number of bytes in UTF-8"),
    Function("CONCAT", "string, ...", _concat_rule, _concat, "`a || b`: joined; NULL if one is NULL"),
    Function(
        "CONCAT_WS", "separator, string, ...", takes(STRING, STRING), _concat_ws, "joined, leaving out NULLs"
    ),
    Function(
        "SUBSTRING", "string, start [, length]", takes(STRING, STRING, INT), _substring_kernel,
        "letters from `start` on (from the end when negative)", ("SUBSTR",),
    ),
    Function("LEFT", "string, length", takes(STRING, STRING, INT), _distinct(_left), "the first letters"),
    Function("RIGHT", "string, length", takes(STRING, STRING, INT), _distinct(_right), "the last letters"),
    Function(
        "TRIM", "string [, letters]", takes(STRING, STRING), _trim(pc.utf8_trim, str.strip),
        "without blanks (or letters) at both ends", ("BTRIM",),
    ),
    Function(
        "LTRIM", "string [, letters]", takes(STRING, STRING), _trim(pc.utf8_ltrim, str.lstrip), "the same at the start"
    ),
    Function(
        "RTRIM", "string [, letters]", takes(STRING, STRING), _trim(pc.utf8_rtrim, str.rstrip), "the same at the end"
    ),
    Function("REPLACE", "string, old [, new]", takes(STRING, STRING), _replace, "every `old` replaced"),
    Function("TRANSLATE", "string, letters, others", takes(STRING, STRING), _distinct(_translate), "letter for letter"),
    Function(
        "STARTSWITH", "string, part", takes(BOOLEAN, STRING), _test(pc.starts_with, str.startswith),
        "whether it starts so",
        ("STARTS_WITH",),
    ),
    Function(
        "ENDSWITH", "string, part", takes(BOOLEAN, STRING), _test(pc.ends_with, str.endswith), "whether it ends so",
        ("ENDS_WITH",),
    ),
    Function(
        "CONTAINS", "string, part", takes(BOOLEAN, STRING), _test(pc.match_substring, str.__contains__),
        "whether the part occurs",
    ),
    Function(
        "SPLIT_PART", "string, separator, part", takes(STRING, STRING, STRING, INT), _distinct(_split_part),
        "a part, counted from 1 (from the end when negative), '' beyond",
    ),
    Function(
        "SUBSTRING_INDEX", "string, separator, count", takes(STRING, STRING, STRING, INT), _distinct(_substring_index),
        "the first (or last, when negative) parts",
    ),
    Function(
        "LPAD", "string, length [, fill]", takes(STRING, STRING, INT, STRING), _pad_kernel(True),
        "filled on the left, or cut, to a length",
    ),
    Function(
        "RPAD", "string, length [, fill]", takes(STRING, STRING, INT, STRING), _pad_kernel(False),
        "filled on the right, or cut, to a length",
    ),
    Function("REPEAT", "string, times", takes(STRING, STRING, INT), _distinct(_repeat), "several times over"),
    Function("SPACE", "times", takes(STRING, INT), _distinct(lambda n: _repeat(" ", n)), "that many blanks"),
    Function("REVERSE", "string", takes(STRING, STRING), _plain(pc.utf8_reverse), "from back to front"),
    Function(
        "INSTR", "string, part", takes(INT, STRING), _distinct(lambda text, part: _locate(part, text)),
        "where the part begins, 0 if nowhere",
    ),
    Function(
        "LOCATE", "part, string [, start]", takes(INT, STRING, STRING, INT), _distinct(_locate),
        "where the part begins, 0 if nowhere", ("POSITION", "CHARINDEX"),
    ),
    Function("INITCAP", "string", takes(STRING, STRING), _distinct(_initcap), "words with a capital first letter"),
    Function("ASCII", "string", takes(INT, STRING), _distinct(_ascii), "code point of the first letter"),
    Function("CHR", "code", takes(STRING, INT), _distinct(_char), "letter of a code", ("CHAR",)),
    Function("LEVENSHTEIN", "left, right", takes(INT, STRING), _distinct(_levenshtein), "edit distance"),
)  # fmt: skip
