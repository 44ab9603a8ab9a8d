"""Rules 5 and 6: rows leave below the bound of the other side.

Law: ORDERED BY c WITHIN k, all values below the greatest that is more than k old are closed; a row of the other side
whose value is below finds no further partner, and leaves. DESC: above.

Counter-example: a row at the bound itself may still find one: C 1:5 2:5, P 1:5 meets both.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.algebra.nodes.promised import Leaving
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs, promises_of_other
from penstock.algebra.properties.promises import Ordered


def leaving_by_order(inputs: ComparedInputs) -> Iterator[Leaving]:
    """Yield why rows leave that are below the bound of the other side."""
    for side, promise, columns in promises_of_other(inputs, Ordered):
        yield Leaving(side, promise, columns, promise.slide, promise.align)
