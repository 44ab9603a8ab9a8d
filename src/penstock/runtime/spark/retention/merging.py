"""Few files of a retained stream in place of many: those of many rounds are merged into one.

Each ingest task of each round writes a file, so a stream that is retained for a day has hundreds of thousands of them,
however few rows each has. Small ones of rounds that are delivered are merged in the order of arrival; a merged file is
merged with the one before it that is not much larger, so an element is written again only a few times, and files are
few. All files of a round are merged together or none.

Contract: a merged file is renamed, and the files it replaces are removed, while there are no readers: a reader finds
the former files or the merged one, however often it lists them. A crash between the two leaves files that do not count
(`RetainedLog.files`) and are removed with the next merge.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.physical.elements import encoded
from penstock.runtime.spark.checkpoint.folder import unwritable
from penstock.runtime.spark.retention.file_checksum import checksum
from penstock.runtime.spark.retention.retained_log import ROUND, RetainedFile, RetainedLog
from penstock.storage import storage
from penstock.storage.local import TEMPORARY

#: Files behind the last merged one that stay as they are.
FEW = 256
#: Bytes of a round from which on its files stay as they are, and at most about as many has a merged file.
_LARGE = 8 * 2**20
#: A file is merged with the merged one before it if that one is at most so many times as large.
_RATIO = 2
#: Bytes up to which it is merged in any case.
_SMALL = 2**18


@dataclass(frozen=True)
class _Rounds:
    """Files of some rounds in a row, whole rounds. bytes: of all; low, high: their least and largest timestamp."""

    files: tuple[RetainedFile, ...]
    bytes: int
    low: int
    high: int

    @property
    def is_merged(self) -> bool:
        return self.files[0].last is not None

    def __add__(self, other: _Rounds) -> _Rounds:
        low, high = min(self.low, other.low), max(self.high, other.high)
        return _Rounds(self.files + other.files, self.bytes + other.bytes, low, high)


def files_to_merge(log: RetainedLog, last: int, span: int) -> list[RetainedFile]:
    """Return files of rounds up to `last` that are to be merged into one; none where there are few.

    Args:
        span: the ticks that a merged file may cover: it is removed when the last of its elements is too old.
    """
    rounds: list[_Rounds] = []
    for _, of_round in groupby(log.files(last=last), key=lambda file: file.round):
        files = tuple(of_round)
        low, high = min(file.low for file in files), max(file.high for file in files)
        rounds.append(_Rounds(files, sum(map(log.size, files)), low, high))

    def fit(one: _Rounds, other: _Rounds) -> bool:
        covered = max(one.high, other.high) - min(one.low, other.low)
        return one.bytes + other.bytes <= _LARGE and covered <= span

    before: list[_Rounds] = []
    for stays, some in groupby(rounds, key=lambda one: one.is_merged or one.bytes >= _LARGE):
        run = list(some)
        is_last = run[-1] is rounds[-1]
        if not stays and sum(len(one.files) for one in run) >= (FEW if is_last else 2):
            groups = _groups(run, fit)
            # What follows a merged file may be merged with it.
            while before and before[-1].is_merged and _absorbs(groups[0], before[-1]) and fit(before[-1], groups[0]):
                groups[0] = before.pop() + groups[0]
            found = next((one for one in groups if len(one.files) > 1), None)
            if found is not None:
                return list(found.files)
        before = run
    return []


def _absorbs(new: _Rounds, before: _Rounds) -> bool:
    """Return whether files are merged with a merged one before them, which is not much larger."""
    return before.bytes <= max(_SMALL, _RATIO * new.bytes)


def _groups(rounds: Sequence[_Rounds], fit: Callable[[_Rounds, _Rounds], bool]) -> list[_Rounds]:
    """Put rounds in a row together as long as they fit."""
    groups = [rounds[0]]
    for one in rounds[1:]:
        if fit(groups[-1], one):
            groups[-1] += one
        else:
            groups.append(one)
    return groups


@dataclass(frozen=True)
class MergedFile:
    """A merged file that does not count yet. path: where it lies; replaced: the files that it has the rows of."""

    path: Path
    file: RetainedFile
    replaced: tuple[RetainedFile, ...]


@contextmanager
def merged_file(log: RetainedLog, files: Sequence[RetainedFile]) -> Iterator[MergedFile]:
    """Write the rows of some files, all of their rounds, into one; it goes unless it has been put in their place
    (`put_in_place`). Raises PenstockError P0601, P0605."""
    parts = [_numbered(batch, file) for file in files for batch in log.batches(file)]
    whole = pa.Table.from_batches(parts).combine_chunks()
    data = encoded(whole.to_batches())
    first, last = files[0].rounds[0], files[-1].rounds[1]
    low, high = min(file.low for file in files), max(file.high for file in files)
    file = RetainedFile(first, -1, low, high, checksum(data), last)
    path = log.place / f"{TEMPORARY[0]}merged.{secrets.token_hex(6)}{TEMPORARY[1]}"
    try:
        with storage().create(path) as output:
            output.write(memoryview(data))
            output.sync()
        yield MergedFile(path, file, tuple(files))
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        storage().remove(path)


def put_in_place(log: RetainedLog, merged: MergedFile) -> None:
    """Give a merged file its name, and remove those that it replaces. Raises OSError."""
    storage().rename(merged.path, log.place / merged.file.name)
    storage().sync(log.place)
    for file in merged.replaced:
        storage().remove(log.place / file.name)


def _numbered(batch: pa.RecordBatch, file: RetainedFile) -> pa.RecordBatch:
    """Return rows of a file with the round of each."""
    if file.last is not None:
        return batch
    return batch.append_column(ROUND, pa.array(np.full(len(batch), file.round, np.int32)))
