"""Epochs of a run, the versions of its plan: a new epoch begins whenever its script changes.

All of them use one log of Spark's.

`epochs/<n>.json` records, for people and for the next start, which queries the run answers from the batch `base` on:
the text of each, the fingerprint of what it computes, the epoch in which it began, its operators with the keys of their
state, and the same of the sources. It is data, sealed with a checksum, written whole before any batch of the epoch
runs; from then on the epoch exists. The files of an earlier epoch stay until the second batch of the new one is
delivered, since only then is the first one committed.

Most epochs differ from the one before in a query or two. So the file of an epoch may name an earlier one
(`Epoch.full`), and have those records alone that differ from it; and so may the file of that one, which then names one
with all records. Few records differ from the nearer one, so that an epoch writes few however many queries there are.
The files of both stay as long as they are named.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.algebra.nodes.query import Start, StartMode
from penstock.algebra.properties.statistics import SourceStatistics, Statistics
from penstock.physical.planning.sharing import Beginning
from penstock.runtime.spark.checkpoint.folder import Folder, write_whole
from penstock.runtime.spark.checkpoint.known_version import KnownVersion, Maturity
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.storage import storage
from penstock.storage.documents import Document
from penstock.storage.names import file_name
from penstock.storage.seals import damaged, other_format

#: The layout of these files, and of everything in a checkpoint but the state. A checkpoint with another number is
#: refused.
FORMAT = 13
#: The mark of the last round that was planned.
OFFSET = "offset"
#: The fields of an epoch that have a record by name.
_RECORDS = ("queries", "sources", "statistics", "paused")
#: These and the small ones, which each change once or twice and do not count as differences.
_BY_NAME = (*_RECORDS, "beginnings", "merges", "received")
#: What an epoch has in memory alone.
_IN_MEMORY = ("full", "known")
#: The file of an epoch has all its records where more than one of so many differs.
_CHANGED_PART = 8
#: The records that may differ from the nearer one of two epochs that a file refers to.
_NEAR = 12


@dataclass(frozen=True)
class QueryRecord:
    """One query of an epoch.

    Args:
        fingerprint: of what the query computes.
        birth: the epoch in which it began.
        sink: fingerprint of where its answer is written and of its columns.
        text: as in the script, without secrets.
        operators: its steps, for people.
        unit, calendar: of its time domain.
        id: of its result, never that of another one.
        whole: whether its result holds the answer from its beginning.
    """

    fingerprint: str
    birth: int
    sink: str
    text: str
    operators: list[dict[str, Any]]
    unit: str = "MICROSECOND"
    calendar: bool = True
    id: str = ""
    whole: bool = False


@dataclass(frozen=True)
class SourceRecord:
    """One source of an epoch. fingerprint: of the declaration and its rows; birth: the epoch in which it was first
    read; static: whether it is read once.
    """

    fingerprint: str
    birth: int
    static: bool = False


@dataclass(frozen=True)
class Received:
    """What the sink of a stream has received.

    Args:
        reached: the instant up to which it has all answers.
        rounds: what left early after one round of the run up to another one, as pairs of both, in their order.
        until: the heartbeat of the query up to which it receives no instant that is complete; None while the query is
            silent.
        since: the last round before the query began, where what left early after that is received.
    """

    reached: int
    rounds: tuple[tuple[int, int], ...] = ()
    until: int | None = None
    since: int = 0


@dataclass(frozen=True)
class PausedRecord:
    """One query that an epoch leaves out and whose result stays.

    Args:
        sink: fingerprint of where its answer is written and of its columns.
        received: what its sink has received.
        failure: why it was left out, None where the user paused it.
        id, whole: of its result.
    """

    sink: str
    received: Received
    failure: QueryFailure | None = None
    id: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Epoch:
    """One epoch.

    Args:
        base: its first batch.
        statistics: by birth, the statistics of the sources, and the shared panes and window stores used in planning.
        offset: the offset from which its sources continue, None for the beginning.
        backfill: queries that read their past first.
        starts: how those of them begin whose answer does not begin with the sources: (mode, tick of AT).
        frames: sources that Spark reads.
        left: the offset at which the epoch before it ended; None where there was none, or no round.
        command: number of the last command that it contains, 0 for none.
        outcomes: of the commands since the epoch before, by their numbers.
        paused: the queries that it leaves out and whose results stay.
        silent: the queries that run and whose sinks receive nothing, with the first batch of that.
        shown: those of which something is withheld until they are shown, with the batch since which it is.
        routes: of streams that were exchanged, the sinks that still receive their instants up to a tick, as pairs of
            that tick and the query whose sink it is, in order of time.
        answered: of streams whose results continue with this epoch, after which rounds and up to which ones they
            received what left early.
        received: of streams of which something is withheld, or has been, what their sinks had before that.
        past: the number under which its new queries have read their past ahead of it (`Job.past`); 0: its own.
        beginnings: by birth, what the maturity of its queries depends on, as JSON.
        merges: by the key of a step, that of the state which it shares with its twins.
        full: the epoch whose records its file refers to; None where it has all of them.
        known: what the process that began it knows of its queries.
    """

    number: int
    base: int
    queries: dict[str, QueryRecord]
    sources: dict[str, SourceRecord]
    stages: int
    shards: int
    strategy: str
    drain: bool
    state_store: str
    statistics: dict[str, Any]
    offset: Offset | None = None
    backfill: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    left: Offset | None = None
    command: int = 0
    outcomes: Document = field(default_factory=dict)
    paused: dict[str, PausedRecord] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    routes: dict[str, list[list[Any]]] = field(default_factory=dict)
    starts: dict[str, list[Any]] = field(default_factory=dict)
    answered: dict[str, list[list[int]]] = field(default_factory=dict)
    received: dict[str, Received] = field(default_factory=dict)
    past: int = 0
    beginnings: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    merges: dict[str, str] = field(default_factory=dict)
    full: Epoch | None = field(default=None, compare=False, repr=False)
    known: KnownVersion | None = field(default=None, compare=False, repr=False)

    def after(self, before: Epoch) -> Epoch:
        """Return this epoch, which follows `before`, so that its file has few records that an earlier one has."""
        # What is known of its queries would keep them in memory.
        here = before if before.known is None else replace(before, known=None)
        if len(before.bases) == 2 and (found := replace(self, full=before.full)).change_count <= _NEAR:
            return found
        whole = replace(self, full=here.bases[-1] if here.bases else here)
        if whole.change_count * _CHANGED_PART > sum(len(getattr(self, name)) for name in _RECORDS):
            return replace(self, full=None)
        if len(before.bases) == 1 and whole.change_count > _NEAR:
            near = replace(self, full=here)
            return near if near.change_count <= _NEAR else whole
        return whole

    @cached_property
    def differences(self) -> dict[str, tuple[dict[str, object], list[str]]]:
        """Return, by field, the records that the one does not have to which its file refers, and the names that are
        gone."""
        assert self.full is not None, "its file refers to another one"
        return _changes(self, self.full)

    @property
    def change_count(self) -> int:
        """Return the number of records that its file has beside those of the one to which it refers."""
        return sum(len(changed) + len(gone) for changed, gone in (self.differences[name] for name in _RECORDS))

    @property
    def bases(self) -> list[Epoch]:
        """Return the epochs whose files its own needs, the nearest first."""
        return [] if self.full is None else [self.full, *self.full.bases]

    @property
    def started(self) -> dict[str, Start]:
        """Return how the queries begin that read their past first."""
        everything = [StartMode.BEGINNING.value, None]
        starts = {name: self.starts.get(name, everything) for name in self.backfill}
        return {name: Start(StartMode(mode), at) for name, (mode, at) in starts.items()}

    @property
    def continued(self) -> set[str]:
        """Return the queries of whose answers something is withheld since it began."""
        return {name for name, since in self.shown.items() if since == self.base}

    def statistics_of(self, birth: int) -> Statistics:
        """Return the statistics with which the queries of `birth` were planned."""
        fields = self.statistics[str(birth)]
        return Statistics({n: SourceStatistics(**s) for n, s in fields["sources"].items()}, fields["shards"])

    def grains_of(self, birth: int) -> dict[str, int]:
        """Return the grains of the panes that the queries of `birth` were planned to share."""
        grains: dict[str, int] = self.statistics[str(birth)]["grains"]
        return grains

    @cached_property
    def maturity(self) -> Mapping[int, Beginning]:
        """Return, by birth, what the maturity of its queries depends on; queries that began with the run miss
        nothing."""
        return Maturity(self.beginnings)

    @property
    def births(self) -> dict[str, int]:
        """Return the epochs of the sources that did not begin with the run."""
        return {name: record.birth for name, record in self.sources.items() if record.birth}


def statistics_as_json(statistics: Statistics, grains: Mapping[str, int]) -> dict[str, object]:
    sources = {n: {"rate": s.rate, "distinct": dict(s.distinct)} for n, s in statistics.sources.items()}
    return {"sources": sources, "shards": statistics.shards, "grains": dict(grains)}


def _changes(epoch: Epoch, full: Epoch) -> dict[str, tuple[dict[str, object], list[str]]]:
    """Return, by field, the records of `epoch` that `full` does not have, and the names that `epoch` does not have."""
    changes: dict[str, tuple[dict[str, object], list[str]]] = {}
    for name in _BY_NAME:
        records, known = getattr(epoch, name), getattr(full, name)
        # Records that stay are the same objects, so that few are compared.
        changed = {n: r for n, r in records.items() if (k := known.get(n)) is not r and k != r}
        changes[name] = changed, [n for n in known if n not in records]
    return changes


def write_epoch(folder: Folder, epoch: Epoch) -> None:
    """Write the file of an epoch. Raises PenstockError P0601."""
    fields = {one.name: getattr(epoch, one.name) for one in dataclass_fields(epoch) if one.name not in _IN_MEMORY}
    offsets = {name: fields[name] for name in ("offset", "left")}
    fields |= {name: None if offset is None else offset.as_json() for name, offset in offsets.items()}
    changes = {} if epoch.full is None else epoch.differences
    fields |= {name: changed for name, (changed, _) in changes.items()}
    fields["gone"] = {name: gone for name, (_, gone) in changes.items()}
    fields["bases"] = [base.number for base in epoch.bases]
    # The checksum is that of one line, so that the rest of the file is as any JSON.
    text = json.dumps(fields, default=vars)
    checksum = _checksum(text, folder.place(_path(folder, epoch.number)))
    header = f'{{"format": {FORMAT}, "checksum": "{checksum}", "epoch":'
    write_whole(_path(folder, epoch.number), f"{header}\n{text}\n}}\n".encode())


def read_epoch(folder: Folder, number: int) -> Epoch:
    """Return epoch `number`. Raises PenstockError P0605 for one that is damaged or of another format."""
    fields = read_fields(folder, number)
    gone, bases, full = fields.pop("gone"), fields.pop("bases"), None
    if bases:
        if bases[0] >= number:
            raise damaged(_path(folder, number), ValueError(f"it refers to epoch {bases[0]}"))
        full = read_epoch(folder, bases[0])
        if bases != [base.number for base in (full, *full.bases)] or len(bases) > 2:
            raise damaged(_path(folder, number), ValueError(f"epoch {full.number} does not have all records"))
    kinds: dict[str, Callable[[Any], object]] = {
        "queries": lambda one: QueryRecord(**one),
        "sources": lambda one: SourceRecord(**one),
        "statistics": dict,
        "paused": _paused,
        "beginnings": dict,
        "merges": lambda one: one,
        "received": as_received,
    }
    for name, of_json in kinds.items():
        known = {} if full is None else getattr(full, name)
        kept = {n: record for n, record in known.items() if n not in gone.get(name, ())}
        fields[name] = kept | {n: of_json(record) for n, record in fields[name].items()}
    offset, left = (_offset(fields.pop(name)) for name in ("offset", "left"))
    return Epoch(offset=offset, left=left, full=full, **fields)


def read_fields(folder: Folder, number: int) -> dict[str, Any]:
    """Return what the file of an epoch contains. Raises PenstockError as `read_epoch`."""
    path = _path(folder, number)
    try:
        text = storage().read(path).decode()
        content = json.loads(text)
        form, fields = content["format"], content["epoch"]
        line = text.partition("\n")[2].removesuffix("\n}\n")
        if form == FORMAT and content["checksum"] != _checksum(line, folder.place(path)):
            raise ValueError("its content does not match its checksum")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    if form != FORMAT:
        raise other_format(path, form, FORMAT)
    assert isinstance(fields, dict), "its checksum is right"
    return fields


def _paused(fields: Mapping[str, Any]) -> PausedRecord:
    failure = None if fields["failure"] is None else QueryFailure(**fields["failure"])
    return PausedRecord(fields["sink"], as_received(fields["received"]), failure, fields["id"], fields["whole"])


def as_received(fields: Mapping[str, Any]) -> Received:
    """Return what the file of an epoch notes of a sink."""
    rounds = tuple((after, until) for after, until in fields["rounds"])
    return Received(fields["reached"], rounds, fields["until"], fields["since"])


def pending_failures(folder: Folder, epoch: Epoch | None) -> dict[str, QueryFailure]:
    """Return the queries of `epoch` that failed in the round delivered last and are in no later one."""
    delivery = folder.delivered()
    if epoch is None or delivery.failed is None or delivery.batch < epoch.base:
        return {}
    return {name: failure for name, failure in delivery.failed.items() if name in epoch.queries}


def _offset(fields: Mapping[str, Any] | None) -> Offset | None:
    return None if fields is None else Offset.from_json(fields)


@contextmanager
def remove_epoch_on_failure(folder: Folder, number: int) -> Iterator[None]:
    """Remove the file of an epoch if the change with which it would begin fails."""
    try:
        yield
    except BaseException:
        storage().remove(_path(folder, number))
        raise


def epoch_numbers(folder: Folder) -> list[int]:
    """Return the numbers of all epochs, oldest first."""
    stems = (name.removesuffix(".json") for name in storage().list(folder.root / "epochs") if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def latest_epoch(folder: Folder) -> Epoch | None:
    """Return the latest epoch, None for none. Raises PenstockError P0605 as `read_epoch`, and for a state whose epochs
    are gone."""
    numbers = epoch_numbers(folder)
    if numbers:
        return read_epoch(folder, numbers[-1])
    if storage().exists(folder.root / "state"):
        raise damaged(folder.root / "epochs", FileNotFoundError("it is gone"))
    return None


def is_committed(folder: Folder, epoch: Epoch) -> bool:
    """Return whether any batch of `epoch` has been delivered."""
    if epoch.frames:
        # Batches of sources that Spark reads may have no round.
        return folder.read_mark("totals") is not None
    return folder.delivered().batch >= epoch.base


def read_offset(folder: Folder, epoch: int = 0) -> Offset | None:
    """Return the offset of the last round that was planned, None before the first round of `epoch`."""
    offset = _offset(folder.read_mark(OFFSET))
    return None if offset is None or offset.epoch < epoch else offset


def outstanding_before(folder: Folder, epoch: int) -> int | None:
    """Return the round that an earlier epoch than `epoch` planned and that was not delivered; None for none. It is
    planned anew, until `epoch` has a round of its own.
    """
    offset = read_offset(folder)
    if offset is None or offset.epoch >= epoch or offset.round <= folder.delivered().round:
        return None
    return offset.round


def last_offset(folder: Folder, epoch: Epoch) -> Offset | None:
    """Return the offset at which `epoch` stands, or stood when a later one took over; None before its first round and
    where it began with the sources.
    """
    offset = read_offset(folder, epoch.number)
    if offset is None:
        return epoch.offset
    if offset.epoch == epoch.number:
        return offset
    return read_epoch(folder, min(n for n in epoch_numbers(folder) if n > epoch.number)).left


def source_file(name: str, births: Mapping[str, int]) -> str:
    """Return the name under which the splits of a source are kept; a source that was declared anew has a new name."""
    birth = births.get(name, 0)
    return f"{file_name(name)}@{birth}" if birth else file_name(name)


def forget_epochs(folder: Folder, committed: int) -> None:
    """Remove the files of the epochs that came before `committed`, of which a batch is committed. Those stay to which
    an epoch from it on refers.
    """
    numbers = epoch_numbers(folder)
    old = [number for number in numbers if number < committed]
    if not old:
        return
    referred: set[int] = set()
    for fields in (read_fields(folder, number) for number in numbers if number >= committed):
        referred.update(fields["bases"])
    for number in (n for n in old if n not in referred):
        storage().remove(_path(folder, number))


def _path(folder: Folder, number: int) -> Path:
    return folder.root / "epochs" / f"{number:04d}.json"


def _checksum(text: str, place: str) -> str:
    """Return the checksum of the line with the content of an epoch's file."""
    crc = zlib.crc32(f"{place}\n{text}".encode())
    return f"{crc:08x}"
