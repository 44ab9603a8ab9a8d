"""The reports of tasks on their work in a batch, and their form as JSON.

Reports travel beside the results, in packets that no result depends on::

    {"stage": 0, "task": 3, "phases": {"read": 0.1, ...}}                                    an ingest task
    {"stage": 1, "shard": 2, "phases": {...}, "seconds": {"4": 0.01}, "state": {"4": [10, 800]}}   a shard of a stage
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.runtime.watching.stopwatch import Phases
from penstock.storage.documents import Document, Json, as_array, as_integer, as_number, integer, nested


@dataclass(frozen=True)
class IngestReport:
    """The work of ingest task `task`. phases: its seconds in each phase."""

    task: int
    phases: Phases

    stage = 0

    def as_json(self) -> Document:
        """Return the report as JSON."""
        return {"stage": self.stage, "task": self.task, "phases": dict(self.phases)}


@dataclass(frozen=True)
class ShardReport:
    """The work of shard `shard` of stage `stage`.

    Args:
        phases: seconds in each phase.
        seconds: work of each step.
        state: rows and bytes of each step with state; None where they were not measured.
    """

    stage: int
    shard: int
    phases: Phases
    seconds: Mapping[int, float]
    state: Mapping[int, tuple[int, int]] | None = None

    def as_json(self) -> Document:
        """Return the report as JSON."""
        report: dict[str, Json] = {
            "stage": self.stage,
            "shard": self.shard,
            "phases": dict(self.phases),
            "seconds": {str(step): spent for step, spent in self.seconds.items()},
        }
        if self.state is not None:
            report["state"] = {str(step): list(sizes) for step, sizes in self.state.items()}
        return report


def report_from_json(fields: Document) -> IngestReport | ShardReport:
    """Return the report that `as_json` wrote."""
    stage, phases = integer(fields, "stage"), _numbers(fields, "phases")
    if stage == IngestReport.stage:
        return IngestReport(integer(fields, "task"), phases)
    seconds = {int(step): spent for step, spent in _numbers(fields, "seconds").items()}
    return ShardReport(stage, integer(fields, "shard"), phases, seconds, _sizes(fields))


def _numbers(fields: Document, name: str) -> dict[str, float]:
    return {key: as_number(value, name) for key, value in nested(fields, name).items()}


def _sizes(fields: Document) -> dict[int, tuple[int, int]] | None:
    if "state" not in fields:
        return None
    sizes: dict[int, tuple[int, int]] = {}
    for step, pair in nested(fields, "state").items():
        rows, nbytes = as_array(pair, "state")
        sizes[int(step)] = as_integer(rows, "state"), as_integer(nbytes, "state")
    return sizes
