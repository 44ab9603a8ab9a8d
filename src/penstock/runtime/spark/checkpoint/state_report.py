"""Report what a checkpoint holds, for `penstock state`: rows, bytes and age of the state per query and operator.

Read-only: nothing is written, locked or waited for, so it works while the run continues. If a batch commits meanwhile
and removes files, the report starts again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.physical.planning.sharing import state_of
from penstock.physical.synopses import synopsis_class
from penstock.physical.synopses.contract import StoredTimes
from penstock.runtime.spark.checkpoint.epochs import Epoch, epoch_numbers, latest_epoch
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.state_files import StateFiles
from penstock.runtime.state.chunk_files import LAST
from penstock.types import BEGIN, END, TimeDomain, Unit

_TRIES = 5


@dataclass
class StoredState:
    """Size and times of some state. oldest, newest: times of its rows; kind: whether these are timestamps (`ts`) or due
    times (`due`), empty where the state has no times.
    """

    rows: int = 0
    bytes: int = 0
    chunks: int = 0
    oldest: int | None = None
    newest: int | None = None
    kind: str = ""

    def add(self, other: StoredState) -> None:
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
    total: StoredState = field(default_factory=StoredState)
    shards: dict[int, StoredState] = field(default_factory=dict)


@dataclass
class StateReport:
    """What a checkpoint holds. batch: the last delivered batch; epoch: number of changes of the script; base: the first
    batch of the epoch.
    """

    checkpoint: str
    batch: int
    epoch: int
    base: int
    shards: int
    queries: dict[str, list[OperatorState]]
    domains: dict[str, TimeDomain]
    births: dict[str, int]

    def as_json(self, per_shard: bool) -> dict[str, object]:
        """Return plain data; times are texts in the query's domain."""
        queries = {}
        for name, operators in self.queries.items():
            details = []
            for operator in operators:
                shards = {str(k): self._as_json(name, stored) for k, stored in operator.shards.items()}
                details.append(
                    {
                        "step": operator.step,
                        "operator": operator.operator,
                        "state": operator.state,
                        "stage": operator.stage,
                        "shared_with": [q for q in operator.queries if q != name],
                        **self._as_json(name, operator.total),
                        **({"shards": shards} if per_shard else {}),
                    }
                )
            total = self.total(name)
            queries[name] = {
                "since_epoch": self.births[name],
                "rows": total.rows,
                "bytes": total.bytes,
                "operators": details,
            }
        header = {"checkpoint": self.checkpoint, "batch": self.batch, "epoch": self.epoch, "epoch_base": self.base}
        return {**header, "shards": self.shards, "queries": queries}

    def total(self, query: str) -> StoredState:
        stored = StoredState()
        for operator in self.queries[query]:
            stored.add(operator.total)
        return stored

    def shown(self, query: str, tick: int | None) -> str:
        """Return a time as text; the end of time is `forever`."""
        if tick is None:
            return ""
        return "forever" if tick >= END else "the beginning" if tick <= BEGIN else self.domains[query].show(tick)

    def _as_json(self, query: str, stored: StoredState) -> dict[str, object]:
        times = {"oldest": self.shown(query, stored.oldest), "newest": self.shown(query, stored.newest)}
        return {**asdict(stored), **{k: v or None for k, v in times.items()}, "kind": stored.kind or None}


def report(checkpoint: Path) -> StateReport:
    """Return what the checkpoint holds. Raises PenstockError P0605, P0608."""
    folder = Folder(checkpoint / "penstock")
    if not folder.root.is_dir():
        problem = "holds no checkpoint" if checkpoint.exists() else "does not exist"
        raise PenstockError(
            "P0608", f"{checkpoint} {problem}", hint="give the folder that a run had as its --checkpoint"
        )
    for attempt in range(_TRIES):
        try:
            return _report(checkpoint, folder)
        except PenstockError as error:
            # A batch may have been committed meanwhile; real damage persists at the next attempt.
            if attempt == _TRIES - 1 or error.code != "P0605":
                raise
    raise AssertionError("unreachable")


def _report(checkpoint: Path, folder: Folder) -> StateReport:
    epoch = latest_epoch(folder)
    if epoch is None:
        raise PenstockError("P0608", f"{checkpoint} holds no checkpoint yet", hint="the run has not begun")
    if epoch.state_store != "files":
        raise PenstockError(
            "P0608",
            f"{checkpoint} keeps its state in Spark's own store, which cannot be looked into",
            hint="SET state_store = 'files' keeps it in files",
        )
    operators: dict[tuple[str, str], OperatorState] = {}
    for stage in range(1, epoch.stages + 1):
        for shard in range(epoch.shards):
            _add_shard(folder, epoch, stage, shard, operators)
    queries = {
        name: [operator for operator in operators.values() if name in operator.queries] for name in epoch.queries
    }
    domains = {name: TimeDomain(Unit[q.unit], q.calendar) for name, q in epoch.queries.items()}
    births = {name: q.birth for name, q in epoch.queries.items()}
    numbers = epoch_numbers(folder)
    return StateReport(
        str(checkpoint), folder.delivered().batch, numbers[-1], epoch.base, epoch.shards, queries, domains, births
    )


def _add_shard(
    folder: Folder, epoch: Epoch, stage: int, shard: int, operators: dict[tuple[str, str], OperatorState]
) -> None:
    state = StateFiles(str(folder.root), stage, shard, LAST)
    manifest = state.manifest()
    if manifest is None:
        return
    lengths = {name: length for chunks in state.files.values() for name, (_, length, _) in chunks.items()}
    for name, record in manifest.synopses.items():
        key, _, synopsis = name.partition(".")
        users = _users(epoch, key)
        if not users:
            # State of a query that has been removed; the next batch drops it.
            continue
        ids = record.chunks
        stored = StoredState(record.rows, sum(lengths[f"{name}.{i}"] for i in ids), len(ids))
        synopsis_kind = synopsis_class(record.kind)
        if synopsis_kind is not None and synopsis_kind.TIMES is not None:
            for i in ids:
                start = synopsis_kind.first_live(record.manifest, i)
                _add_times(stored, synopsis_kind.TIMES, state.chunk(f"{name}.{i}").slice(start))
        operator_record = users[min(users)]
        operator = operators.setdefault(
            (key, synopsis),
            OperatorState(operator_record["step"], operator_record["operator"], synopsis, stage, sorted(users)),
        )
        operator.total.add(stored)
        operator.shards[shard] = stored


def _users(epoch: Epoch, key: str) -> dict[str, dict[str, Any]]:
    """Return the queries with an operator whose state has that key, each with its record of the operator."""
    return {
        name: operator
        for name, record in epoch.queries.items()
        for operator in record.operators
        if state_of(operator["key"], epoch.merges) == key
    }


def _add_times(stored: StoredState, times: StoredTimes, chunk: pa.RecordBatch) -> None:
    if not chunk.num_rows:
        return
    bounds = pc.min_max(chunk.column(times.column)).as_py()
    stored.add(StoredState(oldest=bounds["min"], newest=bounds["max"], kind=times.kind))
