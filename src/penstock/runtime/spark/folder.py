"""What the driver and the workers of a job share on disk, under the checkpoint.

job.pickle          the job: plan and shards (written by the driver once, read by every worker once)
intake.pickle       the part of it that says what is read
tables/             static relations, computed before the start, as Arrow files
splits/             per source the splits known so far, in arrival order; only ever appended to
rounds/             what each round reads, a file a task (`rounds.py`)
state/              per stage and shard the state in files (`state_files.py`)
kept/               what sources have read that cannot be read twice, a folder each; it goes once its rounds are over
seen/               per round, source and task what an ingest task saw; the next round starts from it
dead-letters/       records kept out
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from penstock.algebra.scans import Source
from penstock.connectors.contract import Split
from penstock.runtime.spark.pace import Pace

if TYPE_CHECKING:
    # Only the processes that compute load the compiled operators: importing them takes most of a second.
    from penstock.physical.elements import Elements
    from penstock.physical.plan import Plan
    from penstock.physical.wallclock import Peers


#: The round under which the static relations, read before the start, are accounted for.
STATICS = "statics"

#: What is unpickled by every worker, and may hold a connector's secrets, is nobody else's to write or read.
_OWNER_ONLY = 0o600


@dataclass(frozen=True)
class Intake:
    """What is read and how much at once. sources: the timed sources that our reader reads; spark_sources: those that
    come as Spark DataFrames; parallelism: how many tasks may read side by side; frames: what declares those;
    peers: which sources meet which in a query; pace: how fast, and what a batch may take."""

    sources: tuple[Source, ...]
    spark_sources: frozenset[str]
    max_batch_bytes: int
    parallelism: int
    frames: Mapping[str, Source] = field(default_factory=dict)
    peers: Peers = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True)
class Job:
    """What a worker must know. keys: what stands for each shard where Spark shuffles; state_store: `files`, or `spark`
    for Spark's own."""

    plan: Plan
    shards: int
    keys: tuple[int, ...]
    drain: bool
    intake: Intake
    state_store: str = "files"


@dataclass
class Seen:
    """What one task saw of a source in one round. lag: the slack that would have kept its late elements, in ticks;
    positions: of a log, how far it is read."""

    high: int | None = None
    rows: int = 0
    late: int = 0
    lag: int = 0
    malformed: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)

    def add(self, other: Seen) -> None:
        highs = [h for h in (self.high, other.high) if h is not None]
        self.high = max(highs, default=None)
        self.rows += other.rows
        self.late += other.late
        self.lag = max(self.lag, other.lag)
        self.positions |= other.positions
        for reason, count in other.malformed.items():
            self.malformed[reason] = self.malformed.get(reason, 0) + count


class Folder:
    """The shared folder of one job."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    # -- the job -----------------------------------------------------------------------------------------------

    def write_job(self, job: Job, tables: Mapping[str, Elements]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        folder = self.root / "tables"
        folder.mkdir(exist_ok=True)
        for name, elements in tables.items():
            batch = elements.to_batch()
            with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
        self.write_intake(job.intake)
        # User code that cannot be imported travels by value.
        _write(self.root / "job.pickle", cloudpickle.dumps(job), _OWNER_ONLY)

    @property
    def has_job(self) -> bool:
        return (self.root / "job.pickle").exists()

    def read_job(self) -> Job:
        job = pickle.loads((self.root / "job.pickle").read_bytes())
        assert isinstance(job, Job)
        return job

    def write_intake(self, intake: Intake) -> None:
        _write(self.root / "intake.pickle", pickle.dumps(intake), _OWNER_ONLY)

    def read_intake(self) -> Intake:
        intake = pickle.loads((self.root / "intake.pickle").read_bytes())
        assert isinstance(intake, Intake)
        return intake

    def read_tables(self) -> dict[str, Elements]:
        from penstock.physical.elements import Elements

        found: dict[str, Elements] = {}
        for path in sorted((self.root / "tables").glob("*.arrow")):
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all().combine_chunks()
            batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
            found[path.stem] = Elements.from_batch(batches[0])
        return found

    @property
    def dead_letters(self) -> str:
        return str(self.root / "dead-letters")

    # -- splits ------------------------------------------------------------------------------------------------

    def read_splits(self, source: str) -> list[Split]:
        path = self.root / "splits" / f"{source}.json"
        if not path.exists():
            return []
        return [Split(**json.loads(line)) for line in path.read_text().splitlines()]

    def write_splits(self, source: str, splits: Sequence[Split]) -> None:
        lines = "".join(json.dumps(asdict(split)) + "\n" for split in splits)
        _write(self.root / "splits" / f"{source}.json", lines.encode())

    # -- what was seen -----------------------------------------------------------------------------------------

    def write_seen(self, round_: str, source: str, task: int, seen: Seen) -> None:
        _write(self.root / "seen" / round_ / f"{source}~{task}.json", json.dumps(asdict(seen)).encode())

    def read_seen(self, round_: str) -> dict[str, Seen]:
        """What all tasks of a round saw, by source."""
        total: dict[str, Seen] = {}
        for path in sorted((self.root / "seen" / round_).glob("*.json")):
            total.setdefault(path.stem.rsplit("~", 1)[0], Seen()).add(Seen(**json.loads(path.read_text())))
        return total

    def rounds(self) -> list[str]:
        folder = self.root / "seen"
        return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.exists() else []

    # -- small marks of the driver -----------------------------------------------------------------------------

    def write_mark(self, name: str, value: Any) -> None:
        _write(self.root / f"{name}.json", json.dumps(value).encode())

    def read_mark(self, name: str) -> Any:
        path = self.root / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None


def round_name(number: int) -> str:
    return f"{number:09d}"


@lru_cache(maxsize=8)
def load_job(root: str, version: str) -> tuple[Job, dict[str, Elements]]:
    """The job and its tables, once per worker process. version: changes when the job file does."""
    folder = Folder(root)
    return folder.read_job(), folder.read_tables()


def job_version(root: str) -> str:
    stat = (Path(root) / "job.pickle").stat()
    return f"{stat.st_mtime_ns}-{stat.st_size}"


def _write(path: Path, data: bytes, mode: int | None = None) -> None:
    """Whole or not at all, also across a crash. mode: who may read it, from its first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        if mode is not None:
            temporary.chmod(mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def chunks_of(items: Sequence[Any], parts: int) -> Iterator[Sequence[Any]]:
    """`items` in at most `parts` runs of about equal length, in order."""
    size = -(-len(items) // max(1, parts))
    for start in range(0, len(items), max(1, size)):
        yield items[start : start + size]
