"""Amounts as people write them: sizes, budgets, cores, shares. Others raise ValueError with what is accepted."""

from __future__ import annotations

import re
from collections.abc import Callable

_SIZES = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}
#: The largest value of a BIGINT, which also limits counts, sizes in bytes and numbers that control relations keep.
LARGEST_BIGINT = 2**63 - 1

_TUPLES = re.compile(r"\s*([0-9]+)\s*tuples?\s*", re.IGNORECASE)


def size_in_bytes(text: str) -> int:
    """Return the bytes of a size such as `64MB`."""
    folded = text.strip().lower()
    digits = folded.rstrip("bkmg")
    try:
        size = int(float(digits) * _SIZES[folded[len(digits) :].strip()])
    except (ValueError, KeyError, OverflowError):
        raise ValueError("a size such as 64MB") from None
    if size < 1:
        raise ValueError("a size of at least one byte")
    if size > LARGEST_BIGINT:
        raise ValueError("a size below 2^63 bytes")
    return size


def budget_text(text: str) -> str:
    """Return a budget in the form in which it is kept: `n TUPLES`, or a number of bytes."""
    match = _TUPLES.fullmatch(text)
    try:
        number = int(match[1]) if match else size_in_bytes(text)
    except ValueError:
        number = 0
    if not 1 <= number < 2**62:
        raise ValueError("a number of tuples such as '10000 TUPLES', or a size such as '64 MB', of at least one")
    return f"{number} TUPLES" if match else str(number)


def cores_text(text: str) -> str:
    """Return a number of cores in the form in which it is kept."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1e6:
        raise ValueError("a number of cores such as '0.5', from 0.000001 to 1,000,000")
    return f"{round(value, 6):f}".rstrip("0").rstrip(".")


def share_of(text: str) -> float:
    """Return a share such as `5%` or `0.05`."""
    folded = text.strip()
    try:
        value = float(folded.removesuffix("%")) / (100 if folded.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError("a share such as '5%', from 0 to 100 %")
    return value


def none_or(read: Callable[[str], str]) -> Callable[[str], str]:
    """Return what reads `none`, or what `read` does."""
    return lambda text: "none" if text.strip().lower() == "none" else read(text)
