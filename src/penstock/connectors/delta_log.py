"""Delta tables as used by both their source and their sink: opening one, its commits, which features can be read.

The library (delta-rs) gives tables and snapshots but not the contents of a single commit, so `commit` reads it from the
log, whose format the Delta protocol defines: `_delta_log/<version>.json`, one action per line.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.connectors.local_paths import local_path
from penstock.errors import PenstockError

try:
    import deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
except ImportError:  # the extra `delta` is not installed: `needed` raises the error
    deltalake = None  # type: ignore[assignment]  # never used then
    CommitFailedError = DeltaError = TableNotFoundError = OSError  # type: ignore[misc,assignment]  # classes never raised then

__all__ = [
    "Commit",
    "CommitFailedError",
    "DataFile",
    "DeltaError",
    "arrow_schema",
    "columns_of",
    "commit",
    "deletion_vectors",
    "deltalake",
    "needed",
    "one_line",
    "open_table",
    "readable",
    "table_path",
]

#: Features of a table that its data files can be read without, or that are checked one by one. Columns of a type that
#: Penstock lacks fit no declaration, and files of a narrower type than the table's are widened.
_READABLE = frozenset(
    {
        "timestampNtz",
        "vacuumProtocolCheck",
        "v2Checkpoint",
        "deletionVectors",
        "columnMapping",
        "variantType",
        "variantType-preview",
        "variantShredding-preview",
        "typeWidening",
        "typeWidening-preview",
    }
)
_COMMIT = re.compile(r"^\d{20}\.json$")


@dataclass(frozen=True)
class DataFile:
    """A file that a commit added.

    `path`: absolute; `partition`: column -> value as the log writes it, None for NULL; `deleted`: some of its rows are
    marked as deleted.
    """

    path: str
    partition: Mapping[str, str | None]
    deleted: bool = False


@dataclass(frozen=True)
class Commit:
    """The changes of one version.

    `added`: new data in the log's order; `removed`: number of files whose data was removed; `bytes`: stored size of all
    changes; `schema`, `configuration`, `reader_features`: of the table from this version on, if the commit sets them.
    """

    added: tuple[DataFile, ...]
    removed: int
    bytes: int
    schema: str | None
    configuration: Mapping[str, str]
    reader_features: frozenset[str]


def table_path(text: str) -> str:
    """Return the absolute folder that the option `path` names."""
    return str(local_path(text))


def needed(owner: str) -> None:
    """Check that the library is installed.

    Raises:
        PenstockError: P0208, it is not.
    """
    if deltalake is None:
        raise PenstockError("P0208", f"{owner} needs the package deltalake", hint="pip install 'penstock[delta]'")


def open_table(owner: str, path: str, version: int | str | None = None) -> deltalake.DeltaTable:
    """Return the table in the folder `path`, as of a version or a time.

    Raises:
        PenstockError: P0401, P0404.
    """
    needed(owner)
    if Path(path).is_file():
        hint = "the folder of a Delta table has a folder _delta_log; FROM FILES reads files"
        raise PenstockError("P0404", f"{owner}: no Delta table at {path}: it is a file", hint=hint)
    try:
        table = deltalake.DeltaTable(path, version=version if isinstance(version, int) else None)
        if isinstance(version, str):
            table.load_as_version(version)
            if _commit_time(path, table.version()) > dt.datetime.fromisoformat(version).timestamp():
                raise ValueError("its log begins with a later version")
    except TableNotFoundError:
        hint = "the folder of a Delta table has a folder _delta_log"
        raise PenstockError("P0404", f"{owner}: no Delta table at {path}", hint=hint) from None
    except (DeltaError, OSError, ValueError) as error:
        as_of = "" if version is None else f" as of {version}"
        raise PenstockError("P0401", f"{owner}: {path} cannot be read{as_of}: {one_line(error)}") from None
    return table


def _commit_time(path: str, version: int) -> float:
    """Return the time of a version, in seconds since 1970, from the log's own files."""
    commit_file = Path(path, "_delta_log", f"{version:020d}.json")
    return commit_file.stat().st_mtime if commit_file.exists() else 0.0


def readable(owner: str, path: str, features: frozenset[str], configuration: Mapping[str, str]) -> None:
    """Check that the rows of a table can be read from its data files alone.

    Raises:
        PenstockError: P0401, they cannot.
    """
    unknown = sorted(features - _READABLE)
    if unknown:
        raise PenstockError("P0401", f"{owner}: {path} needs a reader that supports {', '.join(unknown)}")
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        hint = "copy it to a table without column mapping"
        raise PenstockError("P0401", f"{owner}: {path} maps its columns to other names: not supported", hint=hint)


def deletion_vectors(owner: str, path: str) -> PenstockError:
    hint = "rewrite the table without them (REORG TABLE .. APPLY (PURGE)), and set delta.enableDeletionVectors = false"
    return PenstockError(
        "P0401", f"{owner}: {path} marks rows as deleted by deletion vectors: not supported", hint=hint
    )


def first_version(path: str) -> int | None:
    """Return the earliest version whose commit is still in the log."""
    names = (p.name for p in Path(path, "_delta_log").iterdir() if _COMMIT.match(p.name))
    return min((int(name[:20]) for name in names), default=None)


def commit(owner: str, path: str, version: int) -> Commit:
    """Return the changes of `version`.

    Raises:
        PenstockError: P0401, the log no longer has it, or it is damaged.
    """
    commit_file = Path(path, "_delta_log", f"{version:020d}.json")
    try:
        actions = [json.loads(line) for line in commit_file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        earliest = first_version(path)
        hint = None if earliest is None else f"write starting '{earliest}', the earliest version"
        raise PenstockError("P0401", f"{owner}: version {version} of {path} is gone from its log", hint=hint) from None
    except (OSError, ValueError) as error:
        raise PenstockError("P0401", f"{owner}: {commit_file} cannot be read: {one_line(error)}") from None
    return _as_commit(path, actions)


def _as_commit(path: str, actions: list[dict[str, Any]]) -> Commit:
    added, removed, size = [], 0, 0
    schema, features, configuration = None, frozenset[str](), dict[str, str]()
    for action in actions:
        size += sum((action.get(kind) or {}).get("size") or 0 for kind in ("add", "remove", "cdc"))
        if (add := action.get("add")) and add.get("dataChange", True):
            file_path = urllib.parse.unquote(add["path"])
            absolute_path = file_path if file_path.startswith("/") else str(Path(path, file_path))
            added.append(DataFile(absolute_path, add.get("partitionValues") or {}, bool(add.get("deletionVector"))))
        if (remove := action.get("remove")) and remove.get("dataChange", True):
            removed += 1
        if meta := action.get("metaData"):
            schema, configuration = meta.get("schemaString"), meta.get("configuration") or {}
        if protocol := action.get("protocol"):
            features = frozenset(protocol.get("readerFeatures") or ())
    return Commit(tuple(added), removed, size, schema, configuration, features)


def arrow_schema(schema: deltalake.Schema | str) -> pa.Schema:
    """Return a schema of the library, or the log's own text of one, as an Arrow schema."""
    if isinstance(schema, str):
        schema = deltalake.Schema.from_json(schema)
    return pa.schema(schema.to_arrow())


def columns_of(table: deltalake.DeltaTable, names: Sequence[str]) -> pa.Table:
    """Columns of an open table, of values in any year; the library's own way into pyarrow reads the statistics of files
    through Python's calendar."""
    column_list = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    result = deltalake.QueryBuilder().register("t", table).execute(f"SELECT {column_list} FROM t")
    return pa.table(result.read_all())


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
