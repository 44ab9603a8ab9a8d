"""Dead letters of a round, each once: an element that several checks of a stream reject is one of the promise that was
declared first, and an update that its relation could not apply is one, however many steps of the plan apply it.

Checks and steps do not know of each other, so that the state of one does not depend on which others there are. All of
them judge an instant in one round, and their dead letters meet behind the last stage of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from penstock.physical.operators.base.contract import Rejection


def without_repeats(rejections: Iterable[Rejection]) -> list[Rejection]:
    """Return the dead letters of a round, of each element only that of the first promise that it breaks, and of each
    update only that of one step.

    Of equal elements of one instant each check rejects the last ones by arrival, so those that fewer checks reject are
    rejected by all that reject more.
    """
    of_elements: dict[tuple[str, int, str], list[Rejection]] = {}
    updates: dict[tuple[str, int, str], dict[int, list[Rejection]]] = {}
    for one in rejections:
        if one.element:
            of_elements.setdefault((one.source, one.ts, one.element), []).append(one)
        else:
            updates.setdefault((one.source, one.ts, one.reason), {}).setdefault(one.step, []).append(one)
    found = [one for by_step in updates.values() for one in max(by_step.values(), key=len)]
    for some in of_elements.values():
        done = 0
        copies = Counter((one.order, one.reason) for one in some)
        by_check = {(one.order, one.reason): one for one in some}
        for check in sorted(copies):
            found += [by_check[check]] * (copies[check] - done)
            done = max(done, copies[check])
    return found


def bits(column: pa.Array) -> pa.Array:
    """Return a column whose values are equal where those of `column` are equal to the bit."""
    if pa.types.is_floating(column.type):
        return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width])
    return column
