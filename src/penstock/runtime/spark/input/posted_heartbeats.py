"""Heartbeats that are posted of streams whose rows are not: of files, tables and topics.

A round reads those that have come since the one before, ahead of its rows. Its offset has the last one of each stream,
as `<number of the source>.<number of the post>`, so that a repeated round reads the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Split
from penstock.connectors.sources.posted_files import PostedFilesSource, post_of
from penstock.runtime.spark.input.look_schedule import Looks


class PostedHeartbeats:
    """The heartbeats of the streams of a plan.

    Args:
        sources: by stream, the posts that are its heartbeats.
        timer: returns seconds, by which looks are measured.
    """

    def __init__(self, sources: Mapping[str, Source], timer: Callable[[], float]) -> None:
        self._posts = {name: (source.option("source"), PostedFilesSource(source)) for name, source in sources.items()}
        self._forgotten: dict[str, int] = {}
        self._looks = Looks(PostedFilesSource.look_every, timer)

    def next(self, advanced: Mapping[str, str]) -> dict[str, str]:
        """Return the last heartbeat of each stream, where a look is due, and those before where it is not. advanced:
        what has been read."""
        found = dict(advanced)
        if not self._posts or self._looks.wait:
            return found
        with self._looks.look():
            for name, (number, posts) in self._posts.items():
                new = posts.behind(self._read(name, advanced))
                if new:
                    found[name] = f"{number}.{post_of(new[-1])}"
        return found

    def splits(self, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Split]:
        """Return the heartbeats of a stream that are read between two offsets, in order."""
        if name not in self._posts or before.get(name) == after.get(name):
            return []
        _, posts = self._posts[name]
        last = self._read(name, after)
        paths = [path for path in posts.behind(self._read(name, before)) if post_of(path) <= last]
        return [split for path in paths for split in posts.splits(path)]

    def forget(self, advanced: Mapping[str, str]) -> None:
        """Remove the heartbeats up to those that have been read long ago."""
        for name, (_, posts) in self._posts.items():
            last = self._read(name, advanced)
            if last > self._forgotten.get(name, 0):
                self._forgotten[name] = last
                posts.forget_up_to(last)

    def _read(self, name: str, advanced: Mapping[str, str]) -> int:
        """Return the number of the last post that has been read; a stream that is declared again is another one."""
        number, _, post = advanced.get(name, "").partition(".")
        return int(post) if number == self._posts[name][0] and post else 0
