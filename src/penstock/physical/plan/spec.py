"""What every spec of a physical operator says of it; the specs themselves are in `plan.py` and the files beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Spec:
    """What one operator does. Specs of operators with expirations in their state have a field `listed`: whether it lies
    in a list that is looked through (`strategies.py`) instead of the structure that fits the update pattern."""

    #: Whether the operator reads the state of its inputs where it lies, and not what they tell; they share its stage.
    reads: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        """Whether the operator emits results of an instant only when all elements of it have come. False where what it
        emits for some of them holds whatever else comes at the instant: it then passes on elements at the frontier."""
        return True

    @property
    def title(self) -> str:
        return type(self).__name__.removesuffix("Spec")

    def describe(self) -> dict[str, str]:
        """Parameters for explain."""
        return {}


@dataclass(frozen=True)
class PassingSpec(Spec):
    """An operator that looks at every element, or every pair of elements, by itself and emits results as they come."""

    @property
    def waits(self) -> bool:
        return False
