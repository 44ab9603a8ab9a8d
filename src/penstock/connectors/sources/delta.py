"""DELTA: a Delta Lake table, as a snapshot, as the rows that its commits append, or as its change data feed.

Contract: a relation without TIMESTAMP BY is one version of the table (`version`, `timestamp`, by default the last one).
With a timestamp the commits are read one after the other, each one's files in the order of their first timestamps: from
`starting` on, up to the version at the start, or without end (`watch 'true'`). Appended rows are read; a commit that
removes rows is refused, or skipped if `ignore_deletes` or `skip_changes` is set. `changes 'true'` reads the change data
feed instead: the table's columns, and `_change_type` (`+` or `-`), `_commit_version` and `_commit_timestamp`; of one
commit first the deletions, then the insertions. Data files are read by the reader of parquet files.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import Source
from penstock.connectors import delta_log
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split, Target
from penstock.connectors.delta_log import DataFile, one_line
from penstock.connectors.formats import casts, cells
from penstock.connectors.formats.base import Unfit
from penstock.connectors.formats.columnar import Columns, fitted, pieces
from penstock.connectors.formats.keys import folded
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.connectors.local_paths import parts_of
from penstock.connectors.options import BOOLEAN, TEXT, Applies, Option, Options, OptionTable, ValueType, whole
from penstock.connectors.text import plain
from penstock.errors import PenstockError, nearest
from penstock.types import TIMESTAMP, type_name

if TYPE_CHECKING:
    from deltalake import DeltaTable


def _start(text: str) -> str:
    if text.lower() != "latest" and not text.isdecimal():
        raise ValueError("the number of a version, or 'latest'")
    return text.lower()


_PATH = Option("path", TEXT, "the folder of the table", required=True)
_VERSION = Option("version", whole(), "the version to read; without it the newest", applies=Applies.STATIC)
_TIMESTAMP = Option(
    "timestamp", TEXT, "the moment of the version to read, as 2024-03-01T10:00:00Z", applies=Applies.STATIC
)
_STARTING = Option(
    "starting",
    ValueType("number of a version, or `latest`", _start, str, names_nothing=True),
    "the version to begin with",
    "0",
    applies=Applies.TIMED,
)
_WATCH = Option("watch", BOOLEAN, "whether later versions are read as they come", "false", applies=Applies.TIMED)
_CHANGES = Option(
    "changes", BOOLEAN, "whether the change data feed of the table is read", "false", applies=Applies.TIMED
)
_IGNORE_DELETES = Option(
    "ignore_deletes", BOOLEAN, "whether commits that only remove rows are skipped", "false", applies=Applies.TIMED
)
_SKIP_CHANGES = Option(
    "skip_changes", BOOLEAN, "whether commits that change rows are skipped", "false", applies=Applies.TIMED
)
#: Columns of the change data feed besides the table's.
FEED_COLUMNS = {"_change_type": pa.string(), "_commit_version": pa.int64(), "_commit_timestamp": TIMESTAMP}
_REMOVALS = ("delete", "update_preimage")
#: Follows the version in a path: everything up to it is skipped.
_SKIPPED = "passed"


@dataclass
class _FileOfTable(ParquetFormat):
    """A data file of a table.

    `partition`: the values of the columns that are stored in the log. Columns that the file does not have were added to
    the table later, and are NULL in it.
    """

    partition: Mapping[str, str | None] = field(default_factory=dict)

    def placed(self, path: str) -> dict[int, pa.Scalar]:
        scalars = {i: pa.scalar(None, column.type) for i, column in enumerate(self.source.columns)}
        for key, text in self.partition.items():
            position = self.source.columns.index(key)
            if position is None:
                continue
            column = self.source.columns[position]
            converted = cells.convert(pa.array([text or None], pa.string()), column.type)
            if converted.failed[0]:
                raise Unfit(f"the partition {key} holds a {cells.complaint(text, column.type, column.name)}")
            scalars[position] = converted.values[0]
        return scalars


class DeltaSource(SourceConnector):
    OPTIONS = OptionTable(
        (
            _PATH,
            _VERSION,
            _TIMESTAMP,
            _STARTING,
            _WATCH,
            _CHANGES,
            _IGNORE_DELETES,
            _SKIP_CHANGES,
        )
    )

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._owner = f"source {source.name}"
        options = Options(f"DELTA of {source.name}", source.options)
        options.only(self.OPTIONS)
        self._path = delta_log.table_path(options.needed(_PATH))
        self._requested_version = _version_option(options)
        self._starting = options.value(_STARTING)
        self._watch = options.value(_WATCH)
        self._changes = options.value(_CHANGES)
        self._ignore_deletes = options.value(_IGNORE_DELETES)
        self._skip_changes = options.value(_SKIP_CHANGES)
        self._table_found = False

    @classmethod
    def reads(cls, source: Source, target: Target) -> bool | None:
        options = Options(f"DELTA of {source.name}", source.options)
        path = Path(delta_log.table_path(options.needed(_PATH)))
        if target.system != "files" or target.parts != parts_of(path):
            return None
        watches = options.value(_WATCH)
        return None if target.shared and not watches else watches  # a version that is there already takes no harm

    @property
    def bounded(self) -> bool:
        return not self._watch

    def check(self) -> None:
        table = self._open(self._requested_version)
        delta_log.readable(self._owner, self._path, _features(table), _configuration(table))
        self._check_columns(delta_log.arrow_schema(table.schema()), f"version {table.version()}")
        if self.source.is_static:
            self._files_of(table)
        if self._changes and _configuration(table).get("delta.enableChangeDataFeed", "false").lower() != "true":
            hint = "set delta.enableChangeDataFeed = true; it then has the changes of later commits"
            raise PenstockError("P0401", f"{self._owner}: {self._path} has no change data feed", hint=hint)
        if not self.source.is_static and not self._watch and self._first(table.version()) > table.version():
            hint = "later versions are read with watch 'true'"
            message = f"{self._owner}: {self._path} is at version {table.version()}, before {self._starting}"
            raise PenstockError("P0401", message, hint=hint)

    # -- what there is -----------------------------------------------------------------------------------------

    def discover(self, known: Set[str]) -> list[str]:
        if self.source.is_static:
            return [] if known else [self._token(self._open(self._requested_version).version())]
        if known and self._table_found:
            last = max(map(self._version_of, known))
            return [self._token(v) for v in self._later_versions(last)]
        current = self._open().version()
        self._table_found = True
        if known:
            first = max(map(self._version_of, known)) + 1
        elif self._starting == "latest":
            return [f"{self._token(current)}/{_SKIPPED}"]
        else:
            first = int(self._starting)
        return [self._token(v) for v in range(first, current + 1)]

    def splits(self, path: str) -> list[Split]:
        version = self._version_of(path)
        if path.endswith(f"/{_SKIPPED}"):
            return [Split(path, 0, 0, 0, 0)]
        if self.source.is_static:
            return self._splits_of(path, self._files_of(self._open(version)))
        commit = delta_log.commit(self._owner, self._path, version)
        delta_log.readable(self._owner, self._path, commit.reader_features, commit.configuration)
        if commit.schema is not None and version:
            self._check_columns(delta_log.arrow_schema(commit.schema), f"version {version}", partial=True)
            self._check_columns(delta_log.arrow_schema(self._open().schema()), f"version {version}")
        if self._changes:
            return [Split(path, bytes=commit.bytes, detail=json.dumps({"version": version}))]
        if commit.removed and (self._skip_changes or (self._ignore_deletes and not commit.added)):
            return [Split(path, 0, 0, 0, 0)]
        if commit.removed:
            raise self._unsupported_removal(version, rewrites=bool(commit.added))
        splits = self._splits_of(path, commit.added)
        if all(split.low is not None or split.rows == 0 for split in splits):
            # Writers of partitioned tables list a commit's files in any order: the oldest rows are read first.
            splits.sort(key=lambda split: split.low or 0)
        return splits or [Split(path, 0, 0, 0, 0)]

    def _splits_of(self, path: str, files: Sequence[DataFile]) -> list[Split]:
        if any(file.deleted for file in files):
            raise delta_log.deletion_vectors(self._owner, self._path)
        splits: list[Split] = []
        for file in files:
            self._check_file(file.path)
            detail = json.dumps({"file": file.path, "partition": dict(file.partition)})
            location = f"{path}/{os.path.relpath(file.path, self._path)}"
            pieces = _FileOfTable(self.source, partition=file.partition).splits(file.path)
            splits += [replace(piece, path=location, detail=detail) for piece in pieces]
        return splits

    def _files_of(self, table: DeltaTable) -> list[DataFile]:
        """Return the files of a snapshot, oldest first."""
        if "deletionVectors" in _features(table) and pa.table(table.deletion_vectors().read_all()).num_rows:
            raise delta_log.deletion_vectors(self._owner, self._path)
        actions = pa.table(table.get_add_actions(flatten=False))
        paths, modified = (actions[name].to_pylist() for name in ("path", "modification_time"))
        partitions = _partitions(actions["partition"]) if "partition" in actions.column_names else [{} for _ in paths]
        files = sorted(zip(modified, paths, range(len(paths)), strict=True))
        return [
            DataFile(str(Path(self._path, urllib.parse.unquote(file))), partitions[index]) for _, file, index in files
        ]

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        if not split.detail:
            return
        detail = json.loads(split.detail)
        if "version" in detail:
            yield from self._read_changes(split.path, detail["version"], columns)
            return
        self._check_file(detail["file"])
        format_ = _FileOfTable(self.source, predicate=self.predicate, partition=detail["partition"])
        yield from format_.read(replace(split, path=detail["file"]), columns)

    def _read_changes(self, path: str, version: int, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        table = self._open()
        names = {i: self._stored_name(table, self.source.columns[i].name) for i in columns}
        column_names = sorted({*names.values(), "_change_type"})
        try:
            changes = pa.table(table.load_cdf(version, version, columns=column_names).read_all())
        except (delta_log.DeltaError, OSError, ValueError) as error:
            message = f"{self._owner}: the changes of version {version} of {self._path} cannot be read"
            raise PenstockError("P0401", f"{message}: {one_line(error)}") from None
        changes = changes.cast(pa.schema([pa.field(f.name, _plain(f.type)) for f in changes.schema]))
        is_removal = pc.is_in(changes["_change_type"], value_set=pa.array(_REMOVALS)).combine_chunks()
        signs = pa.chunked_array([pc.if_else(is_removal, "-", "+")], pa.string())
        changes = changes.set_column(changes.column_names.index("_change_type"), "_change_type", signs)
        order = np.argsort(~is_removal.to_numpy(zero_copy_only=False), kind="stable")
        format_ = _FileOfTable(self.source)
        columns_read = Columns({i: i for i in columns}, [names[i] for i in columns])
        for batch in changes.take(pa.array(order)).combine_chunks().to_batches():
            for piece in pieces(batch):
                chunk = fitted(format_, path, piece, columns_read)
                arrays = [chunk.columns[i] for i in columns]
                yield ParsedRecords(format_.batch(arrays, columns, chunk.rows), chunk.rejected)

    # -- small things ------------------------------------------------------------------------------------------

    def _open(self, version: int | str | None = None) -> DeltaTable:
        return delta_log.open_table(self._owner, self._path, version)

    def _first(self, current: int) -> int:
        return current if self._starting == "latest" else int(self._starting)

    def _token(self, version: int) -> str:
        return f"{self._path}@v{version}"

    def _version_of(self, path: str) -> int:
        return int(path.removeprefix(f"{self._path}@v").partition("/")[0])

    def _later_versions(self, version: int) -> Iterator[int]:
        """Yield the versions after `version`, up to the current end of the log."""
        while Path(self._path, "_delta_log", f"{version + 1:020d}.json").exists():
            version += 1
            yield version

    def _check_file(self, file: str) -> None:
        if not Path(file).exists():
            hint = "VACUUM removes files that later versions do not need: start from a later version"
            raise PenstockError("P0401", f"{self._owner}: {file} of {self._path} is gone", hint=hint)
        if not os.access(file, os.R_OK):
            hint = "allow reading it"
            raise PenstockError("P0401", f"{self._owner}: {file} of {self._path} cannot be read", hint=hint)

    def _unsupported_removal(self, version: int, rewrites: bool) -> PenstockError:
        effect = "rewrites rows" if rewrites else "deletes rows"
        hint = "skip_changes 'true' skips such commits, changes 'true' reads them from the change data feed"
        hint = hint if rewrites else f"ignore_deletes 'true' skips commits that only delete; {hint}"
        message = f"{self._owner}: version {version} of {self._path} {effect}, and a stream only gains them"
        return PenstockError("P0401", message, hint=hint)

    def _stored_name(self, table: DeltaTable, name: str) -> str:
        """Return the table's name of the declared column `name`."""
        names = [*delta_log.arrow_schema(table.schema()).names, *(FEED_COLUMNS if self._changes else ())]
        stored: str = next((n for n in names if n == name), None) or next(n for n in names if folded(n) == folded(name))
        return stored

    def _check_columns(self, schema: pa.Schema, version: str, partial: bool = False) -> None:
        """Check that all declared columns exist with types that fit.

        Args:
            schema: of the table or of a file.
            version: for messages.
            partial: columns may be missing.

        Raises:
            PenstockError: P0402.
        """
        stored_types = {folded(f.name): f.type for f in schema}
        if self._changes:
            stored_types |= FEED_COLUMNS
        for column in self.source.columns:
            stored_type = stored_types.get(folded(column.name))
            if stored_type is None and not partial:
                message = f"{self._owner}: {self._path}, {version}: column {column.name} is missing"
                raise PenstockError("P0402", message, hint=nearest(column.name, [*schema.names]))
            if stored_type is not None and casts.misfit(stored_type, column.type):
                mismatch = f"is {type_name(stored_type)} in the table and declared {type_name(column.type)}"
                message = f"{self._owner}: {self._path}, {version}: column {column.name} {mismatch}"
                hint = "declare the type of the table, and CAST in the query"
                raise PenstockError("P0402", message, hint=hint)


def _version_option(options: Options) -> int | str | None:
    """Return the version or time of a snapshot, if an option sets one.

    Raises:
        PenstockError: P0208.
    """
    if options.has(_VERSION) and options.has(_TIMESTAMP):
        raise PenstockError("P0208", f"{options.owner}: set only one of the options version and timestamp")
    if options.has(_VERSION):
        return options.value(_VERSION)
    if not options.has(_TIMESTAMP):
        return None
    text = options.text(_TIMESTAMP).strip()
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        message = f"{options.owner}: option timestamp cannot be '{text}': it is as 2024-03-01T10:00:00Z"
        raise PenstockError("P0208", message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).isoformat()


def _features(table: DeltaTable) -> frozenset[str]:
    return frozenset(table.protocol().reader_features or ())


def _configuration(table: DeltaTable) -> Mapping[str, str]:
    return dict(table.metadata().configuration or {})


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the plain type for the library's views of texts and its unsigned version numbers."""
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    return pa.int64() if pa.types.is_uint64(type_) else type_


def _partitions(values: pa.ChunkedArray) -> list[dict[str, str | None]]:
    """The typed partition values of files as texts."""
    names = [field.name for field in values.type]
    columns = [_texts(column) for column in values.combine_chunks().flatten()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _texts(values: pa.Array) -> list[str | None]:
    """Values as the log writes them; dates and timestamps in any year."""
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        return [None if text is None else text.decode() for text in plain(values).to_pylist()]
    return [None if value is None else _text(value) for value in values.to_pylist()]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
