"""Conditions of random joins that compare the sides by ranges."""

from __future__ import annotations

from penstock.testing.choices import Choices
from penstock.testing.random.cells import COMPARED, NUMERIC

Named = tuple[str, str]
#: Constants by type; the last of INT overflows.
_WIDTHS = {
    "INT": ("1", "0", "2", "2147483647"),
    "BIGINT": ("1", "2"),
    "DOUBLE": ("0.5", "1"),
    "DECIMAL(6,2)": ("1.25",),
}


def range_condition(choices: Choices, left: list[Named], right: list[Named]) -> str | None:
    """Return a range condition over (name, type) of both sides, sometimes with an equality; None where no types
    agree.
    """
    pairs = [(a, b) for a in left for b in right if a[1] == b[1] and a[1] in COMPARED]
    if not pairs:
        return None
    parts = [_range(choices, *choices.pick(pairs), right)]
    if choices.chance(30):
        parts.append(f"{' = '.join(name for name, _ in choices.pick(pairs))}")
    if choices.chance(20):
        parts.append(_range(choices, *choices.pick(pairs), right))
    return " AND ".join(parts)


def _range(choices: Choices, one: Named, other: Named, right: list[Named]) -> str:
    if choices.chance(50):
        one, other = other, one
    (x, kind), (y, _) = one, other
    if kind not in NUMERIC or choices.chance(25):
        return f"{x} {choices.pick(('<', '>=', '>', '<='))} {y}"
    less, more = (choices.pick(_WIDTHS[kind]) for _ in range(2))
    shape = choices.pick(("between", "both", "columns", "sum", "size", "difference"))
    if shape == "between":
        return f"{x} BETWEEN {y} - {less} AND {y} + {more}"
    if shape == "both":
        return f"{x} {choices.pick(('<', '<='))} {y} + {more} AND {y} {choices.pick(('<', '<='))} {x} + {less}"
    if shape == "size":
        return f"ABS({x} - {y}) {choices.pick(('<', '<='))} {more}"
    if shape == "difference":
        return f"{x} - {y} {choices.pick(('<', '>='))} {choices.pick(('', '-'))}{less}"
    if shape == "sum":
        return f"{x} + {less} {choices.pick(('<', '>='))} {y}"
    alike = [name for name, type_ in right if type_ == kind]
    return f"{x} BETWEEN {y} AND {choices.pick(alike)}"
