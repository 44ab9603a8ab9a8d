"""The page docs/metrics.md, printed from the registry of figures.

`python -m penstock.runtime.monitoring.page > docs/metrics.md` updates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from penstock.figures import MEASURED, SERIES

_HEAD = """# Metrics

Printed from the registry in `src/penstock/figures/__init__.py` by `python -m penstock.runtime.monitoring.page`; a test
keeps it current.

What a run measures while it works, in four forms with the same figures:

- **Python**: `run.metrics()` of a started run (`Session.start`) gives a `RunMetrics` with `sources`, `queries` and
  `operators`; `run_local(..., watcher=...)` gets one after every round.
- **Lines of JSON**: `penstock run --metrics FILE` or `SET metrics_file = 'FILE'` adds one line for every micro-batch:
  `{"time": ..., "batch": ..., "batches": ..., "last_phases": {...}, "sources": {name: {...}}, "queries": {name: {...}},
  "operators": [...]}`.
- **Prometheus**: `penstock run --metrics-port N` or `SET metrics_port = N` serves `http://127.0.0.1:N/metrics`; port 0
  takes any that is free, and `SET metrics_address = '0.0.0.0'` serves other machines too. There is no password on it:
  open it only to a network that you trust.
- **A server**: `GET /metrics` of `penstock serve`, in the same text; `query` is the name that a query has at present,
  also after `RENAME`. What is computed beside a query to take its place has no series of its own.

The field is where a metric stands in the objects and in JSON. Counters go on over restarts of a run with a checkpoint,
except the times, which are those of the process.

"""

_MEASURED = """
## Figures of operators

Operators measure figures in each shard. EXPLAIN ANALYZE shows all but histograms. The table has how the values of all
shards become one.

"""

_NOTES = """Where a heartbeat or lag is not known (nothing has come yet, the source has ended, its time is no TIMESTAMP)
the metric has no series, and the field is null. An operator that works for several queries has an empty `query`; its
state counts for each of them in `penstock_query_state_bytes`, and once in `penstock_state_bytes`.

"""

_PHASES = """## Where the time of a batch goes

A batch begins when its round is handed to Spark and the one before is done, and ends when its results are with the
sinks. Its phases add up to its duration:

| phase | what |
|---|---|
| `read` | getting records from a source and parsing them |
| `ingest` | timestamps, late and malformed records, the operators before the first shuffle |
| `exchange` | cutting rows by shard, packing and unpacking them |
| `operators` | the keyed operators |
| `state` | fetching state and writing down what changed |
| `sink` | writing results, in the driver |
| `spark` | the rest: planning, scheduling, moving bytes, committing |

Tasks measure their own phases and report them beside the results, in packets that no result depends on. Tasks of a
stage work side by side, so a stage counts as long as its longest task, or as all its tasks on the cores there are,
whichever is more; each phase gets its part of that. In the local runtime `spark` is what lies between the others.

State is measured as long as that takes a fiftieth of the time at most; until then the last figures stand.
"""


def metrics_page() -> str:
    """Return the page."""
    return "".join((_HEAD, *_series(), "\n", _NOTES, _MEASURED, *_measured(), "\n", _PHASES))


def _series() -> Iterator[str]:
    yield "| metric | type | labels | field | what it is |\n|---|---|---|---|---|\n"
    for figure in SERIES:
        labels = ", ".join(f"`{label}`" for label in figure.labels) or "-"
        field = figure.field.removeprefix("run.")
        yield f"| `{figure.series}` | {figure.kind.value} | {labels} | `{field}` | {figure.sentence} |\n"


def _measured() -> Iterator[str]:
    yield "| figure | kind | unit | of shards | what it is |\n|---|---|---|---|---|\n"
    for figure in MEASURED.values():
        over, unit = figure.over_shards.value, figure.unit.value or "number"
        yield f"| {figure.name} | {figure.kind.value} | {unit} | {over} | {figure.sentence} |\n"


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
