"""The files below a folder or those that match a glob, through symbolic links too.

Contract: each real directory is listed once, so that a link to a folder above it ends; where several paths lead to one,
its own name takes precedence over those of links. A dangling link is not a file: it is skipped, and reported to
`dangling`. Names that begin with `_` or `.` and names that end in `.tmp` or `.crc` are not data.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

_HIDDEN = ("_", ".")
_UNFINISHED = (".tmp", ".crc")
_Identity = tuple[int, int]


@dataclass
class Listing:
    """One listing of a folder or glob. `denied`: makes the error for a folder that cannot be read; `dangling`: is
    called with each dangling link.
    """

    denied: Callable[[str], Exception]
    dangling: Callable[[str], None]
    #: The folder listed last, with its entries: for its files and for the folders in it.
    _listed: tuple[Path | None, list[os.DirEntry[str]]] = (None, [])

    def files(self, path: str, pattern: bool, known: Set[str] = frozenset()) -> set[Path]:
        """Return the data files of `path`: the file itself, those below it, or those that the pattern matches,
        recursively; without those that are `known`.
        """
        files: set[Path] = set()
        for start in self._matches(Path(path)) if pattern else [Path(path)]:
            files.update(self._below(start, known))
        return files

    def _below(self, start: Path, known: Set[str]) -> Iterator[Path]:
        if str(start) in known:
            return
        if not start.is_dir():
            # A file whose full name is written is read, whatever its name.
            if not start.name.endswith(_UNFINISHED) and self._exists(start):
                yield start
            return
        for folder in self._folders(start):
            above = _before_names(folder)
            for entry in self._entries(folder):
                # A watched folder is listed often, and most of its files are known: these cost no call of the system.
                if entry.name.endswith(_UNFINISHED) or above + entry.name in known:
                    continue
                path = folder / entry.name
                if not entry.is_dir() and self._exists(path):
                    yield path

    def _folders(self, start: Path) -> Iterator[Path]:
        """Yield `start` and the folders below it, each real one once; those behind links come last."""
        seen: set[_Identity] = set()
        pending: list[Path] = [start]
        links: list[Path] = []
        while pending or links:
            folder = pending.pop() if pending else links.pop(0)
            identity = _identity(folder)
            if identity in seen:
                continue
            seen.add(identity)
            yield folder
            subfolders = [entry for entry in self._entries(folder) if entry.is_dir()]
            pending += sorted(Path(entry.path) for entry in subfolders if not entry.is_symlink())
            links += sorted(Path(entry.path) for entry in subfolders if entry.is_symlink())

    def _matches(self, path: Path) -> list[Path]:
        """Return what a pattern matches: `*`, `?` and `[..]` within a name, `**` for any folders."""
        parts = path.parts
        fixed_parts = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        return list(dict.fromkeys(self._expanded(Path(*parts[:fixed_parts]), parts[fixed_parts:])))

    def _expanded(self, base: Path, parts: tuple[str, ...]) -> Iterator[Path]:
        if not parts:
            yield base
        elif not base.is_dir():
            return
        elif parts[0] == "**":
            for folder in self._folders(base):
                yield from self._expanded(folder, parts[1:])
        elif glob.has_magic(parts[0]):
            for entry in sorted(self._entries(base), key=lambda entry: entry.name):
                if fnmatch.fnmatchcase(entry.name, parts[0]):
                    yield from self._expanded(Path(entry.path), parts[1:])
        elif os.path.lexists(base / parts[0]) and not parts[0].startswith(_HIDDEN):
            yield from self._expanded(base / parts[0], parts[1:])

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """Return the entries of a folder, hidden names left out."""
        if folder != self._listed[0]:
            try:
                with os.scandir(folder) as entries:
                    visible = [entry for entry in entries if not entry.name.startswith(_HIDDEN)]
            except OSError as error:
                raise self.denied(error.filename or str(folder)) from error
            self._listed = folder, visible
        return self._listed[1]

    def _exists(self, path: Path) -> bool:
        if path.exists():
            return True
        if path.is_symlink():
            self.dangling(str(path))
        return False


def _before_names(folder: Path) -> str:
    """Return the part of the paths in a folder that comes before their names."""
    return str(folder / "_")[:-1]


def _identity(folder: Path) -> _Identity:
    status = folder.stat()
    return status.st_dev, status.st_ino
