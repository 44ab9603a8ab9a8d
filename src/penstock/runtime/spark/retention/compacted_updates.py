"""The first updates of a posted relation in few files, which stand for the posts that they came with.

    compacted/<source>/updates.json     what the files hold, and up to where
    compacted/<source>/<splits>.arrow   accepted updates up to so many splits of the source, with their ticks

Updates are written as the ingest accepted them, so nothing is judged late again. Those up to some tick may be folded:
only the ones that make the content there are left.

Contract: `updates.json` makes what is written count, whole and durably, and a file that it names is never written
again. Files that it does not name, and posts that it stands for, are removed afterwards, when no reader has pinned an
earlier `updates.json`: a pin has the number of splits up to which the one that it reads goes (`Pins`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.physical.elements import Elements, decode, encoded
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.spark.checkpoint.folder import Folder, write_whole
from penstock.storage import storage
from penstock.storage.documents import Document, as_integer, as_optional_integer, as_text
from penstock.storage.seals import damaged

#: The folder of all relations, in that of the run.
COMPACTED = "compacted"
_LIST = "updates.json"


@dataclass(frozen=True)
class CompactedFile:
    """A file of updates. crc: of its bytes."""

    name: str
    rows: int
    bytes: int
    crc: int


@dataclass(frozen=True)
class CompactedUpdates:
    """The first updates of one relation.

    Args:
        place: the folder of the files.
        round: the round after the last of them, for a relation that is read by recorded rounds.
        splits: the number of splits of the source that they are from.
        progress: of the source after them.
        folded: the tick up to which they are folded; None where none is left out.
        files: in the order of arrival.
    """

    place: Path
    round: int = 0
    splits: int = 0
    progress: SourceProgress = field(default_factory=SourceProgress)
    folded: int | None = None
    files: tuple[CompactedFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def serves(self, bound: int | None) -> bool:
        """Return whether nothing is left out for a reader that needs no instant before the tick `bound`; None: all."""
        return self.folded is None or (bound is not None and self.folded <= bound)

    def read(self) -> Iterator[Elements]:
        """Yield the updates in the order of arrival, with all declared columns. Raises PenstockError P0605."""
        for file in self.files:
            yield from self.read_file(file)

    def read_file(self, file: CompactedFile) -> Iterator[Elements]:
        """Yield the updates of a file. Raises PenstockError P0605."""
        path = self.place / file.name
        try:
            data = storage().map(path)
            if zlib.crc32(data) != file.crc:
                raise ValueError("its content does not match its checksum")
            batches = decode(data)
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise damaged(path, error) from error
        yield from (Elements.from_batch(batch) for batch in batches)


class CompactedLog:
    """The compacted updates of one source.

    Args:
        file: the name of the source in the folder (`epochs.source_file`).
    """

    def __init__(self, folder: Folder, file: str) -> None:
        self._folder = folder
        self.file = file
        self.place = folder.root / COMPACTED / file
        self._list = self.place / _LIST

    def read(self) -> CompactedUpdates:
        """Return what has been compacted. Raises PenstockError P0605."""
        if not storage().exists(self._list):
            return CompactedUpdates(self.place)
        try:
            fields = json.loads(self._folder.read_sealed(self._list))
            return CompactedUpdates(
                self.place,
                as_integer(fields["round"], "round"),
                as_integer(fields["splits"], "splits"),
                SourceProgress.from_list(fields["progress"]),
                as_optional_integer(fields["folded"], "folded"),
                tuple(_file(one) for one in fields["files"]),
            )
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise damaged(self._list, error) from error

    def write(
        self, updates: CompactedUpdates, kept: Sequence[CompactedFile], parts: Sequence[Elements]
    ) -> CompactedUpdates:
        """Write updates, which count from then on; return them.

        Args:
            updates: what they are, but for the files.
            kept: the files of before that stay, from the first one on.
            parts: what follows them.

        Raises:
            PenstockError: P0601; what was there before counts then.
        """
        files = [*kept]
        if any(map(len, parts)):
            data = memoryview(encoded([part.to_batch(ends=False) for part in _alike(parts)]))
            file = CompactedFile(f"{updates.splits:012d}.arrow", sum(map(len, parts)), data.nbytes, zlib.crc32(data))
            write_whole(self.place / file.name, data)
            files.append(file)
        written = replace(updates, files=tuple(files))
        fields = {
            "round": written.round,
            "splits": written.splits,
            "progress": written.progress.as_list(),
            "folded": written.folded,
            "files": [asdict(file) for file in files],
        }
        self._folder.write_sealed(self._list, json.dumps(fields))
        return written

    def forget_others(self, kept: Collection[CompactedFile]) -> None:
        """Remove the files that are not among `kept`."""
        names = {_LIST, *(file.name for file in kept)}
        for name in storage().list(self.place):
            if name not in names:
                storage().remove(self.place / name)


def _file(fields: Document) -> CompactedFile:
    numbers = (as_integer(fields[name], name) for name in ("rows", "bytes", "crc"))
    return CompactedFile(as_text(fields["name"], "name"), *numbers)


def _alike(parts: Sequence[Elements]) -> Iterator[Elements]:
    """Yield the parts that have rows, all with signs or none."""
    signed = any(part.sign is not None for part in parts)
    for part in parts:
        if len(part):
            yield replace(part, sign=part.signs) if signed else part
