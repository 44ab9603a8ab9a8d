"""Epochs of a run, the versions of its plan: a new epoch begins whenever its script changes.

All of them use one log of Spark's. A script that changed between two starts once began a log of its own, so an epoch
records which one it uses.

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
from penstock.algebra.optimizer.statistics import SourceStatistics, Statistics
from penstock.errors import PenstockError
from penstock.physical.execution.progress import NOTHING
from penstock.physical.planning.sharing import Beginning
from penstock.runtime.spark.checkpoint.folder import Folder, write_whole
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.known_version import KnownVersion, Maturity
from penstock.storage import storage
from penstock.storage.documents import Document
from penstock.storage.names import file_name
from penstock.storage.seals import damaged

#: The layout of these files, and of everything in a checkpoint but the state. Format 2 derives no file name from a
#: user's text unchanged, and seals each file for its run and place. Format 3 has epochs that refer to others; a
#: checkpoint of format 2 is taken over, and its next epoch has the present one. Format 4 has merges of steps, whose
#: state goes by other keys; format 3 has none. Format 5 has window stores among the choices of a birth
#: (`Generation.grains`), format 6 logs and windows behind the exchange too, and merges of more kinds of steps; queries
#: of earlier formats have none, and keep the steps that they have. Format 7 says what sinks had before something was
#: withheld of them; its epochs use one log, whatever the script was. Format 8 names states apart from where they lie
#: (`planning/merging.py`); before, a name was a place. Format 9 has joins that take their results back, and the stores
#: that they read, among the choices of a birth. Format 10 has epochs that refer to one that refers to another, and
#: files of a round with several read tasks.
FORMAT, _WITHOUT_CHAINS, _WITHOUT_TAKEN_BACK, _WITHOUT_MOVES, _WITHOUT_RECEIVED = 10, 9, 8, 7, 6
_WITHOUT_LOGS, _WITHOUT_STORES = 5, 4
_WITHOUT_MERGES, _WITHOUT_REFERENCES = 3, 2
#: The earlier formats whose checksum is that of the text, as now.
_READ_AS_TEXT = (
    _WITHOUT_CHAINS, _WITHOUT_TAKEN_BACK, _WITHOUT_MOVES, _WITHOUT_RECEIVED, _WITHOUT_LOGS, _WITHOUT_STORES,
    _WITHOUT_MERGES,
)  # fmt: skip
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
        failure: why it was left out, None where the user paused it.
        id, whole: of its result.
        received: what its sink has received; None where that was not noted.
    """

    sink: str
    failure: QueryFailure | None = None
    id: str = ""
    whole: bool = False
    received: Received | None = None


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
        log: the epoch that began the log of Spark's that this one continues; its own number where it began one.
        log_base: the first batch of that log.
        left: the offset at which the epoch before it ended, where it continues that one's log.
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
    log: int = 0
    log_base: int = 0
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
    def differences(self) -> dict[str, tuple[dict[str, Any], list[str]]]:
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


def statistics_as_json(statistics: Statistics, grains: Mapping[str, int]) -> dict[str, Any]:
    sources = {n: {"rate": s.rate, "distinct": dict(s.distinct)} for n, s in statistics.sources.items()}
    return {"sources": sources, "shards": statistics.shards, "grains": dict(grains)}


def _changes(epoch: Epoch, full: Epoch) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Return, by field, the records of `epoch` that `full` does not have, and the names that `epoch` does not have."""
    changes: dict[str, tuple[dict[str, Any], list[str]]] = {}
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
    if epoch.full is not None:
        changes = epoch.differences
        fields |= {name: changed for name, (changed, _) in changes.items()}
        fields |= {"full": epoch.full.number, "gone": {name: gone for name, (_, gone) in changes.items() if gone}}
        fields["bases"] = [base.number for base in epoch.bases]
    # The checksum is that of one line, so that the rest of the file is as any JSON.
    text = json.dumps(fields, default=vars)
    checksum = _checksum(text, folder.place(_path(folder, epoch.number)))
    header = f'{{"format": {FORMAT}, "checksum": "{checksum}", "epoch":'
    write_whole(_path(folder, epoch.number), f"{header}\n{text}\n}}\n".encode())


def read_epoch(folder: Folder, number: int) -> Epoch:
    """Return epoch `number`. Raises PenstockError P0605 for one that is damaged or of another format."""
    fields = read_fields(folder, number)
    full = None
    if "full" in fields:
        if fields["full"] >= number:
            raise damaged(_path(folder, number), ValueError(f"it refers to epoch {fields['full']}"))
        full = read_epoch(folder, fields.pop("full"))
        bases = [base.number for base in (full, *full.bases)]
        if fields.pop("bases", [full.number]) != bases or len(bases) > 2:
            raise damaged(_path(folder, number), ValueError(f"epoch {full.number} does not have all records"))
    gone = fields.pop("gone", {})
    kinds: dict[str, Callable[[Any], object]] = {
        "queries": lambda one: QueryRecord(**one), "sources": lambda one: SourceRecord(**one),
        "statistics": dict, "paused": _paused, "beginnings": dict, "merges": lambda one: one, "received": as_received,
    }  # fmt: skip
    for name, of_json in kinds.items():
        known = {} if full is None else getattr(full, name)
        kept = {n: record for n, record in known.items() if n not in gone.get(name, ())}
        fields[name] = kept | {n: of_json(record) for n, record in fields.get(name, {}).items()}
    offset, left = (_offset(fields.pop(name, None)) for name in ("offset", "left"))
    # Before format 6 it was the last round alone.
    answered = {n: _intervals([r] if isinstance(r, int) else r) for n, r in fields.get("answered", {}).items()}
    # Epochs written before the plan of a run could change each have a log of their own.
    own_log = {"log": number, "log_base": fields["base"]}
    return Epoch(offset=offset, left=left, full=full, **(own_log | fields | {"answered": answered}))


def read_fields(folder: Folder, number: int) -> dict[str, Any]:
    """Return what the file of an epoch contains. Raises PenstockError as `read_epoch`."""
    path = _path(folder, number)
    try:
        text = storage().read(path).decode()
        content = json.loads(text)
        version, fields = content["format"], content["epoch"]
        line = text.partition("\n")[2].removesuffix("\n}\n")
        readable = {FORMAT: line, **dict.fromkeys(_READ_AS_TEXT, line), _WITHOUT_REFERENCES: fields}
        checked = readable.get(version)
        if checked is not None and content["checksum"] != _checksum(checked, folder.place(path)):
            raise ValueError("its content does not match its checksum")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    if checked is None:
        raise other_version(folder, f"its epochs have format {version}, this version reads format {FORMAT}")
    assert isinstance(fields, dict), "its checksum is right"
    return fields


def _paused(fields: Mapping[str, Any]) -> PausedRecord:
    failure = fields["failure"]
    received = None if fields.get("received") is None else as_received(fields["received"])
    if received is None and fields.get("round") is not None:
        # Before format 6; a negative number is no round.
        rounds = ((0, fields["round"]),) if fields["round"] >= 0 else ()
        received = Received(NOTHING if fields["reached"] is None else fields["reached"], rounds)
    return PausedRecord(
        fields["sink"], None if failure is None else QueryFailure(**failure), fields["id"], fields["whole"], received
    )


def as_received(fields: Mapping[str, Any]) -> Received:
    """Return what the file of an epoch notes of a sink."""
    rounds = tuple((after, until) for after, until in _intervals(fields["rounds"]))
    return Received(fields["reached"], rounds, fields["until"], fields.get("since", 0))


def _intervals(rounds: list[Any]) -> list[list[int]]:
    """Return pairs of rounds. Earlier versions noted only up to which round something had been received."""
    return [[0, one] if isinstance(one, int) else list(one) for one in rounds]


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


def other_version(folder: Folder, reason: str) -> PenstockError:
    return PenstockError(
        "P0605", f"the checkpoint {folder.root.parent} was written by another version: {reason}",
        hint="continue with the version that wrote it, or start a new run with a new --checkpoint",
    )  # fmt: skip


def epoch_numbers(folder: Folder) -> list[int]:
    """Return the numbers of all epochs, oldest first."""
    stems = (name.removesuffix(".json") for name in storage().list(folder.root / "epochs") if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def latest_epoch(folder: Folder) -> Epoch | None:
    """Return the latest epoch. Raises PenstockError P0605 for a checkpoint that this version cannot read."""
    numbers = epoch_numbers(folder)
    if numbers:
        return read_epoch(folder, numbers[-1])
    if storage().exists(folder.root / "identity.json") or storage().exists(folder.root / "state"):
        raise other_version(folder, "it does not tell its queries")
    return None


def is_committed(folder: Folder, epoch: Epoch) -> bool:
    """Return whether any batch of `epoch` has been delivered."""
    if epoch.frames:
        # Batches of sources that Spark reads may have no round.
        return folder.read_mark("totals") is not None
    return folder.delivered().batch >= epoch.base


def offset_mark(log: int) -> str:
    return f"offset-{log}"


def read_offset(folder: Folder, log: int, epoch: int | None = None) -> Offset | None:
    """Return the offset that the mark of a log holds, None before its first round.

    Args:
        epoch: return None before the first round of this epoch.
    """
    fields = folder.read_mark(offset_mark(log))
    offset = None if fields is None else Offset.from_json(fields)
    return None if offset is None or (epoch is not None and max(offset.epoch, log) < epoch) else offset


def outstanding_before(folder: Folder, log: int, epoch: int) -> int | None:
    """Return the round of a log that an earlier epoch than `epoch` planned and that was not delivered; None for none.
    It is planned anew, until `epoch` has a round of its own.
    """
    offset = read_offset(folder, log)
    if offset is None or max(offset.epoch, log) >= epoch or offset.round <= folder.delivered().round:
        return None
    return offset.round


def last_offset(folder: Folder, epoch: Epoch) -> Offset | None:
    """Return the offset at which `epoch` stands, or stood when a later one took over; None before its first round and
    where it began with the sources.
    """
    offset = read_offset(folder, epoch.log)
    if offset is None or max(offset.epoch, epoch.log) < epoch.number:
        return epoch.offset
    if offset.epoch <= epoch.number:
        return offset
    return read_epoch(folder, min(n for n in epoch_numbers(folder) if n > epoch.number)).left


def rounds_folder(folder: Folder, log: int) -> Path:
    return folder.root / "rounds" / f"{log:04d}"


def source_file(name: str, births: Mapping[str, int]) -> str:
    """Return the name under which the splits of a source are kept; a source that was declared anew has a new name."""
    birth = births.get(name, 0)
    return f"{file_name(name)}@{birth}" if birth else file_name(name)


def forget_epochs(folder: Folder, first: int, committed: int) -> None:
    """Remove the files of the epochs from `first` on that came before `committed`, of which a batch is committed. Those
    stay to which an epoch from it on refers.
    """
    numbers = epoch_numbers(folder)
    old = [number for number in numbers if first <= number < committed]
    if not old:
        return
    referred: set[int] = set()
    for fields in (read_fields(folder, number) for number in numbers if number >= committed):
        referred.update(fields.get("bases", [fields["full"]] if "full" in fields else ()))
    for number in (n for n in old if n not in referred):
        storage().remove(_path(folder, number))


def _path(folder: Folder, number: int) -> Path:
    return folder.root / "epochs" / f"{number:04d}.json"


def _checksum(data: object, place: str) -> str:
    """Return the checksum of what an epoch's file contains: of its text, or of its content in format 2."""
    text = f"{place}\n{data}" if isinstance(data, str) else json.dumps([place, data], sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x}"
