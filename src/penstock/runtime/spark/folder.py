"""What the driver and the workers of a job share on disk, under the checkpoint.

epochs/             what the run did since when: script and plan as data (`epochs.py`)
job.pickle          the job: plan and shards, from the driver to the workers of this start. Whoever reads it was told
                    its digest by Spark; what another start left is never read
tables/             static relations, computed before the start, as Arrow files
splits/             per source the splits known so far, in arrival order; only ever appended to
rounds/             what each round reads, a file a task (`rounds.py`)
state/              per stage and shard the state in files (`state_files.py`)
backfill/           the state of queries that have read their past and not joined the others yet (`backfill.py`)
kept/               what sources have read that cannot be read twice, a folder each; it goes once its rounds are over
seen/               per round, source and task what an ingest task saw; the next round starts from it
dead-letters/       records kept out
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from penstock.algebra.scans import Source
from penstock.connectors.contract import Split
from penstock.connectors.seals import damaged, sealed, unsealed
from penstock.errors import PenstockError
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
    peers: which sources meet which in a query; births: the epoch in which each source began, where it is not 0; pace:
    how fast, and what a batch may take."""

    sources: tuple[Source, ...]
    spark_sources: frozenset[str]
    parallelism: int
    frames: Mapping[str, Source] = field(default_factory=dict)
    peers: Peers = field(default_factory=dict)
    births: Mapping[str, int] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True)
class Job:
    """What a worker must know. keys: what stands for each shard where Spark shuffles; state_store: `files`, or `spark`
    for Spark's own; cache_bytes: state that a worker process keeps in memory between batches; epoch: how often the
    run's script has changed, base: the first batch since."""

    plan: Plan
    shards: int
    keys: tuple[int, ...]
    drain: bool
    intake: Intake
    state_store: str = "files"
    cache_bytes: int = 2**30
    epoch: int = 0
    base: int = 0


@dataclass
class Seen:
    """What one task saw of a source in one round. lag: the slack that would have kept its late elements, in ticks;
    positions: of a log, how far it is read; passed: the rows that its reader passed over, for no query reads them."""

    high: int | None = None
    rows: int = 0
    late: int = 0
    lag: int = 0
    malformed: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    passed: int = 0

    def add(self, other: Seen) -> None:
        highs = [h for h in (self.high, other.high) if h is not None]
        self.high = max(highs, default=None)
        self.rows += other.rows
        self.passed += other.passed
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

    def write_job(self, job: Job) -> str:
        """Hand `job` to the workers of this start; returns the digest by which they know it."""
        self.root.mkdir(parents=True, exist_ok=True)
        # User code that cannot be imported travels by value.
        data = cloudpickle.dumps(job)
        write_whole(self.root / "job.pickle", data, private=True)
        return hashlib.sha256(data).hexdigest()

    def read_job(self, digest: str) -> Job:
        data = (self.root / "job.pickle").read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise PenstockError(
                "P0605", f"{self.root / 'job.pickle'} is not what this run wrote",
                hint="start again; only one run at a time can use a checkpoint",
            )  # fmt: skip
        job = pickle.loads(data)
        assert isinstance(job, Job)
        return job

    def write_tables(self, tables: Mapping[str, Elements]) -> None:
        """Static relations, each with its checksum in a file beside it."""
        from penstock.physical.elements import encode

        folder = self.root / "tables"
        for name, elements in tables.items():
            data = encode([elements.to_batch()])
            write_whole(folder / f"{name}.crc", sealed(str(zlib.crc32(data))))
            write_whole(folder / f"{name}.arrow", data)

    def tables(self) -> set[str]:
        return {path.stem for path in (self.root / "tables").glob("*.arrow")}

    def read_tables(self, names: Collection[str]) -> dict[str, Elements]:
        from penstock.physical.elements import Elements, decode

        found: dict[str, Elements] = {}
        for name in sorted(names):
            path = self.root / "tables" / f"{name}.arrow"
            try:
                with pa.memory_map(str(path)) as mapped:
                    data = mapped.read_buffer()
                if zlib.crc32(data) != int(unsealed(path.with_suffix(".crc").read_bytes())):
                    raise ValueError("it is not what was written")
                (batch,) = decode(data)
            except (OSError, ValueError, pa.ArrowInvalid) as error:
                raise damaged(path, error) from error
            found[name] = Elements.from_batch(batch)
        return found

    @property
    def dead_letters(self) -> str:
        return str(self.root / "dead-letters")

    # -- splits ------------------------------------------------------------------------------------------------

    def read_splits(self, source: str) -> list[Split]:
        path = self.root / "splits" / f"{source}.json"
        if not path.exists():
            return []
        try:
            return [Split(**json.loads(line)) for line in unsealed(path.read_bytes()).splitlines()]
        except (OSError, ValueError, TypeError) as error:
            raise damaged(path, error) from error

    def has_splits(self, source: str) -> bool:
        """Whether the source was looked through."""
        return (self.root / "splits" / f"{source}.json").exists()

    def write_splits(self, source: str, splits: Sequence[Split]) -> None:
        lines = "".join(json.dumps(asdict(split)) + "\n" for split in splits)
        write_whole(self.root / "splits" / f"{source}.json", sealed(lines))

    # -- what was seen -----------------------------------------------------------------------------------------

    def write_seen(self, round_: str, source: str, task: int, seen: Seen) -> None:
        write_whole(self.root / "seen" / round_ / f"{source}~{task}.json", sealed(json.dumps(asdict(seen))))

    def read_seen(self, round_: str) -> dict[str, Seen]:
        """What all tasks of a round saw, by source."""
        total: dict[str, Seen] = {}
        for path in sorted((self.root / "seen" / round_).glob("*.json")):
            try:
                seen = Seen(**json.loads(unsealed(path.read_bytes())))
            except (OSError, ValueError, TypeError) as error:
                raise damaged(path, error) from error
            total.setdefault(path.stem.rsplit("~", 1)[0], Seen()).add(seen)
        return total

    def rounds(self) -> list[str]:
        folder = self.root / "seen"
        return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.exists() else []

    # -- small marks of the driver -----------------------------------------------------------------------------

    def write_mark(self, name: str, value: Any) -> None:
        write_whole(self.root / f"{name}.json", sealed(json.dumps(value)))

    def read_mark(self, name: str) -> Any:
        path = self.root / f"{name}.json"
        try:
            return json.loads(unsealed(path.read_bytes())) if path.exists() else None
        except (OSError, ValueError) as error:
            raise damaged(path, error) from error


def round_name(number: int) -> str:
    return f"{number:09d}"


@lru_cache(maxsize=8)
def load_job(root: str, digest: str) -> tuple[Job, dict[str, Elements]]:
    """The job and its tables, once per worker process. digest: of the job, as the driver told it."""
    folder = Folder(root)
    job = folder.read_job(digest)
    return job, folder.read_tables(job.plan.statics)


def write_whole(path: Path, data: bytes, private: bool = False) -> None:
    """Whole or not at all, also across a crash. private: for this user's eyes only. Raises PenstockError P0601 where
    the disk takes no more."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            if private:
                temporary.chmod(_OWNER_ONLY)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> PenstockError:
    """The checkpoint cannot be written."""
    return PenstockError(
        "P0601", f"the checkpoint cannot be written: {path}: {error.strerror or error}", cause=error,
        hint="free space on that disk, or allow writing there, and start again with the same --checkpoint",
    )  # fmt: skip


def chunks_of(items: Sequence[Any], parts: int) -> Iterator[Sequence[Any]]:
    """`items` in at most `parts` runs of about equal length, in order."""
    size = -(-len(items) // max(1, parts))
    for start in range(0, len(items), max(1, size)):
        yield items[start : start + size]
