"""Rule 3: a row leaves after it finds the one row that it can find.

Law: where P is UNIQUE on columns that are compared, a row of C has at most one partner in P. After the instant at which
it finds a row of P that is equal in all columns compared, whatever other conditions say of the two, it leaves.

Counter-example: equal in the unique columns alone, but not in all that are compared, is no partner: P (a, b) UNIQUE (a)
1:(0,1) 3:(0,0) breaks its promise, and C 0:(0,0) still finds the second row.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.algebra.nodes.promised import Leaving
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs, promises_of_other
from penstock.algebra.properties.promises import Unique


def leaving_by_unique(inputs: ComparedInputs) -> Iterator[Leaving]:
    """Yield why rows leave whose partner is the only one."""
    for side, promise, columns in promises_of_other(inputs, Unique):
        yield Leaving(side, promise, columns, promise.slide, promise.align)
