"""HLL_SKETCH_AGG and HLL_UNION_AGG: HyperLogLog sketches as images that Apache DataSketches reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.accumulators.contract import Int64s
from penstock.expressions.aggregates.approx_count_distinct import RegisterCells
from penstock.expressions.aggregates.arguments import atomic, whole
from penstock.expressions.aggregates.bounds import CONFIDENCE, Accuracy, Bounds, percent
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.aggregates.contract import ArgumentState, DistinctRule, OrderedAnswer, Question
from penstock.expressions.aggregates.sketch import CellFunction, binary_rows, constant, quantile_of_normal
from penstock.expressions.coercion import BINARY
from penstock.expressions.nodes import AggregateCall, Expression
from penstock.expressions.sketches import hyperloglog as hll
from penstock.expressions.sketches.argument import image_argument

_LG_SHIFT = 32


@dataclass(frozen=True)
class ImageCells(CellEncoder):
    """The registers of an image, above them log2 of how many it has; and one of rank 0, so that an empty one counts.
    What is no image falls into no cell, as NULL."""

    def encode(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        rows: list[Int64s] = [np.empty(0, np.int64)]
        cells: list[Int64s] = [np.empty(0, np.int64)]
        for row, data in enumerate(column.to_pylist()):
            found = None if data is None else _registers(data)
            if found is not None:
                own = np.concatenate([np.zeros(1, np.int64), found.cells]) | found.lg << _LG_SHIFT
                rows.append(np.full(len(own), row))
                cells.append(own)
        return np.concatenate(rows), pa.array(np.concatenate(cells))

    def expected(self, values: float) -> float:
        return values * (1 << hll.DEFAULT_LG)


def _registers(data: bytes) -> hll.Registers | None:
    try:
        return hll.registers_of(data)
    except PenstockError:
        return None


class HllSketch(CellFunction):
    """An image of the registers of the values."""

    most: ClassVar[int] = 2
    distinct: ClassVar[DistinctRule] = DistinctRule.NO_EFFECT

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        example = f"{self.name}(x, {hll.DEFAULT_LG})"
        lg = tuple(whole(self.name, a, hll.LEAST_LG, hll.MOST_LG, example) for a in arguments[1:])
        return (atomic(self.name, arguments[0]), *lg), BINARY

    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        # Where expirations are known, an image has the cells that are the greatest of their registers.
        return ArgumentState.CELLS if negative else ArgumentState.REGISTERS

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        return RegisterCells(lg_of(call))

    def question(self) -> Question:
        return Question.COUNTS

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        cells = members.values.to_numpy(zero_copy_only=False)
        made = hll.images(lg_of(call), cells, members.offsets.astype(np.int64))
        return binary_rows(made, members.none)

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        lg = lg_of(call)
        error = f"standard error {percent(hll.standard_error(lg))}"
        width = quantile_of_normal(CONFIDENCE) * hll.standard_error(lg)
        return Accuracy(f"HyperLogLog of {1 << lg:,} registers", error, certain=False, width=width)

    def bounds(self, call: AggregateCall, confidence: float) -> Bounds:
        hint = f"a bound is of a number: write LOWER_BOUND(HLL_SKETCH_ESTIMATE({self.name}(x)))"
        raise PenstockError("P0355", f"{self.name} is a sketch and has no bounds", hint=hint)


class HllUnion(HllSketch):
    """The union of images, with as few registers as the smallest of them."""

    most: ClassVar[int] = 1

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return (image_argument(self.name, arguments[0]),), BINARY

    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        return ArgumentState.CELLS

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        return ImageCells()

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        cells = members.values.to_numpy(zero_copy_only=False)
        made: list[bytes | None] = []
        for row, empty in enumerate(members.none.tolist()):
            own = cells[members.offsets[row] : members.offsets[row + 1]]
            made.append(None if empty else _union(own))
        return pa.array(made, BINARY)

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        return Accuracy("union of HyperLogLog sketches", "standard error that of the smallest sketch", certain=False)


def _union(cells: Int64s) -> bytes:
    """Return the image of cells with log2 of the registers that each comes from, of the fewest of these."""
    lg = int((cells >> _LG_SHIFT).min())
    places = cells >> hll.RANK_BITS & ((1 << lg) - 1)
    folded = places << hll.RANK_BITS | (cells & hll.RANK_MASK)
    return hll.images(lg, folded, np.array([0, len(folded)])).tobytes()


def lg_of(call: AggregateCall) -> int:
    """Return log2 of the number of registers of a call of HLL_SKETCH_AGG."""
    return int(constant(call, 1, hll.DEFAULT_LG))


HLL_SKETCH_AGG = HllSketch(
    "HLL_SKETCH_AGG",
    "value[, lgK]",
    "the different values as a HyperLogLog sketch with 2^lgK registers: BINARY for HLL_SKETCH_ESTIMATE, HLL_UNION_AGG"
    " and Apache DataSketches; lgK a constant from 4 to 21 (12)",
)
HLL_UNION_AGG = HllUnion(
    "HLL_UNION_AGG",
    "sketch",
    "the union of HyperLogLog sketches, with as few registers as the smallest; others are left out",
)
