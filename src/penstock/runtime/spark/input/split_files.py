"""The splits of a source in files of the checkpoint.

    splits/<source>/<place>.json    the splits from this place on, a line each

Input that is discovered goes into the last file, which is written again whole, or into another one once the last has
`SPLITS_A_FILE` of them: what a discovery costs does not grow with what was discovered before. The line before the
splits has the number of first splits of the source that are dropped; files that contain none but these are removed.

Contract: after a crash or a loss of power the list is that before a write or that after it. A removal need not be on
disk: the number in the last file holds, whatever files of dropped splits have come back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from penstock.connectors.contract import Split
from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.storage import storage
from penstock.storage.seals import damaged

#: Splits from which on a file is not written again.
SPLITS_A_FILE = 256
#: The field of the line that has the number of splits of a source that are not known any more.
_DROPPED = "dropped"
_ENDING = ".json"


@dataclass(frozen=True)
class _File:
    """A file of splits. dropped: of the source, when it was written."""

    path: Path
    place: int
    dropped: int
    splits: Sequence[Split]

    @property
    def first(self) -> int:
        return max(self.place, self.dropped)

    @property
    def end(self) -> int:
        return self.first + len(self.splits)


class SplitFiles:
    """The files of one source. source: as `epochs.source_file` names it."""

    def __init__(self, folder: Folder, source: str) -> None:
        self._folder = folder
        self.place = folder.root / "splits" / source

    @property
    def exists(self) -> bool:
        """Return whether splits of the source have been written, if only that there are none."""
        return bool(self._places())

    def read(self) -> KnownSplits:
        """Return the splits. Raises PenstockError P0605 where files are damaged or gone."""
        places = self._places()
        try:
            files = [self._file(self._path(place), place) for place in places]
        except PenstockError:
            if self._places()[: len(places)] == places:
                raise
            # The rounds go on meanwhile: a file whose splits are dropped has just been removed.
            return self.read()
        dropped = max((file.dropped for file in files), default=0)
        splits: list[Split] = []
        for file in files:
            end = dropped + len(splits)
            if file.end <= end:
                continue
            if file.first > end:
                raise damaged(file.path, FileNotFoundError(f"the splits from place {end} on are gone"))
            splits += file.splits[end - file.first :]
        return KnownSplits(dropped, splits)

    def write(self, splits: KnownSplits, new: int) -> None:
        """Write the splits, the last `new` of which are not written yet. Raises PenstockError P0601."""
        places, before = self._places(), len(splits) - new
        if not places or before - max(places[-1], splits.dropped) >= SPLITS_A_FILE:
            places.append(before)
        lines = [{_DROPPED: splits.dropped}, *map(asdict, splits[places[-1] :])]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        self._folder.write_sealed(self._path(places[-1]), text)
        for place, following in pairwise(places):
            if following <= splits.dropped:
                storage().remove(self._path(place))

    def _path(self, place: int) -> Path:
        return self.place / f"{place:012d}{_ENDING}"

    def _places(self) -> list[int]:
        """Return the first places of the files, in order."""
        return sorted(
            int(name.removesuffix(_ENDING)) for name in storage().list(self.place) if not name.startswith(".")
        )

    def _file(self, path: Path, place: int) -> _File:
        try:
            head, *lines = [json.loads(line) for line in self._folder.read_sealed(path).splitlines()]
            return _File(path, place, int(head[_DROPPED]), [Split(**line) for line in lines])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(path, error) from error
