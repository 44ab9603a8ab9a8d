"""The source of a generator's choices: Hypothesis, which shrinks, or a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """The source of a generator's choices."""

    def integer(self, low: int, high: int) -> int:
        """Return a number from low to high, both inclusive; the simplest is `low`."""

    def pick(self, options: Sequence[T]) -> T:
        """Return one of `options`; the simplest is the first."""

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of a hundred cases; the simplest is False."""


class _Seeded:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent


def seeded_choices(seed: int) -> Choices:
    """Return choices that are determined by `seed`."""
    return _Seeded(seed)
