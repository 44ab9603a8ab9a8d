"""The order of rows by keys, for aggregates that have ORDER BY inside of their parentheses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.server.pgwire.values.decimals import compared
from penstock.server.pgwire.values.intervals import compared_intervals

#: Types whose values are texts in an order of their own.
_COMPARED: dict[str, Callable[[str, str], int]] = {"n": compared, "i": compared_intervals}


def row_order(keys: str) -> Callable[[Sequence[Any], Sequence[Any]], int]:
    """Return what compares two rows of keys: -1, 0 or 1.

    Args:
        keys: three letters for each key, `-` for no: `d` descending, `f` NULL first, `n` a `numeric` or `i` an
            `interval`.
    """
    forms = [keys[place : place + 3] for place in range(0, len(keys), 3)]

    def order(left: Sequence[Any], right: Sequence[Any]) -> int:
        for form, a, b in zip(forms, left, right, strict=True):
            if found := _order(form, a, b):
                return found
        return 0

    return order


def _order(form: str, left: Any, right: Any) -> int:
    kind = form[2]
    if left is None or right is None:
        return ((left is not None) - (right is not None)) * (1 if form[1] == "f" else -1)
    if kind in _COMPARED:
        found = _COMPARED[kind](str(left), str(right))
    else:
        # NaN is a text, behind all numbers.
        a, b = (isinstance(left, str), left), (isinstance(right, str), right)
        found = (a > b) - (a < b)
    return -found if form[0] == "d" else found
