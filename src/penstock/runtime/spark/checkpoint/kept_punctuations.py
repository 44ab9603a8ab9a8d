"""The punctuations that streams keep, in the checkpoint.

    punctuations/<source>/<round>-<number>.json    so many punctuations of a stream, known when a round was planned

The offset of a round names the files, and has itself those that have come since the last of them. A file never changes:
new ones go into another one, which takes in those before it that are not much larger, so that what a round writes does
not grow with what is kept. Contract: a round that is planned again writes the same files. One that no
offset names which may be used again is removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from penstock.algebra.properties.punctuations import Punctuation
from penstock.physical.synopses.promises.punctuations import Punctuations
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.storage import storage
from penstock.storage.documents import Document, Json, nested, texts
from penstock.storage.seals import damaged

#: Punctuations that stand in the offset itself.
_IN_OFFSET = 64


@dataclass(frozen=True)
class KeptPlace:
    """Where the punctuations of a stream are: names of files, and texts of those that are in none."""

    files: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return sum(map(_count, self.files)) + len(self.fresh)

    def after(self, news: Iterable[str]) -> KeptPlace:
        """Return the place with more of them."""
        return replace(self, fresh=(*self.fresh, *news))

    def as_json(self) -> dict[str, Json]:
        return {"files": list(self.files), "fresh": list(self.fresh)}

    @staticmethod
    def from_json(fields: Document) -> KeptPlace:
        """Return the place that `as_json` wrote. Raises KeyError, TypeError for others."""
        return KeptPlace(tuple(texts(fields, "files")), tuple(texts(fields, "fresh")))


def places_of(fields: Document) -> dict[str, KeptPlace]:
    """Return by source the places of a document."""
    return {source: KeptPlace.from_json(nested(fields, source)) for source in fields}


def kept_punctuations(folder: Folder, source: str, place: KeptPlace, most: int) -> Punctuations:
    """Return the punctuations of a stream. source: as `epochs.source_file` names it; most: as many are kept at most.
    Raises PenstockError P0605."""
    levels = (level for name in place.files for level in _read(folder.root, source, name).levels)
    return Punctuations(most, tuple(levels)).added(map(Punctuation.from_text, place.fresh))


def with_files(folder: Folder, source: str, place: KeptPlace, round_: int) -> KeptPlace:
    """Return the place with those of the offset in a file, where they are many. round_: that is planned. Raises
    PenstockError P0601, P0605."""
    if len(place.fresh) <= _IN_OFFSET:
        return place
    files, kept = list(place.files), Punctuations().added(map(Punctuation.from_text, place.fresh))
    while files and _count(files[-1]) <= 2 * len(kept):
        kept = Punctuations().added([*_read(folder.root, source, files.pop()), *kept])
    name = f"{round_:09d}-{len(kept)}.json"
    text = json.dumps([one.as_text() for one in kept])
    folder.write_sealed(_path(folder, source, name), text)
    return KeptPlace((*files, name))


def forget_files(folder: Folder, source: str, used: Collection[str], before: int) -> None:
    """Remove the files of a stream that are not among `used` and were written for a round before `before`."""
    place = folder.root / "punctuations" / source
    for name in storage().list(place):
        if name not in used and name.split("-")[0].isdigit() and int(name.split("-")[0]) < before:
            storage().remove(place / name)


@lru_cache(maxsize=256)
def _read(root: Path, source: str, name: str) -> Punctuations:
    """Return the punctuations of a file, as one level."""
    folder = Folder(root)
    path = _path(folder, source, name)
    try:
        written = json.loads(folder.read_sealed(path))
        found = Punctuations().added(map(Punctuation.from_text, written))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise damaged(path, error) from error
    return found


def _path(folder: Folder, source: str, name: str) -> Path:
    return folder.root / "punctuations" / source / name


def _count(name: str) -> int:
    return int(name.partition("-")[2].partition(".")[0])


def places_after(before: Mapping[str, KeptPlace], news: Mapping[str, Collection[str]]) -> dict[str, KeptPlace]:
    """Return by source the places with what has come in a round."""
    found = dict(before)
    for source, added in news.items():
        if added:
            found[source] = found.get(source, KeptPlace()).after(added)
    return found
