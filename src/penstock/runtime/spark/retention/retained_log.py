"""The retained elements of one stream: the accepted ones, stamped, in the order of arrival.

`retention/<source>/` holds a file for each ingest task that accepted elements. Its name has the round, the task, the
least and the largest timestamp and the checksum, so the names are the index, and a task that is repeated writes the
same file again. Files of many rounds are replaced by one (`merging.py`), in which a column has the round of each row;
those that it replaces do not count from then on, and are removed. `kept.json` has the tick after which all elements are
there. It is written before a file is removed, and when a stream that has been read begins to be retained.
`ended.json` is there when it is no longer retained, and a reader still needs its files.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.physical.elements import Elements, decode
from penstock.physical.execution.ingest import ticks
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.retention.file_checksum import checksum
from penstock.storage import storage
from penstock.storage.seals import damaged
from penstock.types import END

#: The folder of all retained streams, in that of the run.
RETAINED = "retained"
#: Name of the column of timestamps, where they are not among the others.
TS = "ts"
#: Name of the column of rounds of a merged file.
ROUND = "round"
#: How its name goes on behind its first round.
_MERGED = "r"


@dataclass(frozen=True)
class RetainedFile:
    """One file, or the rows in it of some rounds.

    Args:
        round, task: that wrote it; of a merged one its first round, and no task.
        low, high: its least and largest timestamp.
        last: the last round of a merged file; None for another one.
        part: the first and the last of the rounds whose rows are read; None for all.
    """

    round: int
    task: int
    low: int
    high: int
    checksum: str
    last: int | None = None
    part: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        writer = f"{self.task:05d}" if self.last is None else f"{_MERGED}{self.last:09d}"
        return f"{self.round:09d}-{writer}.{self.low}.{self.high}.{self.checksum}.arrow"

    @staticmethod
    def of(name: str) -> RetainedFile | None:
        """Return the file of this name; None for another kind of file."""
        parts = name.split(".")
        if name.startswith(".") or len(parts) != 5 or parts[-1] != "arrow":
            return None
        round_, _, writer = parts[0].partition("-")
        is_merged = writer.startswith(_MERGED)
        task, last = (-1, int(writer.removeprefix(_MERGED))) if is_merged else (int(writer), None)
        return RetainedFile(int(round_), task, int(parts[1]), int(parts[2]), parts[3], last)

    @property
    def rounds(self) -> tuple[int, int]:
        """Return the first and the last round of its rows."""
        return self.part or (self.round, self.round if self.last is None else self.last)

    def between(self, first: int, last: int | None) -> RetainedFile | None:
        """Return its rows of the rounds from `first` to `last`; None where it has none."""
        begin, end = self.rounds
        rounds = max(begin, first), end if last is None else min(end, last)
        if rounds[0] > rounds[1]:
            return None
        return self if rounds == (begin, end) else replace(self, part=rounds)

    def parted(self, ends: Iterable[int]) -> Iterator[RetainedFile]:
        """Yield its rows in parts, so that none goes on behind one of the rounds `ends`, which ascend."""
        begin, end = self.rounds
        for last in (*ends, end):
            part = self.between(begin, last)
            if part is not None:
                yield part
            begin = max(begin, last + 1)


def retained_columns(source: Source) -> tuple[int, ...]:
    """Return the positions of the declared columns that are retained; none where the source is not."""
    if source.retain is None:
        return ()
    return source.retain_columns or tuple(range(len(source.columns)))


class RetainedLog:
    """The retained elements of one source.

    Args:
        file: the name of the source in the folder (`epochs.source_file`).
        timestamp: the position of its timestamp column; None for SYSTEM TIME.
        kind: the folder of all logs of its kind, in that of the run.
    """

    def __init__(self, folder: Folder, file: str, timestamp: int | None = None, kind: str = RETAINED) -> None:
        self._folder = folder
        self._timestamp = timestamp
        self.place = folder.root / kind / file
        self._mark = self.place / "kept.json"
        self._ended = self.place / "ended.json"

    # -- beginning and removing --------------------------------------------------------------------------------

    def begin(self, high: int | None) -> None:
        """Begin to retain, unless that has begun. high: the largest timestamp of what was read before."""
        was_ended = storage().exists(self._ended)
        if was_ended or not self.is_begun:
            self._write_mark(high)
        if was_ended:
            # After the mark: if it is still there at the next start, the mark is written again, with a later tick.
            storage().remove(self._ended)

    def end(self) -> None:
        """Note that what is read from now on is not retained, while the files stay."""
        self._folder.write_sealed(self._ended, "true")

    def forget_rounds_after(self, last: int) -> None:
        """Remove what an interrupted attempt at a round after `last` left: the round may be planned otherwise."""
        for file in self.files():
            if file.round > last:
                storage().remove(self.place / file.name)

    def forget(self, until: int) -> None:
        """Remove the files without an element after the tick `until`."""
        counting, replaced = self._listed()
        # Those that a merged file replaces first, or they would count again without it.
        old = [file for file in [*replaced, *counting] if file.high <= until]
        if not old:
            return
        kept = self.after
        highest = max(file.high for file in old)
        self._write_mark(highest if kept is None else max(kept, highest))
        for file in old:
            storage().remove(self.place / file.name)

    def _write_mark(self, after: int | None) -> None:
        self._folder.write_sealed(self._mark, json.dumps(after))

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def after(self) -> int | None:
        """Return the tick after which all elements are retained; None where all are. Raises PenstockError P0605."""
        try:
            after: int | None = json.loads(self._folder.read_sealed(self._mark))
        except (OSError, ValueError) as error:
            raise damaged(self._mark, error) from error
        return after

    @property
    def is_begun(self) -> bool:
        """Return whether the stream is retained, or was."""
        return storage().exists(self._mark)

    def has(self, bound: int | None) -> bool:
        """Return whether all elements after the tick `bound` are retained, None for all."""
        if not self.is_begun:
            return False
        after = self.after
        return after is None or (bound is not None and bound >= after)

    def files(self, first: int = 0, last: int | None = None) -> list[RetainedFile]:
        """Return the files of the rounds from `first` to `last`, in the order of arrival, without those that a merged
        one replaces."""
        chosen = (file.between(first, last) for file in self._listed()[0])
        return [file for file in chosen if file is not None]

    def replaced(self) -> list[RetainedFile]:
        """Return the files whose rows a merged one has too."""
        return self._listed()[1]

    def _listed(self) -> tuple[list[RetainedFile], list[RetainedFile]]:
        """Return the files that count, in the order of arrival, and the others."""
        found = (RetainedFile.of(name) for name in storage().list(self.place))
        # A merged file comes before all whose rounds it has.
        ordered = sorted((f for f in found if f is not None), key=lambda f: (f.round, -f.rounds[1], f.task))
        until = -1
        counting, replaced = list[RetainedFile](), list[RetainedFile]()
        for file in ordered:
            (counting if file.round > until else replaced).append(file)
            until = until if file.last is None else max(until, file.last)
        return counting, replaced

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files."""
        return sum(map(self.size, self.files()))

    def read(self, file: RetainedFile, columns: Sequence[int]) -> Iterator[Elements]:
        """Yield the elements of a file, with the declared columns at `columns`. Raises PenstockError P0605."""
        for batch in self.batches(file):
            stamped = TS in batch.schema.names
            ts = ticks(batch.column(TS if stamped else f"c{self._timestamp}"))
            chosen = tuple(batch.column(f"c{position}") for position in columns)
            yield Elements(chosen, ts, np.full(len(ts), END, np.int64))

    def batches(self, file: RetainedFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file as they were written. Raises PenstockError P0605."""
        path = self.place / file.name
        try:
            data = storage().map(path)
            if checksum(data) != file.checksum:
                raise ValueError("its content does not match its checksum")
            batches = decode(data)
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise damaged(path, error) from error
        for batch in batches:
            if file.part is not None:
                rounds = batch.column(ROUND).to_numpy()
                batch = batch.filter(pa.array((rounds >= file.part[0]) & (rounds <= file.part[1])))
            if len(batch):
                yield batch

    def size(self, file: RetainedFile) -> int:
        """Return the bytes of a file, 0 for one that has been replaced or removed meanwhile."""
        try:
            return storage().size(self.place / file.name)
        except FileNotFoundError:
            return 0


class Pins:
    """What readers beside the rounds hold back from being removed: `pins/<reader>.json`, removed at a start.

    Of a stream that is what is retained after a tick; of a posted relation the posts, and files of updates, that are
    not among the first splits, as many as were compacted when the reader began.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._place = folder.root / "pins"

    @contextmanager
    def pinned(self, reader: str, file: str, after: int | None) -> Iterator[None]:
        """Keep the elements of the source `file` after a tick, None for all, while the context lasts."""
        path = self._path(reader, file)
        self._folder.write_sealed(path, json.dumps({"file": file, "after": after}), durable=False)
        try:
            yield
        finally:
            storage().remove(path)

    def least(self, file: str, until: int) -> int | None:
        """Return up to which tick, at most `until`, elements of the source may be removed; None for no tick."""
        for name in storage().list(self._place):
            try:
                pin = json.loads(self._folder.read_sealed(self._place / name))
            except (OSError, ValueError):
                continue  # released meanwhile
            if pin["file"] == file:
                if pin["after"] is None:
                    return None
                until = min(until, pin["after"])
        return until

    def has(self, file: str) -> bool:
        """Return whether a reader needs elements of the source."""
        return self.least(file, END) != END

    def keeps_all(self, file: str) -> bool:
        """Return whether a reader needs all elements of the source."""
        return self.least(file, 0) is None

    def forget_all(self) -> None:
        """Remove the pins of readers of an earlier process."""
        storage().remove_tree(self._place)

    def _path(self, reader: str, file: str) -> Path:
        return self._place / f"{reader}-{zlib.crc32(file.encode()):08x}.json"
