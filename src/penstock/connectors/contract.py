"""What a source and a sink promise. One file per connector in `sources/` and `sinks/`; the registries name them.

A *source* turns places (files, memory) into `Split`s in arrival order, and a split into Arrow batches of the declared
columns plus the records it had to reject. It knows nothing of time: stamping and lateness are the ingest's work.
A *sink* takes the finished batches of one query; writing the same batch twice leaves one copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError
from penstock.expressions.nodes import Expression


@dataclass(frozen=True)
class Split:
    """A piece of a source that one task reads, small enough to hold in memory.

    path: the file; start, stop: the format's own range inside it (row groups of parquet, record batches of arrow;
    0 and -1 mean the whole file); bytes: its stored size; rows: how many, when the file says so;
    low, high: bounds of the timestamp column in ticks, when the file's statistics say so; `high` only where no record
    of the piece can be rejected, so that it is the largest timestamp of those that count;
    detail: what else the connector wants to know when it reads it, in its own words.
    """

    path: str
    start: int = 0
    stop: int = -1
    bytes: int = 0
    rows: int | None = None
    low: int | None = None
    high: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Rejected:
    """A record that did not parse: where it stood, what it was (cut at 1,000 characters), and why."""

    path: str
    line: int | None
    record: str
    reason: str


@dataclass(frozen=True)
class PassedOver:
    """Records that no query reads, by `SourceConnector.wanted`, and that have not been read therefore. All of them are
    well formed: they only have not been stamped.

    rows: how many, None where that is not known; low, high: the smallest and largest value of the timestamp column in
    ticks, where the file's statistics say so and that none is NULL; read: the records with the columns at these
    positions, in order, for those who need to see them."""

    rows: int | None
    low: int | None
    high: int | None
    read: Callable[[tuple[int, ...]], Iterator[ParsedRecords]]


@dataclass(frozen=True)
class ParsedRecords:
    """Some records of a split, in order. batch: the asked columns with their declared types, named by the declaration;
    rejected: the records among them that did not parse; where: tells where a row of the batch stands, for dead letters,
    where that is more than the split's path; positions: of a log, how far it is read with this (`LogConnector`);
    passed: records that come in the place of this batch, which is then empty."""

    batch: pa.RecordBatch
    rejected: tuple[Rejected, ...] = ()
    where: Callable[[int], tuple[str, int]] | None = None
    positions: Mapping[str, int] | None = None
    passed: PassedOver | None = None


@dataclass(frozen=True)
class Target:
    """Where a result lies. system: what the parts are names in; parts: the names from the outermost on, so that a place
    inside another begins with its parts; shown: for messages; shared: whether several may write there, because each
    only adds to what is there; blocked: what stands in its way already."""

    system: str
    parts: tuple[str, ...]
    shown: str
    shared: bool = False
    blocked: str = ""

    def meets(self, other: Target) -> bool:
        """Whether one of the two would write into the other."""
        if self.system != other.system or (self.shared and other.shared and self.parts == other.parts):
            return False
        depth = min(len(self.parts), len(other.parts))
        return self.parts[:depth] == other.parts[:depth]


class SourceConnector(ABC):
    """Reads one declared source. Instances are cheap and picklable; workers make their own from the declaration."""

    #: Rows for which this is not true are read by no query; None where all are. Over the declared columns. What `read`
    #: gives may leave such rows out where it tells them as `PassedOver`; a record that is malformed is never left out.
    wanted: Expression | None = None
    #: Whether what was read can be read again when its rounds are long over; else `keep_in` holds what still can.
    rereadable: bool = True
    #: Seconds that lie between two looks for something new, at the least.
    look_every: float = 0.25

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the places present at the start are all there will be."""

    @classmethod
    def reads(cls, source: Source, target: Target) -> bool | None:
        """Whether `source` reads what a query writes at `target`: None if not; else True where it goes on to read what
        comes later. Nothing is opened."""
        return None

    def keep_in(self, folder: Path) -> None:  # noqa: B027 - what can be read again needs none
        """A folder of the run's own, for a source that cannot be read twice: what `discover` has read goes there, whole
        and on disk, before it is returned. Called once, before anything else; the folder need not exist."""

    def forget(self, paths: Sequence[str]) -> None:  # noqa: B027 - what is not kept need not be forgotten
        """These paths are not read again: what is kept of them may go."""

    def reached(self) -> int | None:
        """Beyond the paths discovered so far nothing comes with this timestamp, in ticks, or one below; None where that
        is not known."""
        return None

    def ignored(self, known: frozenset[str]) -> str | None:
        """A warning about what a bounded source has beside the paths `known`, and will not read; None for nothing."""
        return None

    @abstractmethod
    def check(self) -> None:
        """Refuse before the start what cannot work: raises PenstockError P0401, P0402, P0404 or P0409."""

    @abstractmethod
    def discover(self, known: frozenset[str]) -> list[str]:
        """Paths not in `known`, in arrival order."""

    @abstractmethod
    def splits(self, path: str) -> list[Split]:
        """The pieces of one path, in order. Raises PenstockError P0401 when it cannot be read."""

    @abstractmethod
    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        """The records of a split: the declared columns at the positions `columns`, in that order. A file that breaks
        off in the middle gives what could be read and one `Rejected` for the rest."""


@dataclass(frozen=True)
class Stretch:
    """What a log has to read next. state: what to hand in next time, plain JSON; split: what the next round reads, None
    for nothing; ended: whether all has been read that there will be; lag: records that wait to be read."""

    state: dict[str, Any]
    split: Split | None
    ended: bool
    lag: int


class LogConnector(SourceConnector):
    """A source that is no list of files but grows at its ends, such as a topic: rounds keep positions, not splits.

    `discover` and `splits` serve those who read a bounded one whole. `read` says with the last `ParsedRecords` how far
    it got."""

    rereadable = False

    @abstractmethod
    def plan(
        self, state: dict[str, Any] | None, positions: Mapping[str, int] | None, limit: int | None = None
    ) -> Stretch:
        """What to read next. state: of the stretch before, None at the start; positions: what `read` said of its split,
        if it had one; limit: about how many bytes. Raises PenstockError P0411 to P0413."""


_REFUSED = "leave such rows out in the query, or CAST; sources declared ON ERROR DEAD LETTER let a run go on"


class Sink(ABC):
    """Writes the result of one query. A row with a value that it cannot hold is refused alone. `query.output_names` are
    the columns' names; run: names the run that writes, the same after a restart from its checkpoint; beside: whether it
    may write while other sinks do, in another thread."""

    run: str = ""
    beside: bool = False
    #: Whether every batch with rows leaves a part of its own, of which `missing` finds out whether it is there.
    leaves_parts: bool = False

    def __init__(self, query: Query) -> None:
        self.query = query
        #: Called with the number of a batch and its rows that cannot be written, in their order, before the others are
        #: committed. Called again with them where the batch is tried again. Raises PenstockError for a run that is to
        #: fail of them, as it does where nobody keeps them.
        self.refuse: Callable[[int, Sequence[Rejected]], None] = self.fail_of

    def fail_of(self, batch: int, rows: Sequence[Rejected]) -> None:
        """Raise PenstockError P0502 for the first of some rows that cannot be written."""
        message = f"query {self.query.name}: a row cannot be written to {self.place}: {rows[0].reason}"
        raise PenstockError("P0502", f"{message}; the row: {rows[0].record[:200]}", hint=_REFUSED)

    @classmethod
    def target(cls, query: Query) -> Target | None:
        """Where the result of `query` will lie; None where it meets no other. Nothing is opened."""
        return None

    @abstractmethod
    def open(self, resume: bool, overwrite: bool) -> None:
        """Make ready. resume: continue a result of the same run (a checkpoint exists), else refuse what exists with
        PenstockError P0501 unless `overwrite`, which removes it."""

    @abstractmethod
    def write(self, batch: int, table: pa.Table) -> None:
        """Commit one finished batch, whole or not at all: columns as `output_names`, `ts` in its domain's type, rows in
        ts order. Batches come in the order of their numbers, and the last one may come again: it then changes nothing.
        Raises PenstockError P0502; then nothing of it is visible."""

    def write_pieces(self, batch: int, pieces: Iterator[pa.Table]) -> None:
        """`write`, of a table that comes in pieces, at least one, each made as it is asked for. A sink that can take
        them up one after the other need not hold all of the batch."""
        self.write(batch, pa.concat_tables(pieces))

    def missing(self, batches: Sequence[int]) -> Mapping[str, int]:
        """What is gone of the parts that these batches have left: by its name, its batch. Asked before `open`."""
        return {}

    def close(self) -> None:  # noqa: B027 - a sink that holds nothing open needs none
        """Release what is open."""

    @property
    def place(self) -> str:
        """Where the result lies, for the summary."""
        return ""
