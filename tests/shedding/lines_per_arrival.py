"""Print how many lines of the machine an arrival runs, at several sizes of the budget: run with NUMBA_DISABLE_JIT=1.

Arguments: the policy, the kind of data (`values`: many values of short stretches, `one`: one value of many stretches),
sizes. Prints a number per size.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np

from penstock.shedding.contract import Shedding
from penstock.shedding.hashing import all_salted
from penstock.shedding.policies import POLICIES
from penstock.shedding.shedder import ArrivingTuples, Shedder

#: Arrivals that are counted.
COUNTED = 300


def arrivals(kind: str, size: int) -> ArrivingTuples:
    """Return twice the budget and more, in order: values in runs of one to four touching periods, or one with gaps."""
    draw, count = np.random.default_rng(size), 2 * size + COUNTED
    if kind == "values":
        slots = np.repeat(draw.integers(0, size, count), draw.integers(1, 5, count))[:count]
        begins = np.arange(count)
    else:
        slots, begins = np.zeros(count, np.int64), 3 * np.arange(count)
    never, one = np.full(count, 10**9), np.ones(count, np.int64)
    return ArrivingTuples(slots, all_salted(slots, 1), begins, begins + 1, begins, begins, never, one)


def lines(policy: str, kind: str, size: int) -> float:
    """Return the lines per arrival that pushes another out."""
    machine, every = Shedder(Shedding(POLICIES[policy]), size), arrivals(kind, size)
    machine.arrive(every.part(0, len(every) - COUNTED))
    # So that room is not made while lines are counted.
    machine._make_room(size, size + 1)
    found = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal found
        found += event == "line"
        return trace

    last = every.part(len(every) - COUNTED, len(every))
    sys.settrace(trace)
    machine.arrive(last)
    sys.settrace(None)
    return found / COUNTED


if __name__ == "__main__":
    print(*(lines(sys.argv[1], sys.argv[2], int(size)) for size in sys.argv[3:]))
