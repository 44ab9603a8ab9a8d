"""Files that the driver and the workers of a job share, under the checkpoint.

    epochs/             the epochs of the run: script and plan as data (`epochs.py`)
    job.pickle          the job, from the driver to the workers of this start, without the parts of its plan; that of
                        another start is never read (`runtime/spark/worker/job_files.py`)
    plans/              the parts of its plan, written when their queries begin
    tables/             static relations, computed before the start, as Arrow files
    splits/             per source the splits known so far, in files (`input/split_files.py`)
    rounds/             what each round reads, one file a task of Spark (`round_log.py`)
    state/              per stage and shard the state in files (`state_files.py`)
    history/            what the rounds of a live run have read, a block of rounds in a file (`round_history.py`)
    backfill/           the state of queries that read their past and have not joined the others yet (`hydration/`)
    kept/               records of sources that cannot be read twice, a folder each; removed after their rounds
    compacted/          the first updates of posted relations, a folder each (`retention/compacted_updates.py`)
    retained/           the accepted elements of streams that RETAIN them, a folder each (`retention/retained_log.py`)
    rejected/           which of them promises that are CHECKED have rejected (`retention/rejected_log.py`)
    pins/               what a reader of the past holds back from being removed
    punctuations/       what streams keep of them, where they are many (`kept_punctuations.py`)
    seen/               per round and task of Spark what an ingest task saw; the next round starts from it
    emitted/            what relation queries have emitted into sinks that a run cannot read (`recorded_sink.py`)
    undelivered/        answers that a sink did not take, of queries that were left out (`undelivered.py`)
    surplus/            answers of some shards that go beyond what all shards have reached (`surplus.py`)
    withheld/           what sinks have not received yet: of silent queries, and of relations whose results continue
                        (`withheld.py`)
    dead-letters/       rejected records
    run.json            the run's name. Every seal contains it, with the path below this folder, so that no file is
                        accepted for another, nor for one of another run

All of it is private to the user who started the run. No file name is a user's text itself (`storage/names.py`).
"""

from __future__ import annotations

import errno
import json
import os
import uuid
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError
from penstock.runtime.result_limits import ResultLimits
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.storage import storage
from penstock.storage.documents import Json
from penstock.storage.names import file_name
from penstock.storage.seals import damaged, sealed, unsealed

if TYPE_CHECKING:
    # Only processes that compute load the compiled operators: importing them takes most of a second.
    from penstock.physical.elements import Elements
    from penstock.physical.execution.wall_clock import Peers
    from penstock.physical.plan.plan import Plan


T = TypeVar("T")

#: The round under which the static relations, read before the start, are counted.
STATICS = "statics"
RUN = "run.json"
#: Folders that this process is using.
_HELD: set[str] = set()


@dataclass(frozen=True)
class Intake:
    """What is read and how much at once.

    Args:
        sources: the timed sources that Penstock's reader reads.
        spark_sources: those read as Spark DataFrames.
        parallelism: maximum number of tasks that read in parallel.
        frames: the declarations of `spark_sources`.
        peers: by source, the sources that meet it in a query.
        births: the epoch in which each source began, where it is not 0.
        pace: rate control, with the maximum input of a batch.
        unread: those of `sources` that no query reads; their position moves on.
        heartbeats: by stream that is not posted to, the posts that are heartbeats of it.
        judged: the streams all of whose promises that are CHECKED are checked beside the queries.
    """

    sources: tuple[Source, ...]
    spark_sources: frozenset[str]
    parallelism: int
    frames: Mapping[str, Source] = field(default_factory=dict)
    peers: Peers = field(default_factory=dict)
    births: Mapping[str, int] = field(default_factory=dict)
    pace: RateControl = field(default_factory=RateControl)
    unread: frozenset[str] = frozenset()
    heartbeats: Mapping[str, Source] = field(default_factory=dict)
    judged: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Job:
    """The job as a worker needs it.

    Args:
        keys: for each shard the key that stands for it in Spark's shuffle.
        state_store: `files`, or `spark` for Spark's own.
        cache_bytes: state that a worker process keeps in memory between batches.
        epoch: number of changes of the run's script.
        base: the first batch of this epoch.
        standing: whether it goes on when all its sources have ended.
        isolated: whether a query whose step or sink fails is left out while the others go on.
        past: the number of the folder in which new queries of this epoch have read their past; 0 where none has.
        limits: how much of the answers of queries may be computed and not delivered.
        function_seconds: that a call of a user-defined function may take, None for any time.
        punctuations: that a stream keeps at most.
    """

    plan: Plan
    shards: int
    keys: tuple[int, ...]
    drain: bool
    intake: Intake
    state_store: str = "files"
    cache_bytes: int = 2**30
    epoch: int = 0
    base: int = 0
    standing: bool = False
    isolated: bool = False
    past: int = 0
    limits: ResultLimits = field(default_factory=ResultLimits)
    function_seconds: float | None = None
    punctuations: int = 1_000_000

    @property
    def all_sources(self) -> dict[str, Source]:
        """Return the timed sources and the static relations by name."""
        statics = {name: source for plan in self.plan.statics.values() for name, source in plan.sources.items()}
        return {**self.plan.sources, **statics}

    def ends(self, ended: Collection[str]) -> bool:
        """Return whether the run ends where the sources `ended` have ended: a job without queries waits for some."""
        return bool(self.plan.queries) and not self.standing and self.plan.sources.keys() <= set(ended)


@dataclass
class Seen:
    """What one task observed of a source in one round.

    Args:
        high: the largest timestamp.
        lag: the slack that would have kept its late elements, in ticks.
        positions: of a log, the positions up to which it is read.
        passed: rows that its reader skipped because no query reads them.
        jump: the most ticks by which one element advanced the largest timestamp.
        beat: the heartbeat that records have set, those before it too; None for none.
        punctuations: those that have come and are kept, as text; of rows that Spark reads all that are kept.
    """

    high: int | None = None
    rows: int = 0
    late: int = 0
    lag: int = 0
    malformed: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    passed: int = 0
    jump: int = 0
    beat: int | None = None
    punctuations: list[str] = field(default_factory=list)

    def add(self, other: Seen) -> None:
        self.high = max((high for high in (self.high, other.high) if high is not None), default=None)
        self.beat = max((beat for beat in (self.beat, other.beat) if beat is not None), default=None)
        self.rows += other.rows
        self.passed += other.passed
        self.late += other.late
        self.lag = max(self.lag, other.lag)
        self.jump = max(self.jump, other.jump)
        self.positions |= other.positions
        self.punctuations += other.punctuations
        for reason, count in other.malformed.items():
            self.malformed[reason] = self.malformed.get(reason, 0) + count


@dataclass(frozen=True)
class Delivery:
    """The mark of the answers that were delivered last.

    Args:
        round: their round, 0 before the first.
        batch: their batch, -1 before the first.
        seen: by source, what the tasks of the round observed; None where Spark plans the rounds.
        answers: bytes of the answers, None where they were not counted.
        ended: whether all sources had ended with it, None for no.
        failed: the queries that failed in it, None for none; the version after it leaves them out.
        behind: whether answers are due that later rounds emit, None for no.
    """

    NAME: ClassVar[str] = "delivered"

    round: int = 0
    batch: int = -1
    seen: Mapping[str, Seen] | None = None
    answers: int | None = None
    ended: bool | None = None
    failed: Mapping[str, QueryFailure] | None = None
    behind: bool | None = None

    def as_json(self) -> dict[str, Json]:
        """Return the mark as JSON. Fields that hold nothing are left out: a mark is written for each batch."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Delivery:
        """Return the mark that `as_json` wrote."""
        seen = {source: Seen(**data) for source, data in fields["seen"].items()} if "seen" in fields else None
        failed = {query: QueryFailure(**data) for query, data in fields.get("failed", {}).items()} or None
        answers, ended, behind = (fields.get(name) for name in ("answers", "ended", "behind"))
        return Delivery(fields["round"], fields["batch"], seen, answers, ended, failed, behind)


@dataclass(frozen=True)
class Finish:
    """The mark of a run whose sources have ended: its last batch, and the epoch of that."""

    NAME: ClassVar[str] = "finished"

    batch: int
    epoch: int


class Folder:
    """The shared folder of one job."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._run = ""

    @property
    def results(self) -> Path:
        """Return the folder of the results that the run itself keeps, beside this one."""
        return self.root.parent / "results"

    @property
    def emitted(self) -> Path:
        """Return the folder of what relation queries have emitted into other sinks than the results of the run."""
        return self.root / "emitted"

    # -- sealed files ------------------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """Return the run's name; empty before it has one. Raises PenstockError P0605."""
        path = self.root / RUN
        if not self._run and storage().exists(path):
            try:
                self._run = str(json.loads(unsealed(storage().read(path), RUN)))
            except (OSError, ValueError) as error:
                raise damaged(path, error) from error
        return self._run

    def begin_run(self) -> str:
        """Return the run's name, choosing one if it has none."""
        # An earlier run may have been removed since its name was read.
        self._run = ""
        if not self.run:
            write_whole(self.root / RUN, sealed(json.dumps(uuid.uuid4().hex), RUN))
        return self.run

    def place(self, path: Path) -> str:
        """Return the place by which the file at `path` in this folder is sealed."""
        return f"{self.run} {path.relative_to(self.root).as_posix()}"

    def write_sealed(self, path: Path, text: str, durable: bool = True) -> None:
        """Write a file of this folder whole. Raises PenstockError P0601."""
        write_whole(path, sealed(text, self.place(path)), durable)

    def read_sealed(self, path: Path) -> str:
        """Return what was written to `path`, and to no other place. Raises OSError and ValueError."""
        return unsealed(storage().read(path), self.place(path))

    # -- static relations --------------------------------------------------------------------------------------

    def write_tables(self, tables: Mapping[str, Elements]) -> None:
        """Write static relations, each with its checksum in a file beside it."""
        from penstock.physical.elements import encode

        folder = self.root / "tables"
        for name, elements in tables.items():
            data = encode([elements.to_batch()])
            self.write_sealed(folder / f"{name}.crc", str(zlib.crc32(data)))
            write_whole(folder / f"{name}.arrow", data)

    def tables(self) -> set[str]:
        return {
            name.removesuffix(".arrow") for name in storage().list(self.root / "tables") if _is_file(name, ".arrow")
        }

    def read_tables(self, names: Collection[str]) -> dict[str, Elements]:
        from penstock.physical.elements import Elements, decode

        tables: dict[str, Elements] = {}
        for name in sorted(names):
            path = self.root / "tables" / f"{name}.arrow"
            try:
                data = storage().map(path)
                if zlib.crc32(data) != int(self.read_sealed(path.with_suffix(".crc"))):
                    raise ValueError("its content does not match its checksum")
                (batch,) = decode(data)
            except (OSError, ValueError, pa.ArrowInvalid) as error:
                raise damaged(path, error) from error
            tables[name] = Elements.from_batch(batch)
        return tables

    @property
    def dead_letters(self) -> str:
        return str(self.root / "dead-letters")

    # -- what was seen -----------------------------------------------------------------------------------------

    def write_seen(self, round_: str, task: int, seen: Sequence[tuple[str, Seen]], durable: bool = True) -> None:
        """Write what a task of Spark observed of sources, at least one.

        Args:
            task: the number of its first read task.
            durable: not needed where the delivery mark of the round holds it too.
        """
        path = self.root / "seen" / round_ / f"{file_name(seen[0][0])}.{task}.json"
        observed = [{"source": source, **asdict(one)} for source, one in seen]
        self.write_sealed(path, json.dumps(observed), durable)

    def read_seen(self, round_: str) -> dict[str, Seen]:
        """Return what all tasks of a round observed, by source."""
        total: dict[str, Seen] = {}
        folder = self.root / "seen" / round_
        for name in storage().list(folder):
            if not _is_file(name, ".json"):
                continue
            try:
                observed = [(one.pop("source"), Seen(**one)) for one in json.loads(self.read_sealed(folder / name))]
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise damaged(folder / name, error) from error
            for source, seen in observed:
                total.setdefault(source, Seen()).add(seen)
        return total

    def seen_in(self, round_: str) -> dict[str, Seen]:
        """Return what was observed in a round whose answers may have been delivered; from then on the delivery mark
        holds it.
        """
        mark = self.delivered()
        if mark.seen is not None and round_name(mark.round) == round_:
            return dict(mark.seen)
        return self.read_seen(round_)

    def rounds(self) -> list[str]:
        return storage().list(self.root / "seen")

    def forget_seen(self, round_: str) -> None:
        storage().remove_tree(self.root / "seen" / round_)

    # -- small marks of the driver -----------------------------------------------------------------------------

    def delivered(self) -> Delivery:
        """Return the mark of what was delivered last."""
        fields = self.read_mark(Delivery.NAME)
        return Delivery() if fields is None else Delivery.from_json(fields)

    def write_delivered(self, mark: Delivery) -> None:
        self.write_mark(Delivery.NAME, mark.as_json())

    def finished(self) -> Finish | None:
        """Return the mark of the run's end, None while sources have not ended."""
        fields = self.read_mark(Finish.NAME)
        return None if fields is None else Finish(**fields)

    def write_finished(self, mark: Finish) -> None:
        self.write_mark(Finish.NAME, asdict(mark))

    def write_mark(self, name: str, value: Json) -> None:
        self.write_sealed(self.root / f"{name}.json", json.dumps(value))

    def read_mark(self, name: str) -> Any:
        path = self.root / f"{name}.json"
        try:
            return json.loads(self.read_sealed(path)) if storage().exists(path) else None
        except (OSError, ValueError) as error:
            raise damaged(path, error) from error


def _is_file(name: str, ending: str) -> bool:
    """Return whether a file has this ending and is not temporary."""
    return name.endswith(ending) and not name.startswith(".")


def round_name(number: int) -> str:
    return f"{number:09d}"


def write_whole(path: Path, data: bytes | memoryview, durable: bool = True) -> None:
    """Write a file of the checkpoint whole or not at all; with `durable` this holds across a loss of power. Raises
    PenstockError P0601 where it cannot be written.
    """
    try:
        storage().write(path, data, durable=durable)
    except OSError as error:
        raise unwritable(path, error) from error


#: What helps, by the error number of the system; either may help for rarer numbers.
_REMEDIES = {
    errno.ENOSPC: "free space on that disk",
    errno.EDQUOT: "free space on that disk",
    errno.EACCES: "allow writing there",
    errno.EPERM: "allow writing there",
    errno.EROFS: "allow writing there",
}


def unwritable(path: Path, error: OSError) -> PenstockError:
    """Return the error for a checkpoint that cannot be written."""
    remedy = _REMEDIES.get(error.errno or 0, "free space on that disk, or allow writing there,")
    return PenstockError(
        "P0601",
        f"the checkpoint cannot be written: {path}: {error.strerror or error}",
        cause=error,
        hint=f"{remedy} and start again with the same --checkpoint",
    )


def chunks_of(items: Sequence[T], parts: int) -> Iterator[Sequence[T]]:
    """Yield `items` in at most `parts` runs of about equal length, in order."""
    size = -(-len(items) // max(1, parts))
    for start in range(0, len(items), max(1, size)):
        yield items[start : start + size]


def hold(folder: str) -> None:
    """Note that this process is using a folder, which is not removed with the files of older epochs."""
    _HELD.add(folder)


def let_go(folder: str) -> None:
    """Note that a folder is no longer in use."""
    _HELD.discard(folder)


def is_held(folder: str) -> bool:
    """Return whether this process is using a folder."""
    return folder in _HELD
