"""Count the rows that flow through the steps of a stage in a round: an addition for each batch, whatever its size.

At tapped ports the first rows are kept too, as many as fit a report.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.physical.elements import Elements, concat
from penstock.physical.execution.exchange import Port
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan

#: A port by the key of its step, which stays when a plan changes.
TappedPort = tuple[str, int]
#: Rows and bytes of a port that are kept in a round, by each task.
MOST_ROWS, MOST_BYTES = 1_000, 64 * 1024
#: Characters of an error that is noted.
_LONGEST_ERROR = 500


@dataclass
class FlowCounts:
    """Rows by port of the steps that received them, and by step that emitted them.

    Args:
        bytes_in: of the ports that are reached over an exchange, the bytes of their columns and times in memory.
        tapped: the ports at which rows are kept.
        samples: the first rows at these, in the order in which they came.
        joint_errors: by step that took its turn alone, since a call that advances several failed, the error.
    """

    rows_in: dict[Port, int] = field(default_factory=dict)
    rows_out: dict[int, int] = field(default_factory=dict)
    bytes_in: dict[Port, int] = field(default_factory=dict)
    tapped: frozenset[Port] = frozenset()
    samples: dict[Port, Elements] = field(default_factory=dict)
    joint_errors: dict[int, str] = field(default_factory=dict)

    def receive(self, port: Port, elements: Elements) -> None:
        """Count rows that a step receives at a port."""
        self.rows_in[port] = self.rows_in.get(port, 0) + len(elements)
        if port in self.tapped and len(elements):
            self._keep(port, elements)

    def emit(self, step: int, rows: int) -> None:
        """Count rows that a step emits."""
        self.rows_out[step] = self.rows_out.get(step, 0) + rows

    def note_joint_error(self, steps: Collection[int], error: Exception) -> None:
        """Note that the call that advances `steps` has failed, so that each advances alone."""
        self.joint_errors.update(dict.fromkeys(steps, f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]))

    def _keep(self, port: Port, elements: Elements) -> None:
        before = self.samples.get(port)
        room = MOST_ROWS - (0 if before is None else len(before))
        space = MOST_BYTES - (0 if before is None else before.nbytes)
        kept = first_rows(elements, room, space)
        if kept is not None:
            self.samples[port] = kept if before is None else concat([before, kept])


def first_rows(elements: Elements, rows: int, nbytes: int) -> Elements | None:
    """Return the first rows, as many as there is room for, in memory of their own; None for none."""
    count = min(rows, len(elements))
    while count > 0:
        found = elements.take(np.arange(count))
        if found.nbytes <= nbytes:
            return found
        # Rows are about alike; the estimate halves at least, so that it ends.
        count = min(count // 2, count * nbytes // max(1, found.nbytes))
    return None


def tapped_ports(plan: Plan, taps: Collection[TappedPort]) -> frozenset[Port]:
    """Return the ports of a plan that are tapped, by the numbers of their steps."""
    if not taps:
        return frozenset()
    by_key: dict[str, list[int]] = {}
    for key, port in taps:
        by_key.setdefault(key, []).append(port)
    keys: Mapping[int, str] = step_keys(plan)
    return frozenset((step, port) for step, key in keys.items() for port in by_key.get(key, ()))
