"""POSTED: rows that were posted to a server, one Arrow file for each post, read in the order of their numbers.

A source FROM MEMORY or FROM HTTP is one of these at a server: it has no end. The server writes `<number>.arrow` into
the folder of the source before it replies (`append`); a run reads the files and removes them when it does not need them
any more (`forget`). A post may have an idempotency key, by which the same post is recognized for as long as the key is
kept. The key stands in the schema of its file, so that both are written at once; before the file is removed its key
goes to the others (`posted_keys.py`). Numbers are never used again: the largest number always has a file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split
from penstock.connectors.options import TEXT, Option, Options, OptionTable
from penstock.connectors.sources.formats import FORMATS, FileFormat
from penstock.connectors.sources.memory import write_table
from penstock.connectors.sources.posted_keys import PostKey, keep_keys, last_kept
from penstock.errors import PenstockError
from penstock.storage import storage

_SPOOL = Option("spool", TEXT, "the folder of the posts", required=True, internal=True)
#: Part of what the source is: one that is declared again is another one.
_SOURCE = Option("source", TEXT, "the number of the declaration", internal=True)
#: The files of rows.
ROWS = ".arrow"
_METADATA = b"penstock"
_DIGITS = 12


class PostedFilesSource(SourceConnector):
    OPTIONS = OptionTable((_SPOOL, _SOURCE))
    rereadable = False
    keeps_relations = True
    look_every = 0.05

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"{source.connector} of {source.name}", source.options)
        options.only(self.OPTIONS)
        self._folder = Path(options.text(_SPOOL))
        self.removes_read = source.is_stream

    @property
    def bounded(self) -> bool:
        return self.source.is_static

    def check(self) -> None:
        """Any rows that are there were written by the server."""

    def discover(self, known: Set[str]) -> list[str]:
        return [path for path in map(str, rows_files(self._folder)) if path not in known]

    def splits(self, path: str) -> list[Split]:
        try:
            return self._format.splits(path)
        except OSError as error:
            message = f"source {self.source.name}: its posted rows are gone: {path}"
            raise PenstockError("P0401", message, cause=error) from error

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        return self._format.read(split, columns)

    def forget(self, paths: Sequence[str]) -> None:
        """Remove the rows of a stream; those of a relation are its content."""
        there = [path for path in map(Path, paths if self.source.is_stream else ()) if storage().exists(path)]
        keep_keys(self._folder, [key_of(path) for path in there])
        for path in there:
            storage().remove(path)

    @cached_property
    def _format(self) -> FileFormat:
        return FORMATS["arrow"](self.source, wanted=self.wanted)


def rows_files(folder: Path) -> list[Path]:
    """Return the files of rows in a folder, in the order of their numbers."""
    names = [name for name in storage().list(folder) if name.endswith(ROWS) and not name.startswith(".")]
    return [folder / name for name in sorted(names)]


def key_of(path: Path) -> PostKey:
    """Return the key of a post from its file of rows."""
    with pa.ipc.open_file(storage().map(path)) as reader:
        return PostKey.read((reader.schema.metadata or {})[_METADATA])


def last_number(folder: Path) -> int:
    """Return the largest number of a post in a folder, 0 without any."""
    return max([last_kept(folder), *(int(path.stem) for path in rows_files(folder))])


def append(folder: Path, rows: pa.Table, number: int, key: str = "", digest: str = "") -> Path:
    """Write a post whole and durably; return its file.

    Args:
        rows: with the declared columns and types (`typed_table`).
        number: larger than that of any post before.

    Raises:
        OSError: nothing has been posted then.
    """
    post = PostKey(number, key, digest, time.time_ns() // 1000)
    path = folder / f"{number:0{_DIGITS}}{ROWS}"
    write_table(rows.replace_schema_metadata({_METADATA: post.text()}), path)
    return path
