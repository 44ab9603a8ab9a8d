"""The manifests of a shard's state: what its stage writes, and what a state file adds to it.

Contract: `as_json` and `from_json` alone know the form, in state files and in Spark's own store;
`from_json(x).as_json() == x` for what `as_json` has returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.physical.execution.marks import StageMarks
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


@dataclass(frozen=True)
class StoredSynopsis:
    """What a stage writes of one synopsis.

    Args:
        manifest: of the synopsis itself.
        chunks: numbers of its live chunks.
        kind: name of its class.
        format: version of its manifest and chunks.
        rows: number of rows in it.
    """

    manifest: Document
    chunks: Sequence[int]
    kind: str
    format: int
    rows: int


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


def _chunk_place(place: Json) -> ChunkPlace:
    start, length, crc = as_array(place, "files")
    return as_integer(start, "files"), as_integer(length, "files"), as_integer(crc, "files")
