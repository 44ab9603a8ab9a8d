"""The idempotency keys of posts whose rows have been read and removed, in few files.

    keys/<number>.json   keys of posts up to this number: one JSON object a line

A file is added for all posts that are removed together, and merged with the one before it unless that one is much
larger. So there are few files, however many keys, and each key is written again only a few times. The file with the
largest number always stays: it shows which numbers have been used.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.storage import storage

_SUFFIX = ".json"
_DIGITS = 12
#: A file is merged with the one before it if that one is at most so many times as large.
_RATIO = 2
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


def keep_keys(folder: Path, posts: Sequence[PostKey]) -> None:
    """Write the keys of some posts, which are removed afterwards. Raises OSError."""
    if not posts:
        return
    with _LOCK:
        last, kept = max(post.number for post in posts), list(posts)
        size = len(_text(kept))
        merged: list[Path] = []
        for path in reversed(_files(folder)):
            if storage().size(path) > _RATIO * size:
                break
            kept += _read(path)
            last = max(last, _number(path))
            size += storage().size(path)
            merged.append(path)
        written = _path(folder, last)
        storage().write(written, _text(kept))
        for path in merged:
            if path != written:
                storage().remove(path)


def kept_keys(folder: Path) -> list[PostKey]:
    """Return the keys in a folder."""
    with _LOCK:
        return [post for path in _files(folder) for post in _read(path)]


def last_kept(folder: Path) -> int:
    """Return the largest number of a post that was removed, 0 for none."""
    return max(map(_number, _files(folder)), default=0)


def expire_keys(folder: Path, before: int) -> None:
    """Remove the keys of posts that came before an instant, in microseconds since 1970. Raises OSError."""
    with _LOCK:
        files = _files(folder)
        for path in files:
            posts = _read(path)
            left = [post for post in posts if post.at >= before]
            if not left and path != files[-1]:
                storage().remove(path)
            elif 2 * len(left) < len(posts):
                storage().write(path, _text(left))


def _files(folder: Path) -> list[Path]:
    names = [name for name in storage().list(folder / "keys") if name.endswith(_SUFFIX) and not name.startswith(".")]
    return [folder / "keys" / name for name in sorted(names)]


def _path(folder: Path, number: int) -> Path:
    return folder / "keys" / f"{number:0{_DIGITS}}{_SUFFIX}"


def _number(path: Path) -> int:
    return int(path.stem)


def _read(path: Path) -> list[PostKey]:
    return [PostKey.read(line) for line in storage().read(path).splitlines()]


def _text(posts: Iterable[PostKey]) -> bytes:
    """Return the lines of a file: of each key the latest post, none of posts without a key."""
    by_key = {post.key: post for post in sorted(posts, key=lambda post: post.number) if post.key}
    return b"".join(post.text() + b"\n" for post in by_key.values())
