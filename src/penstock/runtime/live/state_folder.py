"""The durable state of an engine in one process: what changed is written after each command and each round.

State of steps lies in chunks, as a shard's on Spark (`runtime/state/chunk_files.py`), of all stages and shards in one
folder. The rest is small and is pickled, the *head*, without what nothing changes: rows of answers, of contents and of
the past, and queries. Each of these objects is a chunk of its own, written once and named by a number.
"""

from __future__ import annotations

import io
import pickle
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError
from penstock.expressions.user import loads_without_modules
from penstock.physical.elements import Elements
from penstock.physical.execution.marks import ExecutorSnapshot, StageMarks
from penstock.physical.planning.planner import Generation
from penstock.physical.synopses.contract import StoredSynopsis, SynopsisSnapshot
from penstock.runtime.live.snapshot import LiveSnapshot
from penstock.runtime.state.chunk_files import LAST, ChunkFiles, step_numbers, sweep_folder
from penstock.runtime.state.shard_manifest import ShardManifest
from penstock.storage.documents import Document
from penstock.storage.seals import damaged, other_format
from penstock.types import END

#: The format of the head and of the objects. A state with another number is refused.
FORMAT = 3
#: How the names of the entries of a manifest begin: the head, an object by number, the state of a step by stage and
#: shard.
_HEAD, _OBJECT, _STATE = "head", "object", "state"
#: What nothing changes, and may be large: exactly these types, as each object of the head is compared with them.
_APART = frozenset({Elements, pa.Table, Query, Generation})
#: So many texts in a set are an object of their own.
_MANY = 100


@dataclass(frozen=True)
class _StoredObject:
    """An object with a chunk of its own, under a number that is never used again."""

    number: int
    value: object
    entry: StoredSynopsis

    @property
    def name(self) -> str:
        return f"{_OBJECT}.{self.number}"


class StateFolder:
    """The state of one engine in a folder. Another process may look into it while this one writes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._swept = False
        #: The number of the last save, and what it wrote: the entries of its manifest, the state of steps, and objects
        #: by their `id`.
        self._number = 0
        self._entries: Mapping[str, StoredSynopsis] = {}
        self._states: Mapping[str, SynopsisSnapshot] = {}
        self._objects: Mapping[int, _StoredObject] = {}
        self._next_object = 0

    # -- writing -----------------------------------------------------------------------------------------------

    def save(self, live: LiveSnapshot, rest: object) -> None:
        """Write what has changed.

        Args:
            rest: what is to be kept beside the engine's own state; it can be pickled.

        Raises:
            OSError: the state before stays.
            PenstockError: P0605, P0609.
        """
        number = self._number + 1
        head = _Head(self._objects, self._next_object)
        states, marks = _apart(live)
        bare = [[ExecutorSnapshot(replace(one.marks, operators={}), {}) for one in row] for row in live.stages]
        head.dump((replace(live, stages=bare), rest))
        entries = {_HEAD: StoredSynopsis({}, [number], "Head", FORMAT, 1)}
        entries |= {one.name: one.entry for one in head.used.values()}
        new = {f"{one.name}.0": _batch(one.value) for one in head.new}
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
        new[f"{_HEAD}.{number}"] = _pickled(head.content)
        manifest = ShardManifest(uuid.uuid4().hex, number, StageMarks({}, {}, marks), entries)
        if not self._swept:
            self._sweep()
        ChunkFiles(self.path, number, _place).save(manifest, new, gone)
        self._number, self._entries, self._states = number, entries, states
        self._objects, self._next_object = head.used, head.next

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

        def found(key: Any) -> object:
            if key not in objects:
                entry = manifest.synopses[f"{_OBJECT}.{key}"]
                objects[key] = _StoredObject(key, _value(entry.kind, files.chunk(f"{_OBJECT}.{key}.0")), entry)
            return objects[key].value

        states: dict[str, SynopsisSnapshot] = {}
        for name, one in manifest.synopses.items():
            if name.startswith(f"{_STATE}."):
                chunks = {n: files.chunk(f"{name}.{n}") for n in one.chunks}
                states[name] = SynopsisSnapshot(one.manifest, chunks, one.kind, one.format, one.rows)
        content = files.chunk(f"{_HEAD}.{head.chunks[0]}").column(0)[0].as_py()
        try:
            # Queries over functions that are gone need attention, once the catalog has been bound.
            bare, rest = loads_without_modules(content, found)
            live = _together(bare, states, manifest.marks.operators)
        except PenstockError:
            raise
        except Exception as error:  # whatever the bytes lead to
            raise damaged(path, error) from error
        self._number, self._entries, self._states = number, manifest.synopses, states
        self._objects = {id(one.value): one for one in objects.values()}
        self._next_object = max(objects, default=-1) + 1
        return live, rest


class _Head:
    """Pickles a state without its objects.

    Args:
        known: the objects of the state before, by their `id`.
        next_: the number of the next object.
    """

    def __init__(self, known: Mapping[int, _StoredObject], next_: int) -> None:
        self._known = known
        self.next = next_
        #: The objects of this state by their `id`, and those that the one before does not have.
        self.used: dict[int, _StoredObject] = {}
        self.new: list[_StoredObject] = []
        self.content = b""

    def dump(self, state: object) -> None:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, self._number)
        pickler.dump(state)
        self.content = buffer.getvalue()

    def _number(self, value: object) -> int:
        found = self.used.get(id(value)) or self._known.get(id(value))
        if found is None:
            rows = len(value) if isinstance(value, Elements | pa.Table) else 1
            found = _StoredObject(self.next, value, StoredSynopsis({}, [0], _kind(value), FORMAT, rows))
            self.next += 1
            self.new.append(found)
        self.used[id(value)] = found
        return found.number


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
