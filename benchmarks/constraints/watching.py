"""What a join under promises holds round by round, and whether its answer is that of the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.constraints.data import Ints
from benchmarks.local_harness import Measured, digest, state_of
from penstock.physical.elements import Elements
from penstock.runtime.local.runtime import LocalJob
from penstock.types import END


@dataclass(frozen=True)
class Moment:
    """What was held after a round. at: ms; orders, fulfilments: rows of each side; other: of indexes of values and
    buffers; bytes: of all."""

    at: int
    orders: int
    fulfilments: int
    other: int
    bytes: int

    @property
    def rows(self) -> int:
        return self.orders + self.fulfilments + self.other


@dataclass
class Watch:
    """Notes what a job holds after its rounds until `last`."""

    last: int
    moments: list[Moment] = field(default_factory=list)

    def __call__(self, job: LocalJob, end: int) -> None:
        if end > self.last:
            return
        sides = {"left": 0, "right": 0}
        for executor in (executor for row in job.stages for executor in row):
            for name, synopsis in executor.synopses().items():
                side, _, rest = name.rpartition(".")[2].partition("_")
                if side in sides and rest in ("", "held"):
                    sides[side] += synopsis.rows
        size, rows = state_of(job)
        left, right = sides.values()
        self.moments.append(Moment(end, left, right, rows - left - right, size))


def check(found: Measured, columns: Sequence[Ints], instants: Ints) -> None:
    """Compare an answer with its rows by definition.

    Raises:
        AssertionError: it has other rows, or has them at other instants.
    """
    expected = Elements(tuple(pa.array(c) for c in columns), instants, np.full(len(instants), END))
    if (found.results, found.digest) != (len(instants), digest(expected)):
        raise AssertionError(f"the answer has {found.results:,} rows, by definition {len(instants):,}, or other ones")
