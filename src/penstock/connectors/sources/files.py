"""FILES: the files of a folder, a glob, or one file, in path order or by time of change [semantics 3].

Contract: bounded unless `watch 'true'`. Folders are read with everything below them; names that begin with `_` or `.`
and names that end in `.tmp` or `.crc` are no data. With `watch`, a file must appear whole: write it under such a name,
or in another folder of the same disk, and rename it. Paths come out absolute, so that every worker finds them.
"""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from penstock.algebra.nodes.scans import OnError, Source
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split, Target
from penstock.connectors.deadletters import as_error
from penstock.connectors.local_paths import local_path, parts_of
from penstock.connectors.options import Options
from penstock.connectors.sources.folders import Listing
from penstock.connectors.sources.formats import FORMATS, FileFormat, format_of
from penstock.connectors.sources.formats.base import DAMAGE, TextOptions, one_line, record_limit, rejection
from penstock.errors import PenstockError, counted
from penstock.events import logger_of, tell

_CSV_ONLY = ("header", "delimiter", "quote", "null")
_TEXT_ONLY = ("max_record_bytes",)
_KNOWN = ("path", "format", "order", "watch", *_CSV_ONLY, *_TEXT_ONLY)
#: A record is put together in memory: what it may have at most is limited too.
_LOG = logger_of("connectors")


class FilesSource(SourceConnector):
    look_every = 0.02

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"FILES of {source.name}", source.options)
        options.only(_KNOWN)
        self._options = options
        self._path = str(local_path(options.needed("path")))
        self._named = options.choice("format", tuple(FORMATS), "") if options.has("format") else None
        self._by_time = options.choice("order", ("path", "modified"), "path") == "modified"
        self._watch = options.flag("watch", False)
        self._dangling: set[str] = set()
        self._text = TextOptions(
            options.flag("header", True),
            options.character("delimiter", "\t" if self._path.lower().endswith((".tsv", ".tsv.gz")) else ","),
            options.character("quote", '"') if options.text("quote", '"') else None,
            options.text("null"),
            record_limit(options),
        )

    @classmethod
    def reads(cls, source: Source, target: Target) -> bool | None:
        options = Options(f"FILES of {source.name}", source.options)
        path = local_path(options.needed("path"))
        if target.system != "files" or not _finds(path, (*target.parts, "part-00000000")):
            return None
        return options.text("watch").strip().lower() == "true"

    @property
    def bounded(self) -> bool:
        return not self._watch

    def check(self) -> None:
        paths = self._listing()
        if not paths and not (self._watch and (self._is_glob or Path(self._path).is_dir())):
            raise PenstockError("P0404", f"source {self.source.name}: no file at {self._path}", hint=self._where())
        for path in paths:
            self._readable(path)
        format_ = self._format
        for path in paths:
            if Path(path).stat().st_size == 0:
                continue
            try:
                format_.check(path)
                return
            except DAMAGE as error:
                # A damaged file is one rejected record; the next file tells whether the declaration fits.
                if self.source.on_error is OnError.FAIL:
                    reason = f"not a readable {format_.name} file: {one_line(error)}"
                    raise as_error(rejection(path, None, "", reason), self.source.name) from None

    def discover(self, known: frozenset[str]) -> list[str]:
        return self._listing(known)

    def ignored(self, known: frozenset[str]) -> str | None:
        late = [] if self._watch else self.discover(known)
        if not late:
            return None
        message = f"source {self.source.name}: {counted(len(late), 'file')} at {self._path} came after the first start"
        return f"{message} and will not be read; with the option watch 'true' files are read as they come"

    def splits(self, path: str) -> list[Split]:
        self._readable(path)
        stamp = _stamp(path)
        return [replace(split, detail=stamp) for split in self._format.splits(path)]

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        """As the contract says. Raises PenstockError P0401 for a file that is gone, or is not the one whose splits were
        told: half of one and half of another is nobody's file."""
        self._unchanged(split)
        yield from self._format.read(split, columns)
        self._unchanged(split)

    def _unchanged(self, split: Split) -> None:
        self._readable(split.path)
        if split.detail and split.detail != _stamp(split.path):
            raise PenstockError(
                "P0401", f"source {self.source.name}: {split.path} was rewritten after it had been found",
                hint="put the old file back with its time, and give new data in a file of another name; or start anew",
            )  # fmt: skip

    @cached_property
    def _format(self) -> FileFormat:
        name = self._named or format_of(self._path)
        if name is None:
            name = next(filter(None, map(format_of, self._listing())), None)
        if name is None:
            message = f"FILES of {self.source.name}: the format of {self._path} does not show from its name"
            raise PenstockError("P0208", message, hint=f"write format '{'|'.join(FORMATS)}'")
        misplaced = next((key for key in _CSV_ONLY if self._options.has(key)), None)
        if misplaced and name != "csv":
            raise PenstockError(
                "P0208", f"FILES of {self.source.name}: option {misplaced} is for csv, the format is {name}"
            )
        if name not in ("csv", "json") and self._options.has("max_record_bytes"):
            message = f"FILES of {self.source.name}: option max_record_bytes is for csv and json, the format is {name}"
            raise PenstockError("P0208", message)
        return FORMATS[name](self.source, self._text, wanted=self.wanted)

    @property
    def _is_glob(self) -> bool:
        return glob.has_magic(self._path) and not Path(self._path).exists()

    def _listing(self, known: frozenset[str] = frozenset()) -> list[str]:
        """All data files there are now that are not `known`, in arrival order. What is known is not sorted: a watched
        folder is listed often."""
        listing = Listing(partial(_denied, self.source.name), self._dangles)
        found = [path for path in listing.files(self._path, self._is_glob) if str(path) not in known]
        if self._by_time:
            return [str(p) for p in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.parts))]
        return [str(p) for p in sorted(found, key=lambda p: p.parts)]

    def _dangles(self, path: str) -> None:
        """Warn, once, of a link that leads nowhere; it is read when it leads to a file and is found again."""
        if path not in self._dangling:
            self._dangling.add(path)
            message = f"source {self.source.name}: {path} is a link to a file that does not exist, and is not read"
            tell(_LOG, logging.WARNING, "dangling_link", message, source=self.source.name, path=path)

    def _readable(self, path: str) -> None:
        if not Path(path).exists():
            raise PenstockError(
                "P0401", f"source {self.source.name}: {path} is gone", hint="put it back, or start anew"
            )
        if not os.access(path, os.R_OK):
            raise _denied(self.source.name, path)

    def _where(self) -> str:
        path = Path(self._path)
        if self._is_glob:
            return "no file matches; a glob is * and ? within a folder, ** across folders"
        if path.is_dir():
            return "the folder holds no data file; with watch 'true' files may come later"
        missing = next((p for p in reversed(path.parents) if not p.exists()), path)
        return f"{missing} does not exist; a relative path counts from {Path.cwd()}"


def _finds(path: Path, file: tuple[str, ...]) -> bool:
    """Whether `path`, a file, a folder or a glob, reads a file with these real parts and whatever suffix."""
    wild = [i for i, part in enumerate(path.parts) if glob.has_magic(part)]
    if not wild or path.exists():
        parts = parts_of(path)
        inside = file[: len(parts)] == parts and not any(part.startswith(("_", ".")) for part in file[len(parts) :])
        return inside or (parts[:-1] == file[:-1] and Path(parts[-1]).stem == file[-1])
    start = parts_of(Path(*path.parts[: wild[0]]))
    rest = file[len(start) :]
    if file[: len(start)] != start or any(part.startswith(("_", ".")) for part in rest):
        return False
    asked = path.parts[wild[0] :]
    # What a glob matches is read with everything below it.
    return any(_fits(asked, rest[:n]) for n in range(1, len(rest))) or _fits((*asked[:-1], Path(asked[-1]).stem), rest)


def _fits(asked: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a glob, part by part, matches a path."""
    if not asked or not parts:
        return not parts and all(part == "**" for part in asked)
    if asked[0] == "**":
        return _fits(asked[1:], parts) or _fits(asked, parts[1:])
    return fnmatch.fnmatchcase(parts[0], asked[0]) and _fits(asked[1:], parts[1:])


def _stamp(path: str) -> str:
    """What a file is known by: its size and when it was changed. Empty for one that is gone."""
    try:
        told = Path(path).stat()
    except OSError:
        return ""
    return f"{told.st_size} {told.st_mtime_ns}"


def _denied(source: str, path: str) -> PenstockError:
    return PenstockError(
        "P0401", f"source {source}: {path} cannot be read", hint="allow reading it, or correct the path"
    )
