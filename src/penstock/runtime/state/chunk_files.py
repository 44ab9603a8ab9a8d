"""State of one owner, a shard of a stage or an engine in one process, as memory-mapped Arrow files in a folder.

Each step (a batch, or a command) writes one data file with its new chunks, one after the other, and one manifest, which
names every live chunk with its file and offset. Step n starts from the newest manifest before n and writes its own
under a temporary name, renamed when complete: a step that is repeated starts from the same state, whatever an earlier
attempt left. Files that no manifest names any more are removed one step later, when the step that dropped them counts.
A data file is synced before its manifest, and both before the step is reported: three syncs for any number of chunks.

A manifest of many entries, as of a thousand queries, lies in a file of its own, the base, and those of the steps name
it and what has changed since. A base is written again when these are a share of it, under a name that no other attempt
gives, and goes when no manifest names it any more: it lives as a data file does.

Reading a chunk maps it: a process reads only the pages it touches, and processes share the pages. Files of which little
is alive are rewritten, and so are the smallest when there are many.
"""

from __future__ import annotations

import copy
import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from penstock.physical.elements import decode, encode
from penstock.runtime.state.shard_manifest import ChunkPlace, FileManifest, ManifestChange, ShardManifest
from penstock.storage import NewFile, storage
from penstock.storage.documents import Document
from penstock.storage.seals import damaged, other_format, sealed, unsealed

#: The layout of manifests and data files, and of what operators keep in them. A state with another number is refused.
FORMAT = 13
#: Returns the place by which the file at a path is sealed.
Place = Callable[[Path], str]
#: How the names of bases end.
BASE = ".base"
#: A number after every step.
LAST = 10**9 - 1
#: A file is rewritten when less than this part of it is alive.
_LEAST_ALIVE = 0.25
#: The smaller half of the files is rewritten when there are more than this.
_MOST_FILES = 48
#: A manifest of fewer entries than this is written whole: some 20 kB.
_LEAST_ENTRIES = 128
#: A new base is written when more than this part of the base has changed since.
_MOST_CHANGED = 0.125


@dataclass(frozen=True)
class _Previous:
    """What the next step needs of a manifest.

    Args:
        token: of the owner's manifest.
        files, dead: as in `FileManifest`.
        base: the file of the base that it names, empty for none.
    """

    token: str
    files: Mapping[str, Mapping[str, ChunkPlace]]
    dead: Sequence[str]
    base: str

    @staticmethod
    def of(manifest: FileManifest, base: str) -> _Previous:
        files = {f: dict(chunks) for f, chunks in manifest.files.items()}
        return _Previous(manifest.stage.token, files, manifest.dead, base)


@dataclass(frozen=True)
class _Written:
    """A manifest that this process wrote: its bytes, what is in them, and the content of the base that they name."""

    data: bytes
    content: _Previous
    base: FileManifest | None


#: By folder, the manifest that this process wrote there last. Of a thousand queries it takes long to decode; a
#: file with the same bytes needs no decoding.
_WRITTEN: OrderedDict[Path, _Written] = OrderedDict()
_MOST_WRITTEN = 64


def _keep_written(folder: Path, written: _Written) -> None:
    _WRITTEN[folder] = written
    _WRITTEN.move_to_end(folder)
    while len(_WRITTEN) > _MOST_WRITTEN:
        _WRITTEN.popitem(last=False)


class ChunkFiles:
    """The state in a folder, as it is before and after step `step`."""

    def __init__(self, folder: Path, step: int, place: Place) -> None:
        self._folder = folder
        self._place = place
        self._step = step
        self._mapped_files: dict[str, pa.Buffer] = {}
        #: The base that this process knows the content of.
        self._base: FileManifest | None = None
        self._manifest_before, self._previous = self._newest_before(step)
        self._files: dict[str, dict[str, ChunkPlace]] = {}
        if self._previous is not None:
            self._files = {f: dict(chunks) for f, chunks in self._previous.files.items()}

    @property
    def token(self) -> str | None:
        """Return the token of the manifest of the step before; None at the beginning."""
        return None if self._previous is None else self._previous.token

    @property
    def previous(self) -> int | None:
        """Return the step that wrote the state."""
        return max((n for n in step_numbers(self._folder) if n < self._step), default=None)

    def manifest(self) -> ShardManifest | None:
        """Return the owner's manifest of the step before; None at the beginning. Raises PenstockError P0605."""
        if self._manifest_before is None:
            return None
        manifest, _ = read_manifest(self._manifest_before, self._place)
        return manifest.stage

    def chunk(self, name: str) -> pa.RecordBatch:
        """Return a live chunk by name. Raises PenstockError P0605 when its file is damaged."""
        file = next((f for f, chunks in self._files.items() if name in chunks), None)
        if file is None:
            raise damaged(self._folder, ValueError(f"no file holds {name}"))
        try:
            (batch,) = decode(self._bytes(file, name))
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            raise damaged(self._folder / file, error) from error
        return batch

    def save(self, manifest: ShardManifest, new_chunks: Mapping[str, pa.RecordBatch], dropped_chunks: set[str]) -> None:
        """Write `manifest` and the live chunks: those before without `dropped_chunks`, and `new_chunks`.

        Raises:
            OSError: the disk cannot be written; the state before stays.
            PenstockError: P0605, a file that is to be rewritten is damaged.
        """
        if not storage().exists(self._folder):
            storage().make_folder(self._folder)
        for chunks in self._files.values():
            for name in dropped_chunks & chunks.keys():
                del chunks[name]
        blobs: dict[str, bytes | pa.Buffer] = {name: encode([batch]) for name, batch in new_chunks.items()}
        for file in self._to_rewrite():
            try:
                blobs |= {name: self._bytes(file, name) for name in self._files[file]}
            except (OSError, ValueError) as error:
                raise damaged(self._folder / file, error) from error
            self._files[file] = {}
        if blobs:
            self._write_data(f"{self._step:09d}-{manifest.token[:12]}.arrow", blobs)
        self._files = {f: chunks for f, chunks in self._files.items() if chunks}
        content, change = self._change(manifest)
        path = self._manifest_path(self._step)
        document = content.as_json(FORMAT) if change is None else change.as_json(FORMAT)
        data = sealed(json.dumps(document), self._place(path))
        # The sync of its folder also makes the names of the data files and of the base durable.
        storage().write(path, data)
        base = "" if change is None else change.base
        _keep_written(self._folder, _Written(data, _Previous.of(content, base), self._base))
        self._remove_old()

    def _change(self, manifest: ShardManifest) -> tuple[FileManifest, ManifestChange | None]:
        """Return the manifest to be written, and how it differs from its base; None where it is written whole. Writes a
        new base where there is none, or where much has changed since the last one.
        """
        before = self._previous
        named = set() if before is None else {*before.files, *([before.base] if before.base else [])}
        whole = FileManifest(manifest, self._files, sorted(named - self._files.keys()))
        if whole.size < _LEAST_ENTRIES:
            self._base = None
            return whole, None
        if before is not None and self._base is not None:
            if not storage().exists(self._folder / before.base):
                raise damaged(self._folder / before.base, FileNotFoundError("the file is gone"))
            kept = FileManifest(manifest, self._files, sorted(named - self._files.keys() - {before.base}))
            change = ManifestChange.between(before.base, self._base, kept)
            if change.size <= _MOST_CHANGED * self._base.size:
                return kept, change
        name = f"{self._step:09d}-{manifest.token[:12]}{BASE}"
        text = json.dumps(whole.as_json(FORMAT))
        with storage().create(self._folder / name) as output:
            output.write(sealed(text, self._place(self._folder / name)))
            output.sync()
        # Copies of what may change while the base stands: chunks of its files, and marks that are an operator's own.
        kept_marks = replace(manifest.marks, operators=copy.deepcopy(manifest.marks.operators))
        files = {f: dict(chunks) for f, chunks in self._files.items()}
        self._base = FileManifest(replace(manifest, marks=kept_marks), files, whole.dead)
        return whole, ManifestChange.between(name, self._base, whole)

    @property
    def files(self) -> Mapping[str, Mapping[str, ChunkPlace]]:
        """Return the live chunks of each data file."""
        return self._files

    # -- reading -----------------------------------------------------------------------------------------------

    def _newest_before(self, step: int) -> tuple[Path | None, _Previous | None]:
        numbers = [n for n in step_numbers(self._folder) if n < step]
        if not numbers:
            return None, None
        path = self._manifest_path(max(numbers))
        written = _WRITTEN.get(self._folder)
        try:
            if written is not None and storage().read(path) == written.data:
                self._base = written.base
                return path, written.content
        except OSError as error:
            raise damaged(path, error) from error
        manifest, base = read_manifest(path, self._place)
        return path, _Previous.of(manifest, base)

    def _bytes(self, file: str, name: str) -> pa.Buffer:
        if file not in self._mapped_files:
            self._mapped_files[file] = storage().map(self._folder / file)
        start, length, checksum = self._files[file][name]
        is_whole = start + length <= self._mapped_files[file].size
        data = self._mapped_files[file].slice(start, length) if is_whole else pa.py_buffer(b"")
        if not is_whole or zlib.crc32(data) != checksum:
            raise ValueError(f"the {length} bytes from {start} on are not those that were written")
        return data

    # -- writing -----------------------------------------------------------------------------------------------

    def _to_rewrite(self) -> list[str]:
        """Return files of which little is alive; when there are many files, also the smaller half."""
        alive = {
            file: sum(length for _, length, _ in chunks.values()) for file, chunks in self._files.items() if chunks
        }
        missing = [file for file in alive if not storage().exists(self._folder / file)]
        if missing:
            raise damaged(self._folder / missing[0], FileNotFoundError("the file is gone"))
        sizes = {file: storage().size(self._folder / file) for file in alive}
        chosen = {file for file in alive if alive[file] < _LEAST_ALIVE * sizes[file]}
        if len(alive) > _MOST_FILES:
            chosen |= set(sorted(alive, key=lambda file: (alive[file], file))[: len(alive) // 2])
        return sorted(chosen)

    def _write_data(self, file: str, blobs: Mapping[str, bytes | pa.Buffer]) -> None:
        position = 0
        chunks: dict[str, ChunkPlace] = {}
        with storage().create(self._folder / file) as output:
            for name, blob in blobs.items():
                # Arrow requires buffers at multiples of 8 bytes; 64 keeps them off shared cache lines.
                padding = -position % 64
                output.write(b"\0" * padding)
                length = _write_blob(output, blob)
                chunks[name] = (position + padding, length, zlib.crc32(blob))
                position += padding + length
            output.sync()
        self._files[file] = chunks

    def _remove_old(self) -> None:
        """Remove files that only older manifests name: the step before counts, or this one would not run."""
        if self._previous is None:
            return
        for file in self._previous.dead:
            storage().remove(self._folder / file)
        numbers = sorted(n for n in step_numbers(self._folder) if n < self._step)
        for number in numbers[:-1]:
            storage().remove(self._manifest_path(number))

    def _manifest_path(self, batch: int) -> Path:
        return self._folder / f"{batch:09d}.json"


def _write_blob(output: NewFile, blob: bytes | pa.Buffer) -> int:
    output.write(memoryview(blob))
    return memoryview(blob).nbytes


def sweep_folder(folder: Path, place: Place) -> None:
    """Remove the files of failed attempts. Call it only while no step is written there. Raises PenstockError P0605."""
    named_files: set[str] = set()
    # Of older ones, which an interrupted step has left, the base may be gone already.
    for number in sorted(step_numbers(folder))[-2:]:
        manifest, base = read_manifest(folder / f"{number:09d}.json", place)
        named_files |= {*manifest.files, *manifest.dead, base}
    for name in storage().list(folder):
        if name.endswith((".arrow", BASE)) and name not in named_files:
            storage().remove(folder / name)


def step_numbers(folder: Path) -> list[int]:
    """Return the numbers of the steps whose manifests lie in a folder."""
    stems = (name.removesuffix(".json") for name in storage().list(folder) if name.endswith(".json"))
    return [int(stem) for stem in stems if stem.isdigit()]


def read_manifest(path: Path, place: Place) -> tuple[FileManifest, str]:
    """Return a manifest, and the file of its base, empty for none. Raises PenstockError P0605 for one that is damaged,
    of another place or of another format.
    """
    fields = _read_fields(path, place)
    try:
        if "base" not in fields:
            return FileManifest.from_json(fields), ""
        change = ManifestChange.from_json(fields)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    base = path.parent / change.base
    fields = _read_fields(base, place)
    try:
        return change.applied(FileManifest.from_json(fields)), change.base
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(base, error) from error


def _read_fields(path: Path, place: Place) -> Document:
    try:
        fields: Document = json.loads(unsealed(storage().read(path), place(path)))
        number = fields["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    if number != FORMAT:
        raise other_format(path, number, FORMAT)
    return fields
