"""Rows that were posted to the sources of a server, each post durable before the reply and accepted once.

The files are those of the connector POSTED, in a folder by the number of the source. The rows of a relation stay there:
they are its content, which UPDATE and DELETE are evaluated against.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import StreamRecord, placed, with_heartbeats
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import typed_table
from penstock.connectors.sources.posted_files import (
    UNTIL,
    PostedFilesSource,
    append,
    key_of,
    last_number,
    lost,
    post_of,
    rows_files,
    withdraw,
)
from penstock.connectors.sources.posted_keys import KnownKeys, expire_keys, kept_keys
from penstock.connectors.text import plain
from penstock.control.sealed_files import SealedFiles, not_written
from penstock.errors import Busy, PenstockError
from penstock.storage import storage
from penstock.storage.documents import array, as_array, as_integer
from penstock.storage.stamps import StampRetention

#: The primary key of a row, as text.
PrimaryKey = tuple[bytes | None, ...]
#: Connectors whose rows are posted.
POSTED = ("MEMORY", "HTTP")
_CONTENTS_READ = "contents-read.json"
#: Seconds for which the number of unread bytes is taken to be known.
_LOOK_EVERY = 0.1
#: Keys are looked through in parts of their retention, but not more often than in so many microseconds.
_EXPIRE_PARTS, _EXPIRE_EVERY = 16, 1_000_000


@dataclass
class _Posts:
    """The posts of one source. keys: those that are kept; number: of the last post; expired: when keys were removed
    last, in microseconds since 1970."""

    folder: Path
    number: int
    keys: KnownKeys = field(default_factory=KnownKeys)
    expired: int = field(default_factory=lambda: _now())


@dataclass
class _PrimaryKeys:
    """The primary keys of a relation, up to the post of a number."""

    number: int = 0
    keys: set[PrimaryKey] = field(default_factory=set)


class PostLimits:
    """Limits of the rows that are posted: `rate_limit` of a source, and `max_unread_bytes` of all together.

    Rows of a statement are not limited: they have been accepted with it.

    Args:
        unread: returns the bytes that the run has found and not read yet.
        most: of them, in bytes; 0 for any number.
        clock: seconds, monotonic.
    """

    def __init__(self, unread: Callable[[], int], most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._unread = unread
        self._most = most
        self._clock = clock
        #: By source: how many rows it may have now, and as of when. A second's worth gathers at most.
        self._levels: dict[int, tuple[float, float]] = {}
        self._looked_at = -math.inf
        #: Bytes that were unread at the last look, and that have been admitted since.
        self._waiting = 0

    def admit(self, source: Source, source_id: int, rows: pa.Table) -> None:
        """Count a post. More rows than a second allows may come as one post; the next one waits for longer then. Raises
        Busy where it has to come later."""
        now = self._clock()
        limit = source.option("rate_limit")
        rate = int(limit) if limit else None
        level = 0.0
        if rate is not None:
            before, at = self._levels.get(source_id, (float(rate), now))
            level = min(float(rate), before + (now - at) * rate)
            lacking = min(rows.num_rows, rate) - level
            if lacking > 0:
                raise Busy(
                    f"{source.name} takes {rate:,} rows per second, its rate_limit",
                    lacking / rate,
                    hint="send the rows again later; ALTER STREAM ... SET (rate_limit ...) changes the limit",
                )
        self._check_unread(rows, now)
        if rate is not None:
            self._levels[source_id] = level - rows.num_rows, now

    def _check_unread(self, rows: pa.Table, now: float) -> None:
        if not self._most:
            return
        if now - self._looked_at >= _LOOK_EVERY:
            self._waiting, self._looked_at = self._unread(), now
        if self._waiting and self._waiting + rows.nbytes > self._most:
            message = (
                f"{self._waiting:,} bytes of posted rows have not been read yet, of max_unread_bytes {self._most:,}"
            )
            raise Busy(message, 1.0, hint="send the rows again later")
        self._waiting += rows.nbytes

    def forget(self, source_id: int) -> None:
        """Forget a source that has been dropped."""
        self._levels.pop(source_id, None)


@dataclass
class PostedRows:
    """The posts of all sources.

    Args:
        root: a folder, with one for each source.
        retention: for how many seconds an idempotency key is kept.
        limits: of the posts of callers; None for none.
    """

    root: Path
    retention: float
    limits: PostLimits | None = None
    _known: dict[int, _Posts] = field(default_factory=dict)
    #: Whether those of all folders are in `_known`.
    _all_known: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _primary_keys: dict[int, _PrimaryKeys] = field(default_factory=dict)
    _keys_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._stamps = StampRetention(self.retention, lambda: _now())

    def folder(self, source_id: int) -> Path:
        """Return the folder of a source."""
        return self.root / str(source_id)

    def source(self, source: Source, source_id: int) -> Source:
        """Return the declaration that reads the posts of a source, if its rows are posted; any other as it is."""
        if source.connector not in POSTED:
            return source
        return self.kept(source, source_id)

    def heartbeats(self, source: Source, source_id: int) -> Source | None:
        """Return the declaration that reads the heartbeats and punctuations of statements for a stream that is not
        posted to; None for a relation. Those of one that is are among its posts."""
        if source.connector in POSTED or not source.is_stream:
            return None
        return self.kept(source, source_id)

    def kept(self, source: Source, source_id: int) -> Source:
        """Return the declaration that reads the posts of a source, whatever its connector."""
        options = (("spool", str(self.folder(source_id))), ("source", str(source_id)))
        return replace(source, connector="POSTED", options=options)

    def until(self, source: Source, post: int) -> Source:
        """Return a relation without timestamps, as `source` returns it, up to the post of a number."""
        return replace(source, options=(*source.options, (UNTIL, str(post))))

    def has(self, source_id: int, key: str) -> bool:
        """Return whether a post with a key has been accepted."""
        with self._lock:
            return self._posts(source_id).keys.at(key) is not None

    def post(
        self,
        source: Source,
        source_id: int,
        rows: pa.Table,
        key: str | None = None,
        same: bool = False,
        limited: bool = False,
        record: StreamRecord | None = None,
    ) -> bool:
        """Append rows to a source; they are durable then. Return False for a post that was accepted before.

        Args:
            record: a heartbeat or a punctuation that is posted in place of rows, of which there are none.
            same: an equal key alone makes it the same post.
            limited: the limits hold for it.

        Raises:
            PenstockError: P0601, nothing has been posted; P0731, the key was used for other rows, or for those of
                another source; P0203, P0305.
            Busy: it is beyond a limit, and nothing has been posted.
        """
        typed = typed_table(source, rows)
        if record is not None:
            typed = with_heartbeats(typed, [placed(0, record)])
        digest = "" if key is None else _digest(typed)
        with self._lock:
            posts = self._posts(source_id)
            before = None if key is None else posts.keys.at(key)
            if key is not None and before is not None and self._stamps.keeps(before):
                if not same and not posts.keys.has(key, digest):
                    # The name of the token stands before it, without a blank.
                    raise key_used(key.partition(" ")[2])
                return False
            if key is not None and not same and self._is_used_elsewhere(source_id, key):
                raise key_used(key.partition(" ")[2])
            if not typed.num_rows and key is None and record is None:
                return True
            if limited and self.limits is not None:
                self.limits.admit(source, source_id, typed)
            try:
                post = append(posts.folder, typed, posts.number + 1, key or "", digest)
                posts.number += 1
                if key is not None:
                    posts.keys.add(key, digest, post.at)
            except Exception as error:
                # It may be there, and a reader may know it: what the folder has is read again.
                self._known.pop(source_id, None)
                if isinstance(error, OSError):
                    raise not_written(posts.folder, error) from error
                raise
            every = max(_EXPIRE_EVERY, int(self.retention * 1e6) // _EXPIRE_PARTS)
            # The clock may have been set back since.
            if abs(_now() - posts.expired) > every:
                self._expire(posts)
            return True

    def last(self, source_id: int) -> int:
        """Return the number of the last post of a source, 0 before the first."""
        with self._lock:
            return self._posts(source_id).number

    def withdraw(self, source_id: int, key: str) -> None:
        """Take back a post that has not been read."""
        with self._lock:
            posts = self._posts(source_id)
            for path in rows_files(posts.folder):
                if key_of(path).key == key:
                    withdraw(path)
            posts.keys.remove(key)
        self._forget_primary_keys(source_id)

    def table(self, source: Source, source_id: int) -> pa.Table:
        """Return the rows of a source whose files are still there, in the order in which they were posted. Raises
        PenstockError P0605."""
        schema = pa.schema([pa.field(one.name, one.type) for one in source.columns])
        paths = open_source(self.source(source, source_id)).discover(frozenset())
        return pa.concat_tables([schema.empty_table(), *(_rows_in(source, Path(path)) for path in paths)])

    def primary_keys(self, source: Source, source_id: int) -> Set[PrimaryKey]:
        """Return the primary keys of the rows of a relation without timestamps. What was posted since the last call is
        read. Raises PenstockError P0605."""
        with self._keys_lock:
            known = self._primary_keys.setdefault(source_id, _PrimaryKeys())
            if known.number < self.last(source_id):
                for path in PostedFilesSource(self.source(source, source_id)).behind(known.number):
                    known.keys.update(primary_keys(source, _rows_in(source, Path(path))))
                    known.number = post_of(path)
            return known.keys

    def _forget_primary_keys(self, source_id: int) -> None:
        with self._keys_lock:
            self._primary_keys.pop(source_id, None)

    def drop(self, source_id: int) -> None:
        """Remove all posts of a source that has been dropped."""
        self._forget_primary_keys(source_id)
        with self._lock:
            self._known.pop(source_id, None)
            if self.limits is not None:
                self.limits.forget(source_id)
            storage().remove_tree(self.folder(source_id))

    def expire(self) -> None:
        """Remove the keys that are older than the retention."""
        with self._lock:
            for posts in self._known.values():
                self._expire(posts)

    def _expire(self, posts: _Posts) -> None:
        """Remove old keys of a source. What cannot be removed now is removed later."""
        posts.expired = _now()
        kept = self._stamps.kept(posts.keys.latest())
        posts.keys.expire(*kept)
        with suppress(OSError):
            expire_keys(posts.folder, *kept)

    def _is_used_elsewhere(self, source_id: int, key: str) -> bool:
        """Return whether there was a post with a key to another source."""
        if not self._all_known:
            for name in storage().list(self.root):
                if name.isdecimal():
                    self._posts(int(name))
            self._all_known = True
        others = (posts.keys.at(key) for number, posts in self._known.items() if number != source_id)
        return any(at is not None and self._stamps.keeps(at) for at in others)

    def _posts(self, source_id: int) -> _Posts:
        if source_id not in self._known:
            folder = self.folder(source_id)
            found = chain(kept_keys(folder), map(key_of, rows_files(folder)))
            self._known[source_id] = _Posts(folder, last_number(folder), KnownKeys.of(found))
        return self._known[source_id]


def primary_keys(source: Source, rows: pa.Table) -> list[PrimaryKey]:
    """Return the primary key of each row."""
    columns = (plain(rows.column(i).combine_chunks()).to_pylist() for i in source.primary_key)
    return list(zip(*columns, strict=True))


def _rows_in(source: Source, path: Path) -> pa.Table:
    try:
        with pa.ipc.open_file(storage().map(path)) as reader:
            return reader.read_all().replace_schema_metadata(None)
    except (pa.ArrowException, OSError) as error:
        raise lost(source.name, path, error) from error


@dataclass
class ContentsRead:
    """Up to which post each computation reads the relations that have no timestamps.

    Such a relation holds from the beginning of time: a computation reads it when it begins, and keeps what it has read
    until it ends, also over restarts. One that begins later reads what has been posted by then. The same query by
    another plan reads what the query has read.

    Args:
        files: where that is kept.
    """

    files: SealedFiles
    #: By computation and number of a relation, the number of the last post that is read.
    _kept: dict[int, dict[int, int]] = field(default_factory=dict)
    #: Of computations that are to begin.
    _coming: dict[int, dict[int, int]] = field(default_factory=dict)

    @staticmethod
    def opened(files: SealedFiles) -> ContentsRead:
        """Return what is kept. Raises PenstockError P0605."""
        kept: dict[int, dict[int, int]] = {}
        if _CONTENTS_READ in files.names():
            for entry in array(files.read(_CONTENTS_READ), "read"):
                computation, source, post = (as_integer(one, "read") for one in as_array(entry, "read"))
                kept.setdefault(computation, {})[source] = post
        return ContentsRead(files, kept)

    def of(self, computation: int) -> Mapping[int, int]:
        """Return up to which posts a computation reads; nothing where it is not known."""
        return self._kept.get(computation, {})

    def begin(self, computation: int, posts: Mapping[int, int]) -> None:
        """Note up to which posts a computation will read that is to begin, in place of what was noted before."""
        self._coming[computation] = dict(posts)

    def keep(self, computations: frozenset[int]) -> frozenset[int]:
        """Keep what was noted of computations that begin now; return these.

        Args:
            computations: all that stand then; what is kept of others is forgotten.

        Raises:
            PenstockError: P0601; nothing has changed.
        """
        new = {id_: posts for id_, posts in self._coming.items() if id_ in computations and posts}
        self._coming = {}
        if new:
            self._write({**{id_: posts for id_, posts in self._kept.items() if id_ in computations}, **new})
        return frozenset(new)

    def give_up(self, computations: frozenset[int]) -> None:
        """Forget computations that have not begun. Raises PenstockError P0601."""
        if computations:
            self._write({id_: posts for id_, posts in self._kept.items() if id_ not in computations})

    def _write(self, kept: dict[int, dict[int, int]]) -> None:
        entries = [[computation, *pair] for computation, posts in kept.items() for pair in posts.items()]
        self.files.write(_CONTENTS_READ, {"read": entries})
        self._kept = kept


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
