"""The contracts of sources and sinks. One file per connector in `sources/` and `sinks/`; the registries name them.

A *source* turns files or memory into `Split`s in arrival order, and a split into Arrow batches of the declared columns
plus the records it rejected. It does not interpret time: the ingest stamps rows and detects late ones. A *sink* writes
the finished batches of one query; writing the same batch twice leaves one copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import Heartbeat, StreamRecord
from penstock.algebra.properties.punctuations import Punctuation
from penstock.connectors.options import OptionTable
from penstock.errors import PenstockError
from penstock.expressions.nodes import Expression


@dataclass(frozen=True)
class Split:
    """A part of a source that one task reads, small enough to hold in memory.

    `path`: the file; `start`, `stop`: the format's own range inside it (row groups of parquet, record batches of arrow;
    0 and -1 mean the whole file); `bytes`: its stored size; `rows`: their number, when the file stores it; `low`,
    `high`: bounds of the timestamp column in ticks, when the file's statistics have them; `high` only where no record
    of the split can be rejected, so that it is the largest timestamp of accepted records; `detail`: further data that
    the connector needs to read it, in its own format; `heartbeat`: the tick of a heartbeat that stands at this place in
    place of records; `punctuation`: the text of a punctuation that does (`Punctuation.as_text`).
    """

    path: str
    start: int = 0
    stop: int = -1
    bytes: int = 0
    rows: int | None = None
    low: int | None = None
    high: int | None = None
    detail: str = ""
    heartbeat: int | None = None
    punctuation: str = ""

    @property
    def record(self) -> StreamRecord | None:
        """Return the record that stands in place of others; None where these do."""
        if self.punctuation:
            return Punctuation.from_text(self.punctuation)
        return None if self.heartbeat is None else Heartbeat(self.heartbeat)


@dataclass(frozen=True)
class Rejected:
    """A record that did not parse: its position, its text (cut at 1,000 characters), and the reason."""

    path: str
    line: int | None
    record: str
    reason: str


@dataclass(frozen=True)
class SkippedRecords:
    """Records that no query reads, by `SourceConnector.predicate`, and that were therefore skipped. All of them are
    well formed; only their timestamps have not been read.

    `rows`: their number, None where it is not known; `low`, `high`: the smallest and largest value of the timestamp
    column in ticks, where the file's statistics have them and none is NULL; `read`: returns the records with the
    columns at these positions, in order, if a caller needs them after all.
    """

    rows: int | None
    low: int | None
    high: int | None
    read: Callable[[tuple[int, ...]], Iterator[ParsedRecords]]


@dataclass(frozen=True)
class ParsedRecords:
    """Some records of a split, in order.

    `batch`: the requested columns with their declared types, named by the declaration; `rejected`: the records among
    them that did not parse; `where`: returns the position of a row of the batch, for dead letters, where it is more
    than the split's path; `positions`: of a log, the position reached with these records (`LogConnector`); `passed`:
    skipped records in place of this batch, which is then empty; `record`: a heartbeat or a punctuation in place of it.
    """

    batch: pa.RecordBatch
    rejected: tuple[Rejected, ...] = ()
    where: Callable[[int], tuple[str, int]] | None = None
    positions: Mapping[str, int] | None = None
    skipped: SkippedRecords | None = None
    record: StreamRecord | None = None


@dataclass(frozen=True)
class Target:
    """Where a result is written.

    `system`: the name space of the parts; `parts`: the names from the outermost inwards, so that the parts of a nested
    location begin with those of the outer one; `shown`: for messages; `shared`: whether several queries may write
    there, because each only appends; `blocked`: the existing file that prevents writing there.
    """

    system: str
    parts: tuple[str, ...]
    shown: str
    shared: bool = False
    blocked: str = ""

    def meets(self, other: Target) -> bool:
        """Return whether a writer to one of the two would write into the other."""
        if self.system != other.system or (self.shared and other.shared and self.parts == other.parts):
            return False
        depth = min(len(self.parts), len(other.parts))
        return self.parts[:depth] == other.parts[:depth]


class SourceConnector(ABC):
    """Read one declared source. Instances are cheap and picklable; workers create their own from the declaration."""

    #: The options of the connector.
    OPTIONS: ClassVar[OptionTable] = OptionTable()
    #: A condition over the declared columns: rows for which it is not true are read by no query; None if all are read.
    #: `read` may omit such rows if it reports them as `SkippedRecords`; a malformed record is never omitted.
    predicate: Expression | None = None
    #: Whether data can be read again long after its round; else `keep_in` stores what may be needed.
    rereadable: bool = True
    #: Whether the updates of a relation stay, though what is read of a stream goes: until the run that reads them has
    #: written what stands for them (`retention/compacted_updates.py`), and then forgets them from the first one on.
    keeps_relations: bool = False
    #: Whether `forget` removes what was read, so that nothing of it need be known any more.
    removes_read: bool = False
    #: Whether `check` reads files of this machine only, so that a script can be checked without a connection.
    in_local_files: bool = False
    #: Minimum number of seconds between two checks for new data.
    look_every: float = 0.25

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Return whether the source consists only of what is present at the start."""

    @classmethod
    def reads(cls, source: Source, target: Target) -> bool | None:
        """Return whether `source` reads what a query writes at `target`.

        None: it does not; True: it also reads data that is added later; False: it reads only what is present. Nothing
        is opened.
        """
        return None

    def keep_in(self, folder: Path) -> None:  # noqa: B027 - what can be read again needs none
        """Set a folder of the run for a source that cannot be read twice.

        `discover` stores what it has read there, completely and synced, before it returns. Called once, before anything
        else; the folder need not exist.
        """

    def forget(self, paths: Sequence[str]) -> None:  # noqa: B027 - what is not kept need not be forgotten
        """Release what is stored for these paths, which are not read again."""

    def reached(self) -> int | None:
        """Return the tick up to which nothing follows the paths discovered so far; None where that is not known."""
        return None

    def ignored(self, known: Set[str]) -> str | None:
        """Return a warning about data of a bounded source besides the paths `known` that will not be read; None if
        there is none.
        """
        return None

    @abstractmethod
    def check(self) -> None:
        """Check the source before the start.

        Raises:
            PenstockError: it cannot be read: P0401, P0402, P0404 or P0409.
        """

    @abstractmethod
    def discover(self, known: Set[str]) -> list[str]:
        """Return the paths not in `known`, in arrival order."""

    @abstractmethod
    def splits(self, path: str) -> list[Split]:
        """Return the splits of one path, in order.

        Raises:
            PenstockError: P0401, the path cannot be read.
        """

    @abstractmethod
    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        """Yield the records of a split: the declared columns at the positions `columns`, in that order.

        A truncated file gives the records that could be read and one `Rejected` for the remainder.
        """


@dataclass(frozen=True)
class Stretch:
    """The next part of a log to read.

    `state`: plain JSON, passed to the next call; `split`: what the next round reads, None for nothing; `ended`: whether
    the log has been read to its end; `lag`: number of records that wait to be read.
    """

    state: dict[str, Any]
    split: Split | None
    ended: bool
    lag: int


class LogConnector(SourceConnector):
    """A source that is not a list of files but grows at its ends, such as a topic: rounds store positions, not splits.

    `discover` and `splits` serve callers that read a bounded one whole. The last `ParsedRecords` of `read` has the
    position that it reached.
    """

    rereadable = False

    @abstractmethod
    def plan(
        self, state: dict[str, Any] | None, positions: Mapping[str, int] | None, limit: int | None = None
    ) -> Stretch:
        """Return what to read next.

        Args:
            state: of the previous stretch, None at the start.
            positions: reached by `read` in the previous split, if there was one.
            limit: approximate number of bytes to read.

        Raises:
            PenstockError: P0411 to P0413.
        """


_REFUSED = "leave such rows out in the query, or CAST; sources declared ON ERROR DEAD LETTER let a run go on"


@dataclass(frozen=True)
class ResultPlace:
    """Where a run keeps the results that belong to it. folder: of all of them; id: of the query in it, never that of
    another; limit: bytes of all results in the folder; whole: whether the answer is written from its beginning."""

    folder: Path
    id: str
    limit: int
    whole: bool = True


class BatchLog(ABC):
    """What several sinks of a run write together, one file a batch."""

    @abstractmethod
    def commit(self, batch: int, heartbeats: Mapping[str, int], queries: Collection[str]) -> None:
        """Make visible what the sinks of `queries` have written of a batch, completely or not at all.

        Args:
            heartbeats: by query id, the tick up to which the answer is final.
            queries: the ids of those that write this batch; what others have written of it stays.

        Raises:
            PenstockError: P0502; then nothing of the batch is visible.
        """


class Sink(ABC):
    """Write the result of one query, whose columns are named `query.output_names`.

    A row with a value that the sink cannot hold is refused alone. `run`: identifies the run that writes, the same after
    a restart from its checkpoint; `beside`: whether it may write in another thread while other sinks write.
    """

    #: The options of the connector.
    OPTIONS: ClassVar[OptionTable] = OptionTable()
    run: str = ""
    beside: bool = False
    #: Whether every batch with rows leaves a part of its own, whose presence `missing` checks.
    leaves_parts: bool = False
    #: Whether an answer without rows has to be written too.
    writes_empty: bool = True
    #: Where the run keeps results that belong to it; the run sets it before `open`.
    own_place: ResultPlace | None = None
    #: What an open sink writes to together with others; its batches count when that is committed.
    log: BatchLog | None = None
    #: What to do about a row that cannot be written.
    REFUSED_HINT: ClassVar[str] = _REFUSED

    def __init__(self, query: Query) -> None:
        self.query = query
        #: Called with the number of a batch and its rows that cannot be written, in their order, before the others are
        #: committed. Called again with them where the batch is tried again. Raises PenstockError to fail the run, as
        #: the default does.
        self.refuse: Callable[[int, Sequence[Rejected]], None] = self.fail_of

    def fail_of(self, batch: int, rows: Sequence[Rejected]) -> None:
        """Raise PenstockError P0502 for the first of some rows that cannot be written."""
        message = f"query {self.query.name}: a row cannot be written to {self.place}: {rows[0].reason}"
        raise PenstockError("P0502", f"{message}; the row: {rows[0].record[:200]}", hint=self.REFUSED_HINT)

    @classmethod
    def target(cls, query: Query) -> Target | None:
        """Return where the result of `query` will be written; None where no other result can collide with it. Nothing
        is opened.
        """
        return None

    @abstractmethod
    def open(self, resume: bool, overwrite: bool) -> None:
        """Prepare for writing.

        Args:
            resume: continue a result of the same run (a checkpoint exists).
            overwrite: remove an existing result of another run.

        Raises:
            PenstockError: P0501, a result exists and neither argument is set.
        """

    def set_bounds(self, query: Query) -> None:
        """Go on with the bounds among the options of a query, which writes the same result otherwise. Raises
        PenstockError P0502."""
        self.query = query

    @abstractmethod
    def write(self, batch: int, table: pa.Table) -> None:
        """Commit one finished batch, completely or not at all.

        Columns are `output_names`, `ts` in its domain's type, rows in ts order. Batches arrive in the order of their
        numbers, and the last one may be repeated: it then changes nothing.

        Raises:
            PenstockError: P0502; then nothing of the batch is visible.
        """

    def write_pieces(self, batch: int, pieces: Iterator[pa.Table]) -> None:
        """Commit one batch from one or more pieces, each computed when it is requested; otherwise like `write`.

        A sink that can write them one after the other need not hold the whole batch.
        """
        self.write(batch, pa.concat_tables(pieces))

    def missing(self, batches: Sequence[int]) -> Mapping[str, int]:
        """Return the missing parts of these batches: name -> batch. Called before `open`."""
        return {}

    def withdraw(self) -> None:  # noqa: B027 - what others may have read by now stays
        """Remove what was written since `open` began this result, where the sink can identify it: the change that would
        have added the query has failed. Raises PenstockError P0502."""

    def close(self) -> None:  # noqa: B027 - a sink that holds nothing open needs none
        """Release all open resources."""

    @property
    def place(self) -> str:
        """Return the location of the result, for the summary."""
        return ""
