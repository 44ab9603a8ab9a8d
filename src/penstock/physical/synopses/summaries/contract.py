"""The contract of a method of summarising: counts of values in numbered slots [pt 3.2].

A slot holds the counts of one zone of time, or the sum of those of a granularity. Values are 64-bit hashes. A method is
one file with three parts:

- a named tuple of arrays, its *cells*, in which slots are kept;
- the loops of this module for it, by `for_cells`, so that the loop over zones
  (`zone_kernel`) is compiled for each method;
- a class of `SlotCounts`, which owns the arrays, makes room and writes slots down.

The paper's interface, vectorised, is that of `SlotCounts`. The counts of a slot are a
function of the bag of values counted there, whatever the order and the cuts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.kernels.fingerprints import UInt64s

#: A named tuple of arrays.
Cells = tuple[npt.NDArray[Any], ...]
Function = TypeVar("Function", bound=Callable[..., object])


def locate(cells: Cells, value: np.uint64, found: Int64s) -> None:
    """Write into `found` where the cells of a value are. Done once for a value, for all slots."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def count_one(cells: Cells, slot: int, found: Int64s) -> None:
    """Count the value once more in a slot."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def estimated(cells: Cells, slot: int, found: Int64s) -> int:
    """Return how often the value is estimated to have been counted in a slot: an integer of at least 0."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def survey(cells: Cells, slots: int, found: Int64s) -> None:
    """Prepare the estimates of the value in the first `slots` slots, where that is cheaper for all of them at once."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def surveyed(cells: Cells, slot: int, found: Int64s) -> int:
    """Return what `estimated` does, after a `survey`."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def add_slot(cells: Cells, into: int, other: int, factor: int) -> None:
    """Add the counts of slot `other`, times `factor` (1 or -1), to those of `into`."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def pass_on(cells: Cells, slot: int, left: int, entered: int, into: int) -> None:
    """Subtract the counts of a slot from those of `left`, and add them to those of `entered` and of `into`, each -1 for
    none; where `into` is one, clear the slot. The first two are sums, whose squares nothing reads."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def clear_slot(cells: Cells, slot: int) -> None:
    """Set all counts of a slot to 0."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def errs(cells: Cells, slot: int, limit: int) -> bool:
    """Return whether the median over rows of the sum of squared counts of a slot is above `limit`; false where
    estimates do not err."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def spare(cells: Cells) -> int:
    """Return how many distinct values can be added to slots before room must be made."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def distinct(cells: Cells, slot: int) -> int:
    """Return how many cells of `spare` adding a slot to another one takes at most."""
    raise TypeError(f"{cells!r} are not the cells of a method of summarising")


def for_cells(loop_of_contract: Callable[..., object], of: type) -> Callable[[Function], Function]:
    """Return a decorator: compiled loops that call `loop_of_contract` with cells of the class `of` run the function."""

    def decorate(function: Function) -> Function:
        # Not strict: numba would compare the names of parameters.
        @overload(loop_of_contract, strict=False)
        def chosen(cells: Any, *others: Any) -> Function | None:
            return function if getattr(cells, "instance_class", None) is of else None

        return function

    return decorate


class SlotCounts(ABC):
    """The counts of a method of summarising, in slots numbered from 0."""

    #: A named tuple of arrays; another one after `reserve`.
    cells: Cells
    #: The length of what `locate` and `survey` write.
    located: int

    @abstractmethod
    def reserve(self, slots: int, values: int) -> None:
        """Make room for `slots` slots, and for counting `values` more values."""

    @abstractmethod
    def counts(self, slot: int) -> tuple[UInt64s, Int64s]:
        """Return what a slot holds: (key, count) of each count that is not 0, in order of keys."""

    @abstractmethod
    def put(self, slot: int, keys: UInt64s, counts: Int64s) -> None:
        """Fill an empty slot with what `counts` returned."""

    @property
    @abstractmethod
    def held(self) -> int:
        """The number of values in slots that take room, each in each of its slots."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The number of bytes of the arrays."""

    @abstractmethod
    def variance(self, slot: int) -> float:
        """Return the variance of an estimate from a slot, in tuples squared."""

    def summarize(self, slot: int, values: UInt64s) -> None:
        """Count values in a slot, which `reserve` has made room for."""
        self.reserve(slot + 1, len(values))
        _summarize(self.cells, slot, values, np.empty(self.located, np.int64))

    def estimate(self, values: UInt64s, slots: Int64s) -> Int64s:
        """Return the estimated counts, of shape (values, slots)."""
        made = np.empty((len(values), len(slots)), np.int64)
        _estimate(self.cells, values, slots, np.empty(self.located, np.int64), made)
        return made

    def confidence(self, slot: int) -> float:
        """Return 1 / (1 + e), e the standard error of an estimate from a slot, in tuples."""
        return 1.0 / (1.0 + math.sqrt(self.variance(slot)))

    def add(self, into: int, other: int) -> None:
        """Add the counts of slot `other` to those of `into`."""
        self.reserve(max(into, other) + 1, int(_distinct(self.cells, other)))
        _add(self.cells, into, other, 1)

    def subtract(self, into: int, other: int) -> None:
        """Subtract the counts of slot `other`, which were added before, from those of `into`."""
        _add(self.cells, into, other, -1)


@loop
def _summarize(cells: Cells, slot: int, values: UInt64s, found: Int64s) -> None:
    for i in range(values.shape[0]):
        locate(cells, values[i], found)
        count_one(cells, slot, found)


@loop
def _distinct(cells: Cells, slot: int) -> int:
    return distinct(cells, slot)


@loop
def _estimate(cells: Cells, values: UInt64s, slots: Int64s, found: Int64s, made: Int64s) -> None:
    for i in range(values.shape[0]):
        locate(cells, values[i], found)
        for j in range(slots.shape[0]):
            made[i, j] = estimated(cells, slots[j], found)


@loop
def _add(cells: Cells, into: int, other: int, factor: int) -> None:
    add_slot(cells, into, other, factor)
