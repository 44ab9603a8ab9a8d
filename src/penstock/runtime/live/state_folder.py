"""The durable state of an engine in one process: what changed is written after each command and each round.

State of steps lies in chunks, as a shard's on Spark (`runtime/state/chunk_files.py`), of all stages and shards in one
folder. The rest is small and is pickled, the *head*, without what nothing changes: rows of answers, of contents and of
the past, and queries. Each of these objects is a chunk of its own, written once and named by a number. A mapping with
many entries, as one by query, is cut into *pages*, which are such objects too: those are written whose entries have
changed.
"""

from __future__ import annotations

import io
import pickle
import uuid
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError
from penstock.expressions.user import loads_without_modules
from penstock.physical.elements import Elements
from penstock.physical.execution.marks import ExecutorSnapshot, StageMarks
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.planning.planner import Generation
from penstock.physical.planning.sharing import Beginning
from penstock.physical.synopses.contract import StoredSynopsis, SynopsisSnapshot
from penstock.runtime.decisions.deciders import DecidingOptions
from penstock.runtime.live.snapshot import LiveSnapshot
from penstock.runtime.state.chunk_files import LAST, ChunkFiles, step_numbers, sweep_folder
from penstock.runtime.state.shard_manifest import ShardManifest
from penstock.storage.documents import Document
from penstock.storage.seals import damaged, other_format
from penstock.types import END

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: The format of the head and of the objects. A state with another number is refused.
FORMAT = 5
#: How the names of the entries of a manifest begin: the head, an object by number, the state of a step by stage and
#: shard.
_HEAD, _OBJECT, _STATE = "head", "object", "state"
#: What nothing changes, and may be large: exactly these types, as each object of the head is compared with them.
_APART = frozenset({Elements, pa.Table, Query, Generation, DecidingOptions})
#: So many texts in a set are an object of their own.
_MANY = 100


#: Entries of a page, about. A mapping with more of them is cut into pages.
PAGE = 64
#: What has no entry in a mapping.
_NOTHING = object()
#: Types of values that are compared by what they are; others are the same objects where nothing has changed.
_COMPARED = frozenset({int, str, tuple, dict, Counter, Beginning, SourceProgress})

State = TypeVar("State", bound="DataclassInstance")


@dataclass(frozen=True)
class _StoredObject:
    """An object with a chunk of its own, under a number that is never used again. uses: the objects that it refers to,
    by their `id`."""

    number: int
    name: str
    value: Any
    entry: StoredSynopsis
    uses: Mapping[int, _StoredObject] = field(default_factory=dict)

    @staticmethod
    def of(number: int, value: object, entry: StoredSynopsis) -> _StoredObject:
        return _StoredObject(number, f"{_OBJECT}.{number}", value, entry)


@dataclass(frozen=True)
class _Paged:
    """A mapping in pages: which of them an entry lies in follows from its key and from their number."""

    values: Mapping[Any, object]
    pages: Sequence[_StoredObject]


class StateFolder:
    """The state of one engine in a folder. Another process may look into it while this one writes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._swept = False
        #: The number of the last save, and what it wrote: the entries of its manifest, the state of steps, objects by
        #: their `id`, and mappings in pages by their names.
        self._number = 0
        self._entries: Mapping[str, StoredSynopsis] = {}
        self._states: Mapping[str, SynopsisSnapshot] = {}
        self._objects: Mapping[int, _StoredObject] = {}
        self._paged: Mapping[str, _Paged] = {}
        self._next_object = 0

    # -- writing -----------------------------------------------------------------------------------------------

    def save(self, live: LiveSnapshot, rest: DataclassInstance) -> None:
        """Write what has changed.

        Args:
            rest: what is to be kept beside the engine's own state, a dataclass; it can be pickled.

        Raises:
            OSError: the state before stays.
            PenstockError: P0605, P0609.
        """
        number = self._number + 1
        written = _Writing(self._objects, self._paged, self._next_object)
        states, marks = _apart(live)
        bare = [[ExecutorSnapshot(replace(one.marks, operators={}), {}) for one in row] for row in live.stages]
        parts = written.without_pages("live", replace(live, stages=bare)), written.without_pages("rest", rest)
        numbers = {name: [page.number for page in one.pages] for name, one in written.paged.items()}
        content, uses = written.pickled((*parts, numbers))
        written.used |= uses
        entries = {_HEAD: StoredSynopsis({}, [number], "Head", FORMAT, 1)}
        entries |= {one.name: one.entry for one in written.used.values()}
        new = {f"{one.name}.0": batch for one, batch in written.new}
        gone: set[str] = set()
        for name, snapshot in states.items():
            if self._states.get(name) is snapshot:
                entries[name] = self._entries[name]
                continue
            entries[name] = snapshot.stored()
            before = self._entries[name].chunks if name in self._entries else ()
            new |= {f"{name}.{n}": batch for n, batch in snapshot.chunks.items() if n not in before}
            gone |= {f"{name}.{n}" for n in before if n not in snapshot.chunks}
        lost = [name for name in self._entries if name not in entries]
        gone |= {f"{name}.{n}" for name in (*lost, _HEAD) if name in self._entries for n in self._entries[name].chunks}
        # Behind all others, so that a file that has been cut is noticed.
        new[f"{_HEAD}.{number}"] = _pickled(content)
        manifest = ShardManifest(uuid.uuid4().hex, number, StageMarks({}, {}, marks), entries)
        if not self._swept:
            self._sweep()
        ChunkFiles(self.path, number, _place).save(manifest, new, gone)
        self._number, self._entries, self._states = number, entries, states
        self._objects, self._paged, self._next_object = written.used, written.paged, written.next

    def _sweep(self) -> None:
        """Remove what an earlier process has left. The writing process owns the checkpoint. Raises PenstockError
        P0609 where another process has written since this one read."""
        if max(step_numbers(self.path), default=0) != self._number:
            raise PenstockError(
                "P0609",
                f"another server has changed {self.path} since this one has read it",
                hint="start this one again",
            )
        # What cannot be removed does no harm.
        with suppress(OSError):
            sweep_folder(self.path, _place)
        self._swept = True

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self) -> tuple[LiveSnapshot, object] | None:
        """Return what was saved last, the engine's own state and the rest; None for nothing. Raises PenstockError
        P0605."""
        while True:
            number = max(step_numbers(self.path), default=None)
            if number is None:
                return None
            try:
                return self._read(number)
            except PenstockError:
                # Who writes meanwhile removes what the last steps do not need.
                if number == max(step_numbers(self.path), default=None):
                    raise

    def _read(self, number: int) -> tuple[LiveSnapshot, object]:
        path = self.path / f"{number:09d}.json"
        files = ChunkFiles(self.path, LAST, _place)
        manifest = files.manifest()
        assert manifest is not None, "it has a number"
        head = manifest.synopses.get(_HEAD)
        if head is None:
            raise damaged(path, ValueError("it holds no state of queries"))
        if head.format != FORMAT:
            raise other_format(path, head.format, FORMAT)
        objects: dict[int, _StoredObject] = {}
        used: dict[int, _StoredObject] = {}

        def found(key: Any) -> object:
            if key not in objects:
                entry = manifest.synopses[f"{_OBJECT}.{key}"]
                value = _value(entry.kind, files.chunk(f"{_OBJECT}.{key}.0"))
                objects[key] = _StoredObject.of(key, value, entry)
            used[id(objects[key].value)] = objects[key]
            return objects[key].value

        def page(key: int) -> _StoredObject:
            name = f"{_OBJECT}.{key}"
            entry = manifest.synopses[name]
            used.clear()
            value = loads_without_modules(files.chunk(f"{name}.0").column(0)[0].as_py(), found)
            return _StoredObject(key, name, value, entry, dict(used))

        states: dict[str, SynopsisSnapshot] = {}
        for name, one in manifest.synopses.items():
            if name.startswith(f"{_STATE}."):
                chunks = {n: files.chunk(f"{name}.{n}") for n in one.chunks}
                states[name] = SynopsisSnapshot(one.manifest, chunks, one.kind, one.format, one.rows)
        content = files.chunk(f"{_HEAD}.{head.chunks[0]}").column(0)[0].as_py()
        try:
            # Queries over functions that are gone need attention, once the catalog has been bound.
            bare, rest, numbers = loads_without_modules(content, found)
            paged = {name: _joined([page(key) for key in keys]) for name, keys in numbers.items()}
            live = _together(_with_pages("live", bare, paged), states, manifest.marks.operators)
            rest = _with_pages("rest", rest, paged)
        except PenstockError:
            raise
        except Exception as error:  # whatever the bytes lead to
            raise damaged(path, error) from error
        known = (*objects.values(), *(page for one in paged.values() for page in one.pages))
        self._number, self._entries, self._states = number, manifest.synopses, states
        self._objects = {id(one.value): one for one in known}
        self._paged = paged
        self._next_object = max((one.number for one in known), default=-1) + 1
        return live, rest


class _Writing:
    """Pickles the parts of a state without their objects.

    Args:
        known: the objects of the state before, by their `id`.
        before: its mappings in pages.
        next_: the number of the next object.
    """

    def __init__(self, known: Mapping[int, _StoredObject], before: Mapping[str, _Paged], next_: int) -> None:
        self._known, self._before = known, before
        self.next = next_
        #: The objects of this state by their `id`, the chunks of those that the one before does not have, and the
        #: mappings in pages.
        self.used: dict[int, _StoredObject] = {}
        self.new: list[tuple[_StoredObject, pa.RecordBatch]] = []
        self.paged: dict[str, _Paged] = {}

    def without_pages(self, name: str, state: State) -> State:
        """Return a part of the state without its mappings of many entries, which become pages. name: of the part."""
        paged = {
            one.name: self._in_pages(values, self._before.get(f"{name}.{one.name}"))
            for one in fields(state)
            if _has_pages(values := getattr(state, one.name))
        }
        self.paged |= {f"{name}.{key}": one for key, one in paged.items()}
        return replace(state, **{key: {} for key in paged})

    def _in_pages(self, values: Mapping[Any, object], before: _Paged | None) -> _Paged:
        """Return a mapping in pages, of which those are new that have other entries than before."""
        count = 0 if before is None else len(before.pages)
        if before is None or not PAGE // 4 * count <= len(values) <= 2 * PAGE * count:
            before, count = _Paged({}, ()), -(-len(values) // PAGE)
        known = before.values
        changed = [
            key
            for key, value in values.items()
            if (was := known.get(key, _NOTHING)) is not value and not (type(value) in _COMPARED and was == value)
        ]
        pages: list[_StoredObject | None] = [*before.pages] or [None] * count
        entries: dict[int, dict[Any, object]] = {}
        for key in (*changed, *(known.keys() - values.keys())):
            at = _page_of(key, count)
            if at not in entries:
                page = pages[at]
                entries[at] = {} if page is None else dict(page.value)
            if key in values:
                entries[at][key] = values[key]
            else:
                del entries[at][key]
        found = [
            page if page is not None and at not in entries else self._page(entries.get(at, {}))
            for at, page in enumerate(pages)
        ]
        for page in found:
            self.used |= {**page.uses, id(page.value): page}
        return _Paged(values, found)

    def _page(self, entries: Mapping[Any, object]) -> _StoredObject:
        content, uses = self.pickled(entries)
        entry = StoredSynopsis({}, [0], "Page", FORMAT, len(entries))
        one = _StoredObject(self.next, f"{_OBJECT}.{self.next}", entries, entry, uses)
        return self._add(one, _pickled(content))

    def pickled(self, state: object) -> tuple[bytes, dict[int, _StoredObject]]:
        """Return a part of the state, and the objects that it refers to, by their `id`."""
        buffer, uses = io.BytesIO(), dict[int, _StoredObject]()
        _Pickler(buffer, partial(self._number, uses)).dump(state)
        return buffer.getvalue(), uses

    def _number(self, uses: dict[int, _StoredObject], value: object) -> int:
        found = self.used.get(id(value)) or self._known.get(id(value))
        if found is None:
            rows = len(value) if isinstance(value, Elements | pa.Table) else 1
            entry = StoredSynopsis({}, [0], _kind(value), FORMAT, rows)
            found = self._add(_StoredObject.of(self.next, value, entry), _batch(value))
        uses[id(value)] = found
        return found.number

    def _add(self, one: _StoredObject, batch: pa.RecordBatch) -> _StoredObject:
        self.new.append((one, batch))
        self.used[id(one.value)] = one
        self.next += 1
        return one


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, number: Any) -> None:
        super().__init__(file)
        self._number = number

    def persistent_id(self, obj: Any) -> int | None:
        kind = type(obj)
        apart = kind in _APART or (kind is frozenset and len(obj) > _MANY)
        return self._number(obj) if apart else None


def _apart(live: LiveSnapshot) -> tuple[dict[str, SynopsisSnapshot], dict[str, Document]]:
    """Return the state of the steps by name, and the marks of their operators."""
    states: dict[str, SynopsisSnapshot] = {}
    marks: dict[str, Document] = {}
    for stage, row in enumerate(live.stages):
        for shard, one in enumerate(row):
            at = f"{stage}.{shard}"
            states |= {f"{_STATE}.{at}.{name}": synopsis for name, synopsis in one.synopses.items()}
            marks |= {f"{at}.{key}": found for key, found in one.marks.operators.items()}
    return states, marks


def _together(
    live: LiveSnapshot, states: Mapping[str, SynopsisSnapshot], marks: Mapping[str, Document]
) -> LiveSnapshot:
    """Return a snapshot with the state of the steps and the marks of their operators."""
    synopses: dict[tuple[str, str], dict[str, SynopsisSnapshot]] = {}
    for name, synopsis in states.items():
        _, stage, shard, rest = name.split(".", 3)
        synopses.setdefault((stage, shard), {})[rest] = synopsis
    operators: dict[tuple[str, str], dict[str, Document]] = {}
    for name, one in marks.items():
        stage, shard, rest = name.split(".", 2)
        operators.setdefault((stage, shard), {})[rest] = one
    stages = [
        [
            ExecutorSnapshot(
                replace(bare.marks, operators=operators.get((str(stage), str(shard)), {})),
                synopses.get((str(stage), str(shard)), {}),
            )
            for shard, bare in enumerate(row)
        ]
        for stage, row in enumerate(live.stages)
    ]
    return replace(live, stages=stages)


def _has_pages(values: object) -> bool:
    """Return whether a value is a mapping of many entries, by numbers or texts."""
    return isinstance(values, dict) and len(values) > PAGE and isinstance(next(iter(values)), int | str)


def _page_of(key: int | str, count: int) -> int:
    """Return which of so many pages has the entry of a key."""
    return (key if isinstance(key, int) else zlib.crc32(key.encode("utf-8", "surrogatepass"))) % count


def _joined(pages: Sequence[_StoredObject]) -> _Paged:
    """Return a mapping in pages, its entries in the order of their numbers or of their names."""
    values = {key: value for page in pages for key, value in page.value.items()}
    ordered = sorted(values, key=lambda key: (int(key), "") if str(key).isdecimal() else (-1, key))
    return _Paged({key: values[key] for key in ordered}, pages)


def _with_pages(name: str, state: State, paged: Mapping[str, _Paged]) -> State:
    """Invert `_Writing.without_pages`."""
    own = {key.removeprefix(f"{name}."): dict(one.values) for key, one in paged.items() if key.startswith(f"{name}.")}
    return replace(state, **own)


def _kind(value: object) -> str:
    return type(value).__name__ if isinstance(value, Elements | pa.Table) else "Object"


def _batch(value: object) -> pa.RecordBatch:
    """Return the chunk of an object."""
    if isinstance(value, Elements):
        return value.to_batch(ends=bool(np.any(value.exp != END)))
    if isinstance(value, pa.Table):
        columns = [pa.concat_arrays(one.chunks) if one.num_chunks else pa.array([], one.type) for one in value.columns]
        return pa.RecordBatch.from_arrays(columns, schema=value.schema)
    return _pickled(pickle.dumps(value))


def _pickled(content: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([content], pa.large_binary())], names=["pickle"])


def _value(kind: str, batch: pa.RecordBatch) -> object:
    """Invert `_batch`."""
    if kind == Elements.__name__:
        return Elements.from_batch(batch)
    if kind == pa.Table.__name__:
        return pa.Table.from_batches([batch])
    return loads_without_modules(batch.column(0)[0].as_py())


def _place(path: Path) -> str:
    return f"engine {path.name}"
