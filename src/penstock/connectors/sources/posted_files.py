"""POSTED: rows that were posted to a server, one Arrow file for each post, read in the order of their numbers.

A source FROM MEMORY or FROM HTTP is one of these at a server: it has no end. The server writes `<number>.arrow` into
the folder of the source before it replies (`append`); a run reads the files and removes the first of them when it does
not need them any more (`forget`). A post may have an idempotency key, by which the same post is recognized for as long
as the key is kept. The key stands in the schema of its file, so that both are written at once; before the file is
removed its key goes to the others (`posted_keys.py`). Numbers are never used again: the largest number always has a
file, and a file whose number is not larger than those of the kept keys has been removed, whatever is on the disk after
a loss of power.

Contract: a post that was accepted is there, and whole, until it is forgotten. One that is not is no malformed record
but damage to the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence, Set
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split
from penstock.connectors.formats import FORMATS, FileFormat
from penstock.connectors.formats.base import DAMAGE, Unfit, one_line
from penstock.connectors.options import TEXT, Option, Options, OptionTable
from penstock.connectors.sources.memory import splits_of_arrow, write_table
from penstock.connectors.sources.posted_keys import PostKey, keep_keys, last_kept
from penstock.errors import PenstockError
from penstock.storage import storage
from penstock.storage.seals import damaged

_SPOOL = Option("spool", TEXT, "the folder of the posts", required=True, internal=True)
#: Part of what the source is: one that is declared again is another one.
_SOURCE = Option("source", TEXT, "the number of the declaration", internal=True)
#: Part of what a relation without timestamps is to a query that has begun: what was posted by then.
UNTIL = "until"
_UNTIL = Option(UNTIL, TEXT, "the number of the last post that is read", internal=True)
#: The files of rows.
ROWS = ".arrow"
_METADATA = b"penstock"
_DIGITS = 12


class PostedFilesSource(SourceConnector):
    OPTIONS = OptionTable((_SPOOL, _SOURCE, _UNTIL))
    rereadable = False
    keeps_relations = True
    removes_read = True
    look_every = 0.05

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"{source.connector} of {source.name}", source.options)
        options.only(self.OPTIONS)
        self._folder = Path(options.text(_SPOOL))
        until = source.option(UNTIL)
        self._until = int(until) if until else None

    @property
    def bounded(self) -> bool:
        return self.source.is_static

    def check(self) -> None:
        """Any rows that are there were written by the server."""

    def discover(self, known: Set[str]) -> list[str]:
        """Raises PenstockError P0605 where one has been removed that a run has not found yet."""
        return self._found(
            [path for path in rows_files(self._folder) if str(path) not in known and self._is_read(path)], known
        )

    def behind(self, number: int) -> list[str]:
        """Return the posts with larger numbers, as `discover` does where all up to this one are known."""
        folder, last = self._folder, _name(number)
        names = sorted(name for name in storage().list(folder) if name > last and name.endswith(ROWS))
        removed = last_kept(folder) if names else 0
        new = [folder / name for name in names if int(name[:_DIGITS]) > removed]
        return self._found([path for path in new if self._is_read(path)], _UpTo(number))

    def _found(self, new: Sequence[Path], known: Container[str]) -> list[str]:
        """Return new posts, and those between them that a list of the folder lacks. Raises PenstockError P0605."""
        found = {_number(path): path for path in new}
        for path in new:
            number, before = _number(path) - 1, path.with_name(_name(_number(path) - 1))
            # A list of a folder to which files are added may lack some, but not because they came later.
            while number not in found and str(before) not in known and storage().exists(before):
                found[number] = before
                number, before = number - 1, path.with_name(_name(number - 1))
            if number not in found and str(before) not in known and number > last_kept(self._folder):
                raise lost(self.source.name, before, FileNotFoundError("it has been removed"))
        removed = last_kept(self._folder) if found else 0
        return [str(found[number]) for number in sorted(found) if number > removed]

    def _is_read(self, path: Path) -> bool:
        return self._until is None or _number(path) <= self._until

    def splits(self, path: str) -> list[Split]:
        try:
            splits = self._format.ranges(path)
            # A heartbeat is a post without rows.
            return (splits_of_arrow(path) or splits) if sum(split.rows or 0 for split in splits) == 0 else splits
        except (Unfit, *DAMAGE) as error:
            raise lost(self.source.name, Path(path), error) from error

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        """Raises PenstockError P0605 where accepted rows are gone."""
        for parsed in self._format.read(split, columns):
            for rejected in parsed.rejected:
                if not rejected.record:
                    # Not a row, but all that is left of the file.
                    raise lost(self.source.name, Path(split.path), ValueError(rejected.reason))
            yield parsed

    def forget(self, paths: Sequence[str]) -> None:
        """Remove posts, and all before them."""
        if paths:
            self.forget_up_to(max(map(post_of, paths)))

    def forget_up_to(self, number: int) -> None:
        """Remove the posts up to this one."""
        files, removed = _files(self._folder), last_kept(self._folder)
        keep_keys(self._folder, [_key_or_none(path) for path in files if removed < _number(path) <= number])
        for path in files:
            if _number(path) <= max(number, removed):
                storage().remove(path)

    @cached_property
    def _format(self) -> FileFormat:
        return FORMATS["arrow"](self.source, predicate=self.predicate)


class _UpTo:
    """The paths of all posts up to a number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __contains__(self, path: object) -> bool:
        return post_of(str(path)) <= self._number


def rows_files(folder: Path) -> list[Path]:
    """Return the files of rows in a folder that have not been removed, in the order of their numbers."""
    removed = last_kept(folder)
    return [path for path in _files(folder) if _number(path) > removed]


def _files(folder: Path) -> list[Path]:
    names = [name for name in storage().list(folder) if name.endswith(ROWS) and not name.startswith(".")]
    return [folder / name for name in sorted(names)]


def post_of(path: str) -> int:
    """Return the number of the post in a file."""
    return _number(Path(path))


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}}{ROWS}"


def _number(path: Path) -> int:
    return int(path.stem)


def lost(source: str, path: Path, error: BaseException) -> PenstockError:
    """Return the error for a post that was accepted and cannot be read."""
    return PenstockError(
        "P0605",
        f"source {source}: rows that were posted are gone: {path}: {one_line(error)}",
        cause=error,
        hint=f"restore {path.name} from a copy of the checkpoint",
    )


def key_of(path: Path) -> PostKey:
    """Return the key of a post from its file of rows. Raises PenstockError P0605."""
    try:
        with pa.ipc.open_file(storage().map(path)) as reader:
            return PostKey.read((reader.schema.metadata or {})[_METADATA])
    except (*DAMAGE, KeyError, ValueError) as error:
        raise damaged(path, error) from error


def withdraw(path: Path) -> None:
    """Take the rows of a post back that has not been read. Its number stays, so that nothing seems to be lost."""
    post = key_of(path)
    with pa.ipc.open_file(storage().map(path)) as reader:
        nothing = reader.schema.empty_table()
    write_table(nothing.replace_schema_metadata({_METADATA: PostKey(post.number, "", "", post.at).text()}), path)


def _key_or_none(path: Path) -> PostKey:
    """Return the key of a post that has been read; none where its file is damaged since."""
    try:
        return key_of(path)
    except PenstockError:
        return PostKey(_number(path), "", "", 0)


def last_number(folder: Path) -> int:
    """Return the largest number of a post in a folder, 0 without any."""
    return max([last_kept(folder), *map(_number, rows_files(folder))])


def append(folder: Path, rows: pa.Table, number: int, key: str = "", digest: str = "") -> PostKey:
    """Write a post whole and durably; return its key. A reader may have removed the file by then.

    Args:
        rows: with the declared columns and types (`typed_table`), perhaps with heartbeats among them.
        number: larger than that of any post before.

    Raises:
        OSError: nothing has been posted then.
    """
    post = PostKey(number, key, digest, time.time_ns() // 1000)
    metadata = {**(rows.schema.metadata or {}), _METADATA: post.text()}
    write_table(rows.replace_schema_metadata(metadata), folder / _name(number))
    return post
