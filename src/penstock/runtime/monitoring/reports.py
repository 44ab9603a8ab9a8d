"""The reports of tasks on their work in a batch, and their form as JSON.

Reports travel beside the results, in packets that no result depends on::

    {"stage": 0, "task": 3, "phases": {"read": 0.1, ...}, "rows_out": {"0": 500}}            an ingest task
    {"stage": 1, "shard": 2, "phases": {...}, "seconds": {"4": 0.01},                        a shard of a stage
     "rows_in": {"4.0": 500}, "bytes_in": {"4.0": 8000}, "rows_out": {"4": 20},
     "state": {"4": {"groups": ["KeyedTable", 10, 800]}}, "samples": {"4.0": "<Arrow, in base 64>"},
     "figures": {"4": {"held": 100, "shed": 12}}}
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.figures import MEASURED
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, decode, encode
from penstock.physical.execution.exchange import Port
from penstock.physical.execution.flow_counts import FlowCounts
from penstock.physical.execution.meter import StateSizes, StepFigures, SynopsisSize
from penstock.physical.observation.observed_rows import ObservedRows
from penstock.runtime.monitoring.stopwatch import Phases
from penstock.storage.documents import (
    Document,
    Json,
    as_array,
    as_document,
    as_integer,
    as_number,
    as_optional_integer,
    as_text,
    integer,
    nested,
)


@dataclass(frozen=True)
class IngestReport:
    """The work of ingest task `task`. phases: its seconds in each phase; counts: the rows that flowed; figures: what is
    added to the figures of operators, by step; observed: what it has seen of a stream whose promises are measured."""

    task: int
    phases: Phases
    counts: FlowCounts = field(default_factory=FlowCounts)
    figures: StepFigures = field(default_factory=dict)
    observed: ObservedRows | None = None

    stage = 0

    def as_json(self) -> Document:
        """Return the report as JSON."""
        report: dict[str, Json] = {"stage": self.stage, "task": self.task, "phases": dict(self.phases)}
        if self.observed is not None:
            report["observed"] = self.observed.as_json()
        return {**report, **_counts_json(self.counts), **_figures_json(self.figures)}


#: The fields of an extent.
_EXTENT = 3


@dataclass(frozen=True)
class ShardReport:
    """The work of shard `shard` of stage `stage`.

    Args:
        phases: seconds in each phase.
        seconds: work of each step.
        state: sizes of the synopses of each step with state; None where they were not measured.
        counts: the rows that flowed.
        figures: those of operators, by step.
    """

    stage: int
    shard: int
    phases: Phases
    seconds: Mapping[int, float]
    state: StateSizes | None = None
    counts: FlowCounts = field(default_factory=FlowCounts)
    figures: StepFigures = field(default_factory=dict)

    def as_json(self) -> Document:
        """Return the report as JSON."""
        report: dict[str, Json] = {
            "stage": self.stage,
            "shard": self.shard,
            "phases": dict(self.phases),
            "seconds": {str(step): spent for step, spent in self.seconds.items()},
            **_counts_json(self.counts),
        }
        if self.state is not None:
            report["state"] = {
                str(step): {name: _size(size) for name, size in sizes.items()} for step, sizes in self.state.items()
            }
        return {**report, **_figures_json(self.figures)}


def _figures_json(by_step: StepFigures) -> dict[str, Json]:
    """Return figures as JSON; nothing where there are none."""
    return {"figures": {str(step): as_names(figures) for step, figures in by_step.items()}} if by_step else {}


def as_names(figures: FigureValues) -> dict[str, Json]:
    """Return figures by their names; a histogram is an object with the counts by bucket."""
    return {
        figure.name: value if isinstance(value, int | float) else {str(code): count for code, count in value.items()}
        for figure, value in figures.items()
    }


def from_names(values: Document) -> FigureValues:
    """Return the figures that `as_names` wrote."""
    return {
        MEASURED[name]: {int(code): as_integer(count, name) for code, count in value.items()}
        if isinstance(value, dict)
        else as_number(value, name)
        for name, value in values.items()
    }


def _size(size: SynopsisSize) -> list[Json]:
    """Return a size as JSON, without an extent that is not known, and what promises have closed only where some do."""
    if size.closed:
        return [*size[:6], dict(size.closed)]
    return [*(size[:3] if size.chunks is None else size[:6])]


def report_from_json(fields: Document) -> IngestReport | ShardReport:
    """Return the report that `as_json` wrote."""
    stage, phases, counts = integer(fields, "stage"), _numbers(fields, "phases"), _counts(fields)
    by_step = nested(fields, "figures") if "figures" in fields else {}
    figures = {int(step): from_names(as_document(values, "figures")) for step, values in by_step.items()}
    if stage == IngestReport.stage:
        seen = ObservedRows.from_json(nested(fields, "observed")) if "observed" in fields else None
        return IngestReport(integer(fields, "task"), phases, counts, figures, seen)
    seconds = {int(step): spent for step, spent in _numbers(fields, "seconds").items()}
    return ShardReport(stage, integer(fields, "shard"), phases, seconds, _sizes(fields), counts, figures)


def _numbers(fields: Document, name: str) -> dict[str, float]:
    return {key: as_number(value, name) for key, value in nested(fields, name).items()}


def _counts_json(counts: FlowCounts) -> dict[str, Json]:
    """Return counts as JSON; a port is written `step.port`. What was not counted is left out."""
    found: dict[str, Json] = {
        "rows_in": {f"{step}.{port}": rows for (step, port), rows in counts.rows_in.items()},
        "bytes_in": {f"{step}.{port}": size for (step, port), size in counts.bytes_in.items()},
        "rows_out": {str(step): rows for step, rows in counts.rows_out.items()},
        "samples": {f"{step}.{port}": _sample_text(rows) for (step, port), rows in counts.samples.items()},
        "joint_errors": {str(step): error for step, error in counts.joint_errors.items()},
    }
    return {name: values for name, values in found.items() if values}


def _counts(fields: Document) -> FlowCounts:
    ports: list[dict[Port, int]] = []
    for name in ("rows_in", "bytes_in"):
        values = nested(fields, name) if name in fields else {}
        split = {key.partition(".")[::2]: as_integer(value, name) for key, value in values.items()}
        ports.append({(int(step), int(port)): value for (step, port), value in split.items()})
    made = nested(fields, "rows_out") if "rows_out" in fields else {}
    counts = FlowCounts(ports[0], {int(step): as_integer(rows, "rows_out") for step, rows in made.items()}, ports[1])
    for key, text in nested(fields, "samples").items() if "samples" in fields else ():
        step, _, port = key.partition(".")
        counts.samples[int(step), int(port)] = _sample(as_text(text, "samples"))
    for key, text in nested(fields, "joint_errors").items() if "joint_errors" in fields else ():
        counts.joint_errors[int(key)] = as_text(text, "joint_errors")
    return counts


def _sample_text(rows: Elements) -> str:
    return b64encode(encode([rows.to_batch()])).decode()


def _sample(text: str) -> Elements:
    (batch,) = decode(b64decode(text))
    return Elements.from_batch(batch)


def _sizes(fields: Document) -> StateSizes | None:
    if "state" not in fields:
        return None
    sizes: dict[int, dict[str, SynopsisSize]] = {}
    for step, parts in nested(fields, "state").items():
        found = sizes[int(step)] = {}
        for name, size in as_document(parts, "state").items():
            kind, rows, nbytes, *extent = as_array(size, "state")
            counts = as_integer(rows, "state"), as_integer(nbytes, "state")
            closed = as_document(extent.pop(), "state") if len(extent) > _EXTENT else {}
            chunks, oldest, newest = (as_optional_integer(one, "state") for one in extent or (None, None, None))
            by_promise = {promise: as_integer(number, "state") for promise, number in closed.items()}
            found[name] = SynopsisSize(as_text(kind, "state"), *counts, chunks, oldest, newest, by_promise)
    return sizes
