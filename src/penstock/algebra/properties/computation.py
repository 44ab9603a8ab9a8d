"""How a column of an operator follows, row by row, from those of its inputs (`algebra/analysis/column_origins.py`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Computation:
    """How a column of a node follows from its inputs. columns: (input, column); copied: it equals that one column."""

    columns: tuple[tuple[int, int], ...]
    copied: bool
