"""Rows that were posted to the sources of a server, each post durable before the reply and accepted once.

The files are those of the connector POSTED, in a folder by the number of the source. The rows of a relation stay there:
they are its content, which UPDATE and DELETE are evaluated against.
"""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.sources.memory import typed_table
from penstock.connectors.sources.posted_files import append, key_of, last_number, rows_files
from penstock.connectors.sources.posted_keys import PostKey, expire_keys, kept_keys
from penstock.control.sealed_files import not_written
from penstock.errors import PenstockError
from penstock.storage import storage

#: Connectors whose rows are posted.
POSTED = ("MEMORY", "HTTP")
#: Keys are looked through in parts of their retention, but not more often than in so many microseconds.
_EXPIRE_PARTS, _EXPIRE_EVERY = 16, 1_000_000


@dataclass
class _Posts:
    """The posts of one source. keys: those that are kept; number: of the last post; expired: when keys were removed
    last, in microseconds since 1970."""

    folder: Path
    number: int
    keys: dict[str, PostKey] = field(default_factory=dict)
    expired: int = field(default_factory=lambda: _now())


@dataclass
class PostedRows:
    """The posts of all sources.

    Args:
        root: a folder, with one for each source.
        retention: for how many seconds an idempotency key is kept.
    """

    root: Path
    retention: float
    _known: dict[int, _Posts] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def folder(self, source_id: int) -> Path:
        """Return the folder of a source."""
        return self.root / str(source_id)

    def source(self, source: Source, source_id: int) -> Source:
        """Return the declaration that reads the posts of a source, if its rows are posted; any other as it is."""
        if source.connector not in POSTED:
            return source
        options = (("spool", str(self.folder(source_id))), ("source", str(source_id)))
        return replace(source, connector="POSTED", options=options)

    def has(self, source_id: int, key: str) -> bool:
        """Return whether a post with a key has been accepted."""
        with self._lock:
            return key in self._posts(source_id).keys

    def post(self, source: Source, source_id: int, rows: pa.Table, key: str | None = None, same: bool = False) -> bool:
        """Append rows to a source; they are durable then. Return False for a post that was accepted before.

        same: the key alone tells that it is the same post.

        Raises:
            PenstockError: P0601, nothing has been posted; P0731, the key was used for other rows; P0203, P0305.
        """
        typed = typed_table(source, rows)
        digest = "" if key is None else _digest(typed)
        with self._lock:
            posts = self._posts(source_id)
            before = None if key is None else posts.keys.get(key)
            if before is not None and before.at >= _now() - int(self.retention * 1e6):
                if not same and before.digest != digest:
                    raise key_used(key or "")
                return False
            if not typed.num_rows and key is None:
                return True
            try:
                path = append(posts.folder, typed, posts.number + 1, key or "", digest)
            except OSError as error:
                raise not_written(posts.folder, error) from error
            posts.number += 1
            if key is not None:
                posts.keys[key] = key_of(path)
            if posts.expired < _now() - max(_EXPIRE_EVERY, int(self.retention * 1e6) // _EXPIRE_PARTS):
                self._expire(posts)
            return True

    def withdraw(self, source_id: int, key: str) -> None:
        """Remove a post that has not been read."""
        with self._lock:
            posts = self._posts(source_id)
            for path in rows_files(posts.folder):
                if key_of(path).key == key:
                    storage().remove(path)
            posts.keys.pop(key, None)

    def table(self, source: Source, source_id: int) -> pa.Table:
        """Return the rows of a source whose files are still there, in the order in which they were posted."""
        schema = pa.schema([pa.field(one.name, one.type) for one in source.columns])
        tables = []
        for path in rows_files(self.folder(source_id)):
            with pa.ipc.open_file(storage().map(path)) as reader:
                tables.append(reader.read_all().replace_schema_metadata(None))
        return pa.concat_tables([schema.empty_table(), *tables])

    def drop(self, source_id: int) -> None:
        """Remove all posts of a source that has been dropped."""
        with self._lock:
            self._known.pop(source_id, None)
            storage().remove_tree(self.folder(source_id))

    def expire(self) -> None:
        """Remove the keys that are older than the retention."""
        with self._lock:
            for posts in self._known.values():
                self._expire(posts)

    def _expire(self, posts: _Posts) -> None:
        """Remove old keys of a source. What cannot be removed now is removed later."""
        posts.expired = _now()
        before = posts.expired - int(self.retention * 1e6)
        for key in [key for key, post in posts.keys.items() if post.at < before]:
            del posts.keys[key]
        with suppress(OSError):
            expire_keys(posts.folder, before)

    def _posts(self, source_id: int) -> _Posts:
        if source_id not in self._known:
            folder = self.folder(source_id)
            found = [*kept_keys(folder), *map(key_of, rows_files(folder))]
            self._known[source_id] = _Posts(folder, last_number(folder), {post.key: post for post in found if post.key})
        return self._known[source_id]


def key_used(key: str) -> PenstockError:
    """Return the error for an idempotency key that comes again with something else."""
    return PenstockError(
        "P0731", f"the idempotency key {key} was used for something else", hint="use a new key for each new request"
    )


def _digest(rows: pa.Table) -> str:
    """Return a digest of rows, the same for the same rows however they are cut."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _now() -> int:
    return time.time_ns() // 1000
