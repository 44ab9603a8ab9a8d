"""What a checkpoint holds, for `penstock state`: per query and operator the rows, bytes and age of its state.

Read-only: nothing is written, locked or waited for, so it works while the run goes on. A batch that is committed in
between takes files away; then the look begins again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.runtime.spark.epochs import Epoch, QueryRecord, delivered, epoch_numbers, latest_epoch
from penstock.runtime.spark.folder import Folder
from penstock.runtime.spark.state_files import LAST, StateFiles
from penstock.types import BEGIN, END, TimeDomain, Unit

#: By synopsis: the column whose values say when its rows came (`ts`), or when they are due: to come or to expire.
TIMES: dict[str, tuple[str, int | str] | None] = {
    "Held": ("ts", "ts"),
    "Chains": ("ts", "ts"),
    "Runs": ("ts", "ts"),
    "RangeRuns": ("ts", "ts"),
    "Sequences": ("ts", 0),
    "Jumps": ("ts", 0),
    "FifoQueue": ("due", 0),
    "CalendarQueue": ("due", 0),
    "ListQueue": ("due", 0),
    "PaneLog": ("ts", 0),
    "Skyline": ("due", "end"),
    "SlotTable": None,
    "OrderedBag": None,
    "ExtremeBag": None,
    "ObjectTable": None,
}
#: Those of whose chunks some first rows may be gone.
_QUEUES = frozenset({"FifoQueue", "CalendarQueue", "ListQueue", "PaneLog"})
_TRIES = 5


@dataclass
class Held:
    """Some state. oldest, newest: the times of its rows; kind: whether these are timestamps (`ts`) or when the rows are
    due (`due`), empty where the state has no times."""

    rows: int = 0
    bytes: int = 0
    chunks: int = 0
    oldest: int | None = None
    newest: int | None = None
    kind: str = ""

    def add(self, other: Held) -> None:
        self.rows += other.rows
        self.bytes += other.bytes
        self.chunks += other.chunks
        self.kind = self.kind or other.kind
        self.oldest = min((t for t in (self.oldest, other.oldest) if t is not None), default=None)
        self.newest = max((t for t in (self.newest, other.newest) if t is not None), default=None)


@dataclass
class OperatorState:
    """One synopsis of an operator, over all shards. queries: those that share it."""

    step: int
    operator: str
    state: str
    stage: int
    queries: list[str]
    total: Held = field(default_factory=Held)
    shards: dict[int, Held] = field(default_factory=dict)


@dataclass
class StateReport:
    """batch: the last whose answers came to the sinks; epoch, base: how often the script has changed, and the first
    batch since."""

    checkpoint: str
    batch: int
    epoch: int
    base: int
    shards: int
    queries: dict[str, list[OperatorState]]
    domains: dict[str, TimeDomain]
    births: dict[str, int]

    def as_json(self, per_shard: bool) -> dict[str, Any]:
        """As plain data; times as text in the query's domain."""
        queries = {}
        for name, operators in self.queries.items():
            told = []
            for one in operators:
                shards = {str(k): self._told(name, held) for k, held in one.shards.items()}
                told.append(
                    {"step": one.step, "operator": one.operator, "state": one.state, "stage": one.stage,
                     "shared_with": [q for q in one.queries if q != name], **self._told(name, one.total),
                     **({"shards": shards} if per_shard else {})}
                )  # fmt: skip
            total = self.total(name)
            queries[name] = {
                "since_epoch": self.births[name], "rows": total.rows, "bytes": total.bytes, "operators": told,
            }  # fmt: skip
        top = {"checkpoint": self.checkpoint, "batch": self.batch, "epoch": self.epoch, "epoch_base": self.base}
        return {**top, "shards": self.shards, "queries": queries}

    def total(self, query: str) -> Held:
        found = Held()
        for one in self.queries[query]:
            found.add(one.total)
        return found

    def shown(self, query: str, tick: int | None) -> str:
        """A time as people read it; what lasts for good is `forever`."""
        if tick is None:
            return ""
        return "forever" if tick >= END else "the beginning" if tick <= BEGIN else self.domains[query].show(tick)

    def _told(self, query: str, held: Held) -> dict[str, Any]:
        times = {"oldest": self.shown(query, held.oldest), "newest": self.shown(query, held.newest)}
        return {**asdict(held), **{k: v or None for k, v in times.items()}, "kind": held.kind or None}


def report(checkpoint: Path) -> StateReport:
    """What the checkpoint holds. Raises PenstockError P0605, P0608."""
    folder = Folder(checkpoint / "penstock")
    if not folder.root.is_dir():
        there = "holds no checkpoint" if checkpoint.exists() else "does not exist"
        raise PenstockError("P0608", f"{checkpoint} {there}", hint="give the folder that a run had as its --checkpoint")
    for attempt in range(_TRIES):
        try:
            return _report(checkpoint, folder)
        except PenstockError as error:
            # A batch may have been committed in between; what is damaged is so the next time too.
            if attempt == _TRIES - 1 or error.code != "P0605":
                raise
    raise AssertionError("unreachable")


def _report(checkpoint: Path, folder: Folder) -> StateReport:
    epoch = latest_epoch(folder)
    if epoch is None:
        raise PenstockError("P0608", f"{checkpoint} holds no checkpoint yet", hint="the run has not begun")
    if epoch.state_store != "files":
        raise PenstockError(
            "P0608", f"{checkpoint} keeps its state in Spark's own store, which cannot be looked into",
            hint="SET state_store = 'files' keeps it in files",
        )  # fmt: skip
    operators: dict[tuple[str, str], OperatorState] = {}
    for stage in range(1, epoch.stages + 1):
        for shard in range(epoch.shards):
            _add_shard(folder, epoch, stage, shard, operators)
    queries = {
        name: [one for one in operators.values() if name in one.queries] for name in epoch.queries
    }  # fmt: skip
    domains = {name: TimeDomain(Unit[q.unit], q.calendar) for name, q in epoch.queries.items()}
    births = {name: q.birth for name, q in epoch.queries.items()}
    numbers = epoch_numbers(folder)
    return StateReport(
        str(checkpoint), delivered(folder)["batch"], numbers[-1], epoch.base, epoch.shards, queries, domains, births
    )


def _add_shard(
    folder: Folder, epoch: Epoch, stage: int, shard: int, operators: dict[tuple[str, str], OperatorState]
) -> None:
    state = StateFiles(str(folder.root), stage, shard, LAST)
    manifest = state.manifest()
    if manifest is None:
        return
    lengths = {name: length for chunks in state.files.values() for name, (_, length, _) in chunks.items()}
    for name, ids in manifest["chunks"].items():
        key, _, synopsis = name.partition(".")
        users = _users(epoch.queries, key)
        if not users:
            # Of a query that is no longer there: it goes with the next batch.
            continue
        held = Held(manifest["rows"][name], sum(lengths[f"{name}.{i}"] for i in ids), len(ids))
        kind = manifest["formats"][name][0]
        starts = dict(manifest["synopses"][name]["chunks"]) if kind in _QUEUES else {}
        for i in ids:
            _add_times(held, TIMES.get(kind), state.chunk(f"{name}.{i}").slice(starts.get(i, 0)))
        first = users[min(users)]
        one = operators.setdefault(
            (key, synopsis),
            OperatorState(first["step"], first["operator"], synopsis, stage, sorted(users)),
        )
        one.total.add(held)
        one.shards[shard] = held


def _users(queries: Mapping[str, QueryRecord], key: str) -> dict[str, dict[str, Any]]:
    """The queries with an operator of that key, each with what it says of it."""
    return {name: one for name, record in queries.items() for one in record.operators if one["key"] == key}


def _add_times(held: Held, where: tuple[str, int | str] | None, chunk: pa.RecordBatch) -> None:
    if where is None or not chunk.num_rows:
        return
    kind, column = where
    ends = pc.min_max(chunk.column(column)).as_py()
    held.add(Held(oldest=ends["min"], newest=ends["max"], kind=kind))
