"""FILES: the files of a folder, a glob, or one file, in path order or by time of change (LANGUAGE 3).

Contract: bounded unless `watch 'true'`. Folders are read with everything below them; names that begin with `_` or `.`
and names that end in `.tmp` or `.crc` are no data. With `watch`, a file must appear whole: write it under such a name,
or in another folder of the same disk, and rename it. Paths come out absolute, so that every worker finds them.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from penstock.algebra.scans import OnError, Source
from penstock.connectors.contract import Parsed, SourceConnector, Split
from penstock.connectors.deadletters import as_error
from penstock.connectors.options import Options
from penstock.connectors.sources.formats import FORMATS, FileFormat, format_of
from penstock.connectors.sources.formats.base import DAMAGE, TextOptions, one_line, rejection
from penstock.errors import PenstockError

_CSV_ONLY = ("header", "delimiter", "quote", "null")
_KNOWN = ("path", "format", "order", "watch", *_CSV_ONLY)
_UNFINISHED = (".tmp", ".crc")


class FilesSource(SourceConnector):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"FILES of {source.name}", source.options)
        options.only(_KNOWN)
        self._options = options
        self._path = str(Path(options.needed("path").removeprefix("file://")).expanduser().absolute())
        self._named = options.choice("format", tuple(FORMATS), "") if options.has("format") else None
        self._by_time = options.choice("order", ("path", "modified"), "path") == "modified"
        self._watch = options.flag("watch", False)
        self._text = TextOptions(
            options.flag("header", True),
            options.character("delimiter", "\t" if self._path.lower().endswith((".tsv", ".tsv.gz")) else ","),
            options.character("quote", '"') if options.text("quote", '"') else None,
            options.text("null"),
        )

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
        return [path for path in self._listing() if path not in known]

    def splits(self, path: str) -> list[Split]:
        self._readable(path)
        stamp = _stamp(path)
        return [replace(split, detail=stamp) for split in self._format.splits(path)]

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[Parsed]:
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
        return FORMATS[name](self.source, self._text, wanted=self.wanted)

    @property
    def _is_glob(self) -> bool:
        return glob.has_magic(self._path) and not Path(self._path).exists()

    def _listing(self) -> list[str]:
        """All data files there are now, in arrival order."""
        found: set[Path] = set()
        for start in self._matches() if self._is_glob else [Path(self._path)]:
            found.update(_files_of(start, self.source.name))
        if self._by_time:
            return [str(p) for p in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.parts))]
        return [str(p) for p in sorted(found, key=lambda p: p.parts)]

    def _matches(self) -> list[Path]:
        """What the glob matches, hidden names left out."""
        fixed = next(i for i, part in enumerate(Path(self._path).parts) if glob.has_magic(part))
        found = map(Path, glob.glob(self._path, recursive=True))  # noqa: PTH207 - it takes absolute patterns
        return [path for path in found if not any(part.startswith(("_", ".")) for part in path.parts[fixed:])]

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


def _stamp(path: str) -> str:
    """What a file is known by: its size and when it was changed. Empty for one that is gone."""
    try:
        told = Path(path).stat()
    except OSError:
        return ""
    return f"{told.st_size} {told.st_mtime_ns}"


def _files_of(start: Path, source: str) -> Iterator[Path]:
    """`start` itself when it is a file, else the data files below it. Raises PenstockError P0401."""
    if not start.is_dir():
        # A file that is named in full is meant, whatever its name.
        if start.exists() and not start.name.endswith(_UNFINISHED):
            yield start
        return

    def refuse(error: OSError) -> None:
        raise _denied(source, error.filename or str(start)) from error

    for folder, folders, names in os.walk(start, onerror=refuse, followlinks=True):
        folders[:] = [f for f in folders if not f.startswith(("_", "."))]
        for name in names:
            if not name.startswith(("_", ".")) and not name.endswith(_UNFINISHED):
                yield Path(folder, name)


def _denied(source: str, path: str) -> PenstockError:
    return PenstockError(
        "P0401", f"source {source}: {path} cannot be read", hint="allow reading it, or correct the path"
    )
