"""The manifests of a shard's state: what its stage writes, what a state file adds to it, and what differs from another.

Contract: `as_json` and `from_json` alone know the form, in state files and in Spark's own store;
`from_json(x).as_json() == x` for what `as_json` has returned, and `ManifestChange.between(n, a, b).applied(a) == b`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.physical.execution.marks import StageMarks
from penstock.physical.synopses.contract import StoredSynopsis
from penstock.storage.documents import (
    Document,
    Json,
    array,
    as_array,
    as_document,
    as_integer,
    as_text,
    integer,
    integers,
    nested,
    text,
    texts,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class ShardManifest:
    """What a stage writes of one shard beside the chunks.

    Args:
        token: a text that no other manifest has.
        epoch: the epoch whose plan wrote it.
        marks: the small state of the stage.
        synopses: by name in the stage.
    """

    token: str
    epoch: int
    marks: StageMarks
    synopses: Mapping[str, StoredSynopsis]

    @property
    def chunks(self) -> set[str]:
        """Return the names of all live chunks."""
        return {f"{name}.{i}" for name, synopsis in self.synopses.items() for i in synopsis.chunks}

    def as_json(self) -> Document:
        """Return the manifest as JSON."""
        synopses = self.synopses.items()
        return {
            "token": self.token,
            "epoch": self.epoch,
            "marks": self.marks.as_json(),
            "synopses": {name: synopsis.manifest for name, synopsis in synopses},
            "chunks": {name: list(synopsis.chunks) for name, synopsis in synopses},
            "formats": {name: [synopsis.kind, synopsis.format] for name, synopsis in synopses},
            "rows": {name: synopsis.rows for name, synopsis in synopses},
        }

    @staticmethod
    def from_json(fields: Document) -> ShardManifest:
        """Return the manifest that `as_json` wrote."""
        manifests, chunks, rows = nested(fields, "synopses"), nested(fields, "chunks"), nested(fields, "rows")
        synopses: dict[str, StoredSynopsis] = {}
        for name in chunks:
            kind, format_ = array(nested(fields, "formats"), name)
            synopses[name] = StoredSynopsis(
                nested(manifests, name),
                integers(chunks, name),
                as_text(kind, name),
                as_integer(format_, name),
                integer(rows, name),
            )
        marks = StageMarks.from_json(nested(fields, "marks"))
        return ShardManifest(text(fields, "token"), integer(fields, "epoch"), marks, synopses)


#: Where a chunk lies in its data file: offset, length, checksum.
ChunkPlace = tuple[int, int, int]


@dataclass(frozen=True)
class FileManifest:
    """A manifest as it lies in a file.

    Args:
        stage: what the stage wrote.
        files: by data file, its live chunks by name.
        dead: data files that no manifest from this one on names.
    """

    stage: ShardManifest
    files: Mapping[str, Mapping[str, ChunkPlace]]
    dead: Sequence[str]

    def as_json(self, format_: int) -> Document:
        """Return the manifest as JSON. format_: the layout that it has."""
        files: Json = {f: {name: list(place) for name, place in chunks.items()} for f, chunks in self.files.items()}
        return {"format": format_, "stage": self.stage.as_json(), "files": files, "dead": list(self.dead)}

    @staticmethod
    def from_json(fields: Document) -> FileManifest:
        """Return the manifest that `as_json` wrote."""
        files = {f: as_document(chunks, "files") for f, chunks in nested(fields, "files").items()}
        places = {f: {name: _chunk_place(place) for name, place in chunks.items()} for f, chunks in files.items()}
        return FileManifest(ShardManifest.from_json(nested(fields, "stage")), places, texts(fields, "dead"))

    @property
    def size(self) -> int:
        """Return the number of entries, with which the length of its JSON grows."""
        marks = self.stage.marks
        chunks = sum(map(len, self.files.values()))
        return len(self.stage.synopses) + len(marks.operators) + len(marks.firsts) + chunks


@dataclass(frozen=True)
class ManifestChange:
    """What differs in a manifest from another one, its base.

    Args:
        base: the file of the base.
        changed: what is new or other than in the base; token, epoch, progress and dead files are those of the manifest.
        synopses, births, operators, files: entries that only the base has.
        chunks: by data file of the base, chunks that only the base has.
    """

    base: str
    changed: FileManifest
    synopses: Sequence[str]
    births: Sequence[int]
    operators: Sequence[str]
    files: Sequence[str]
    chunks: Mapping[str, Sequence[str]]

    @staticmethod
    def between(name: str, base: FileManifest, manifest: FileManifest) -> ManifestChange:
        """Return what differs in `manifest` from `base`, which lies in the file `name`."""
        stage, before, after = manifest.stage, base.stage.marks, manifest.stage.marks
        # By identity: what a step that did not run has written is the same object, and comparing it would take longer.
        known = base.stage.synopses
        synopses = {name: synopsis for name, synopsis in stage.synopses.items() if known.get(name) is not synopsis}
        firsts = {birth: one for birth, one in after.firsts.items() if before.firsts.get(birth) != one}
        operators = {key: marks for key, marks in after.operators.items() if before.operators.get(key) != marks}
        # What a data file holds becomes less, never other.
        new = {file: chunks for file, chunks in manifest.files.items() if file not in base.files}
        fewer = {
            file: sorted(base.files[file].keys() - chunks.keys())
            for file, chunks in manifest.files.items()
            if file in base.files and len(chunks) < len(base.files[file])
        }
        changed = ShardManifest(stage.token, stage.epoch, StageMarks(after.progress, firsts, operators), synopses)
        return ManifestChange(
            name,
            FileManifest(changed, new, manifest.dead),
            _lost(known, stage.synopses),
            _lost(before.firsts, after.firsts),
            _lost(before.operators, after.operators),
            _lost(base.files, manifest.files),
            fewer,
        )

    def applied(self, base: FileManifest) -> FileManifest:
        """Return the manifest. Raises KeyError where `base` lacks what it should have."""
        stage, marks, before = self.changed.stage, self.changed.stage.marks, base.stage.marks
        files = {file: dict(chunks) for file, chunks in _without(base.files, self.files).items()}
        for file, chunks in self.chunks.items():
            for name in chunks:
                del files[file][name]
        whole = StageMarks(
            marks.progress,
            _without(before.firsts, self.births) | dict(marks.firsts),
            _without(before.operators, self.operators) | dict(marks.operators),
        )
        synopses = _without(base.stage.synopses, self.synopses) | dict(stage.synopses)
        state = ShardManifest(stage.token, stage.epoch, whole, synopses)
        return FileManifest(state, files | dict(self.changed.files), self.changed.dead)

    @property
    def size(self) -> int:
        """Return the number of entries, with which the length of its JSON grows."""
        gone = len(self.synopses) + len(self.births) + len(self.operators) + len(self.files)
        return self.changed.size + gone + sum(map(len, self.chunks.values()))

    def as_json(self, format_: int) -> Document:
        """Return the change as JSON. format_: the layout that it has."""
        chunks: Json = {file: list(names) for file, names in self.chunks.items()}
        gone: Json = {
            "synopses": list(self.synopses),
            "firsts": list(self.births),
            "operators": list(self.operators),
            "files": list(self.files),
            "chunks": chunks,
        }
        return {**self.changed.as_json(format_), "base": self.base, "gone": gone}

    @staticmethod
    def from_json(fields: Document) -> ManifestChange:
        """Return the change that `as_json` wrote."""
        gone = nested(fields, "gone")
        chunks = {file: texts(nested(gone, "chunks"), file) for file in nested(gone, "chunks")}
        return ManifestChange(
            text(fields, "base"),
            FileManifest.from_json(fields),
            texts(gone, "synopses"),
            integers(gone, "firsts"),
            texts(gone, "operators"),
            texts(gone, "files"),
            chunks,
        )


def _lost(before: Mapping[Key, object], after: Mapping[Key, object]) -> list[Key]:
    return [key for key in before if key not in after]


def _without(entries: Mapping[Key, Value], keys: Sequence[Key]) -> dict[Key, Value]:
    """Return `entries` without `keys`. Raises KeyError for a key that is not there."""
    left = dict(entries)
    for key in keys:
        del left[key]
    return left


def _chunk_place(place: Json) -> ChunkPlace:
    start, length, crc = as_array(place, "files")
    return as_integer(start, "files"), as_integer(length, "files"), as_integer(crc, "files")
