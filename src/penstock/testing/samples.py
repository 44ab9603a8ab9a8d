"""User-defined functions and aggregates as users write them: for tests, for random queries, and as examples."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Statements that declare everything in this module.
STATEMENTS = (
    "CREATE FUNCTION twice (BIGINT) RETURNS BIGINT AS 'penstock.testing.samples:twice'",
    "CREATE FUNCTION shout (STRING) RETURNS STRING AS 'penstock.testing.samples:shout'",
    "CREATE AGGREGATE total (BIGINT) RETURNS BIGINT AS 'penstock.testing.samples:Total'",
    "CREATE AGGREGATE spread (DOUBLE) RETURNS DOUBLE AS 'penstock.testing.samples:Spread'",
    "CREATE AGGREGATE joined (STRING) RETURNS STRING AS 'penstock.testing.samples:Joined'",
)


def twice(numbers: pa.Array) -> pa.Array:
    """Double the numbers; overflow wraps, as integers of the language do."""
    return pc.add(numbers, numbers)


def shout(texts: pa.Array) -> list[str | None]:
    """Return a plain list as the result."""
    return [None if text is None else text.upper() + "!" for text in texts.to_pylist()]


def draw(numbers: pa.Array, rows: int) -> list[float]:
    """Return a random number for each row: a VOLATILE function."""
    return [random.random() for _ in range(rows)]


def checked(numbers: pa.Array) -> pa.Array:
    """Return the numbers; fail on a negative one."""
    for number in numbers.to_pylist():
        if number is not None and number < 0:
            raise ValueError(f"{number} is negative")
    return numbers


def short(numbers: pa.Array) -> pa.Array:
    """Return too few values."""
    return numbers.slice(1)


def words(numbers: pa.Array) -> list[str]:
    """Return text, whatever type was declared."""
    return ["many"] * len(numbers)


class Total:
    """A sum with `expire`: NULL over no value. The state is [number of values, their sum]."""

    def init(self) -> list[int]:
        return [0, 0]

    def update(self, state: list[int], numbers: pa.Array) -> list[int]:
        state[0] += len(numbers) - numbers.null_count
        state[1] += sum(n for n in numbers.to_pylist() if n is not None)
        return state

    def expire(self, state: list[int], numbers: pa.Array) -> list[int]:
        state[0] -= len(numbers) - numbers.null_count
        state[1] -= sum(n for n in numbers.to_pylist() if n is not None)
        return state

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return [state[0] + other[0], state[1] + other[1]]

    def final(self, state: list[int]) -> int | None:
        return (state[1] + 2**63) % 2**64 - 2**63 if state[0] else None


class Spread:
    """The largest minus the smallest number: states can be merged, values cannot be removed."""

    def init(self) -> Any:
        return None

    def update(self, state: Any, numbers: pa.Array) -> Any:
        numbers = pc.filter(numbers, pc.is_finite(numbers))
        if len(numbers) == 0:
            return state
        return self.merge(state, (pc.min(numbers).as_py(), pc.max(numbers).as_py()))

    def merge(self, state: Any, other: Any) -> Any:
        if state is None or other is None:
            return state or other
        return min(state[0], other[0]), max(state[1], other[1])

    def final(self, state: Any) -> float | None:
        return None if state is None else state[1] - state[0]


class Joined:
    """The values in order, concatenated: without `merge` and `expire`, so it is recomputed."""

    def init(self) -> list[str]:
        return []

    def update(self, state: list[str], texts: pa.Array) -> list[str]:
        return state + [text or "-" for text in texts.to_pylist()]

    def final(self, state: list[str]) -> str:
        return "".join(sorted(state))
