"""Elements as Python rows, for comparison."""

from __future__ import annotations

from typing import Any

from penstock.physical.elements import Elements


def element_rows(elements: Elements) -> list[tuple[Any, ...]]:
    """Return rows (ts, exp, sign, column values...) as Python values."""
    values = [c.to_pylist() for c in elements.columns]
    return list(zip(elements.ts.tolist(), elements.exp.tolist(), elements.signs.tolist(), *values, strict=True))
