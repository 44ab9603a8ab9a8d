"""An operator that stands for one that could not be made.

A worker grafts the operators of all queries at once, in the first batch after a change. What one of them raises there
must end its own queries alone, as what it raises in a round does. So it is raised when the operator is to work.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.physical.elements import Elements
from penstock.physical.operators.base.contract import Moment, Operator


class FailedOperator(Operator):
    """Raises `error` in place of its work."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def process(self, port: int, elements: Elements) -> list[Elements]:
        raise self.error

    def portion(self, moment: Moment, rows: int) -> int:
        raise self.error

    def advance(self, moment: Moment) -> Iterable[Elements]:
        raise self.error
