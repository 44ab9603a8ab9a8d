"""The idempotency keys of posts whose rows have been read and removed, in few files.

    keys/<number>.json    keys of posts up to this number: a line with the format, one JSON object a line, a seal

A file is added for all posts that are removed together, and merged with the one before it unless that one is much
larger, or both together are larger than `LARGEST`. So there are few files, each key is written again only a few times,
and no more than one file is in memory at once, however many keys there are. The file with the largest number always
stays: it shows which numbers have been used.
"""

from __future__ import annotations

import hashlib
import json
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from penstock.storage import storage
from penstock.storage.seals import damaged, other_format, sealed, unsealed

#: The format of the files, in their first line. Files of another one are refused.
FORMAT = 2
_ENDING = ".json"
_DIGITS = 12
#: A file is merged with the one before it if that one is at most so many times as large.
_RATIO = 2
#: A file counts as this many bytes at least, so that those of posts without keys are merged too.
_LEAST = 2**8
#: Bytes beyond which files are not merged: some 2,700 keys.
LARGEST = 2**19
#: Posts are removed by one thread of a process and keys by another.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class PostKey:
    """What remains of a post. key: its idempotency key, empty for none; digest: of what was posted; at: when, in
    microseconds since 1970."""

    number: int
    key: str
    digest: str
    at: int

    def text(self) -> bytes:
        return json.dumps({"number": self.number, "key": self.key, "digest": self.digest, "at": self.at}).encode()

    @staticmethod
    def read(text: bytes) -> PostKey:
        fields = json.loads(text)
        return PostKey(int(fields["number"]), str(fields["key"]), str(fields["digest"]), int(fields["at"]))


#: Keys that are kept one by one, before they are put together.
_APART = 256
_HASHES = np.dtype([("key", "V16"), ("digest", "V8"), ("at", np.int64)])


@dataclass
class KnownKeys:
    """The keys of posts in memory, 32 bytes each: hashes of the key and of what was posted, and when.

    They lie in sorted arrays, of which each is less than half as long as the one before it.
    """

    _arrays: list[np.ndarray] = field(default_factory=list)
    _apart: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)

    @staticmethod
    def of(posts: Iterable[PostKey]) -> KnownKeys:
        """Return the keys of some posts, of each key the last one."""
        made = KnownKeys()
        for post in posts:
            if post.key:
                made.add(post.key, post.digest, post.at)
        return made

    def __len__(self) -> int:
        return len(self._apart) + sum(map(len, self._arrays))

    def add(self, key: str, digest: str, at: int) -> None:
        """Add a key, or replace it."""
        hashed = _hash(key, 16)
        self._remove(hashed)
        self._apart[hashed] = _hash(digest, 8), at
        if len(self._apart) >= _APART:
            self._merge()

    def at(self, key: str) -> int | None:
        """Return when there was a post with a key, None for never."""
        found = self._find(_hash(key, 16))
        return None if found is None else found[1]

    def has(self, key: str, digest: str) -> bool:
        """Return whether this was posted with a key."""
        found = self._find(_hash(key, 16))
        return found is not None and found[0] == _hash(digest, 8)

    def remove(self, key: str) -> None:
        """Forget a key, if it is there."""
        self._remove(_hash(key, 16))

    def latest(self) -> int:
        """Return when the latest of the posts was, 0 without any."""
        apart = max((at for _, at in self._apart.values()), default=0)
        return max([apart, *(int(one["at"].max()) for one in self._arrays)])

    def expire(self, first: int, last: int) -> None:
        """Forget the keys of posts that came before the instant `first`, or after `last`."""
        self._apart = {key: post for key, post in self._apart.items() if first <= post[1] <= last}
        kept = (one[(one["at"] >= first) & (one["at"] <= last)] for one in self._arrays)
        self._arrays = [one for one in kept if len(one)]

    def _find(self, hashed: bytes) -> tuple[bytes, int] | None:
        found = self._apart.get(hashed)
        if found is None:
            for array in self._arrays:
                if (place := _place_in(array, hashed)) is not None:
                    return array["digest"][place].tobytes(), int(array["at"][place])
        return found

    def _remove(self, hashed: bytes) -> None:
        if self._apart.pop(hashed, None) is None:
            for number, array in enumerate(self._arrays):
                if (place := _place_in(array, hashed)) is not None:
                    self._arrays[number] = np.delete(array, place)

    def _merge(self) -> None:
        """Put what lies apart into an array, and that together with those that are not much longer."""
        rows = [(key, digest, at) for key, (digest, at) in self._apart.items()]
        merged = np.array(rows, _HASHES)
        while self._arrays and len(self._arrays[-1]) <= 2 * len(merged):
            merged = np.concatenate([self._arrays.pop(), merged])
        # Bytes of a void compare as nothing else does; as texts zeros at the end would be left out.
        order = np.lexsort(merged["key"].copy().view(">u8").reshape(-1, 2).T[::-1])
        self._arrays.append(merged[order])
        self._apart = {}


def _hash(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def _place_in(array: np.ndarray, hashed: bytes) -> int | None:
    """Return where a hash is in a sorted array; None where it is not."""
    keys = array["key"]
    place = bisect_left(range(len(keys)), hashed, key=lambda one: keys[one].tobytes())
    return place if place < len(keys) and keys[place].tobytes() == hashed else None


def keep_keys(folder: Path, posts: Sequence[PostKey]) -> None:
    """Write the keys of some posts, which are removed afterwards. Raises OSError, and PenstockError P0605."""
    if not posts:
        return
    with _LOCK:
        last = max(post.number for post in posts)
        lines = [post.text().decode() for post in sorted(posts, key=lambda post: post.number) if post.key]
        size = max(sum(map(len, lines)), _LEAST)
        merged: list[Path] = []
        for path in reversed(_files(folder)):
            length = storage().size(path)
            if length > _RATIO * size or length + size > LARGEST:
                break
            lines = _lines(path) + lines
            last = max(last, _number(path))
            size += length
            merged.append(path)
        written = _path(folder, last)
        # A crash may have left a file that had been merged.
        _write(written, dict.fromkeys(lines))
        for path in merged:
            if path != written:
                storage().remove(path)


def kept_keys(folder: Path) -> Iterator[PostKey]:
    """Yield the keys in a folder, later ones of the same key behind earlier ones. Raises PenstockError P0605."""
    with _LOCK:
        for path in _files(folder):
            yield from _posts_in(path, _lines(path))


def last_kept(folder: Path) -> int:
    """Return the largest number of a post that was removed, 0 for none."""
    return max(map(_number_in, _names(folder)), default=0)


def expire_keys(folder: Path, first: int, last: int) -> None:
    """Remove the keys of posts that came before the instant `first`, or after `last`, in microseconds since 1970.
    Raises OSError."""
    with _LOCK:
        files = _files(folder)
        for path in files:
            lines = _lines(path)
            posts = zip(lines, _posts_in(path, lines), strict=True)
            left = [line for line, post in posts if first <= post.at <= last]
            if not left and path != files[-1]:
                storage().remove(path)
            elif 2 * len(left) < len(lines):
                _write(path, left)


def _names(folder: Path) -> list[str]:
    return [name for name in storage().list(folder / "keys") if name.endswith(_ENDING) and not name.startswith(".")]


def _files(folder: Path) -> list[Path]:
    """Return the files in the order of their numbers."""
    return [folder / "keys" / name for name in sorted(_names(folder), key=_number_in)]


def _path(folder: Path, number: int) -> Path:
    return folder / "keys" / f"{number:0{_DIGITS}}{_ENDING}"


def _number(path: Path) -> int:
    return _number_in(path.name)


def _number_in(name: str) -> int:
    return int(name.removesuffix(_ENDING))


def _place(path: Path) -> str:
    """Return the place of a file as in its seal: the source, and the name."""
    return "/".join(path.parts[-3:])


def _write(path: Path, lines: Iterable[str]) -> None:
    storage().write(path, sealed("\n".join([json.dumps({"format": FORMAT}), *lines]), _place(path)))


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, one for each post. Raises PenstockError P0605."""
    try:
        head, *lines = unsealed(storage().read(path), _place(path)).splitlines()
        number = json.loads(head)["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    if number != FORMAT:
        raise other_format(path, number, FORMAT)
    return lines


def _posts_in(path: Path, lines: Iterable[str]) -> Iterator[PostKey]:
    """Yield the posts of the lines of a file. Raises PenstockError P0605."""
    for line in lines:
        try:
            yield PostKey.read(line.encode())
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(path, error) from error
