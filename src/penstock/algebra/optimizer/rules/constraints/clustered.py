"""Rule 4: rows leave when the other side has no more rows of their value.

Law: after a value of CLUSTERED BY is closed, no element of it comes on that side; a row of the other side with this
value finds no further partner, and leaves. A closing at t takes effect after t, at the boundary of that side's SLIDE.

Counter-example: a selection does not change when a value is closed. WITHIN 4 ticks by the rows that it leaves, P 3:v
would leave at 4 and miss C 5:v of C 0:v 2:v (dropped) 5:v.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.algebra.nodes.promised import Leaving
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs, promises_of_other
from penstock.algebra.properties.promises import Clustered


def leaving_by_clusters(inputs: ComparedInputs) -> Iterator[Leaving]:
    """Yield why rows leave whose value is closed on the other side."""
    for side, promise, columns in promises_of_other(inputs, Clustered):
        yield Leaving(side, promise, columns, promise.slide, promise.align)
