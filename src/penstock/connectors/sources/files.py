"""FILES: the files of a folder, a glob, or one file, in path order or by modification time [semantics 3].

Contract: bounded unless `watch 'true'`. Folders are read recursively; names that begin with `_` or `.` and names that
end in `.tmp` or `.crc` are not data. With `watch`, a file must appear complete: write it under such a name, or in
another folder of the same disk, and rename it. Paths are returned absolute, so that every worker finds them.
"""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from penstock.algebra.nodes.scans import OnError, Source
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split, Target
from penstock.connectors.deadletters import as_error
from penstock.connectors.formats import FORMATS, FileFormat, format_of
from penstock.connectors.formats.base import (
    DAMAGE,
    TextOptions,
    one_line,
    record_bytes_option,
    rejection,
    timestamp_format_option,
)
from penstock.connectors.local_paths import local_path, parts_of
from penstock.connectors.options import (
    ANY_TEXT,
    BOOLEAN,
    TEXT,
    Option,
    Options,
    OptionTable,
    characters,
    one_of,
)
from penstock.errors import PenstockError, counted
from penstock.events import log_event, logger_of

# --- The files below a folder or those that match a glob, through symbolic links too.
#
# Contract: each real directory is listed once, so that a link to a folder above it ends; where several paths lead to
# one, its own name takes precedence over those of links. A dangling link is not a file: it is skipped, and reported to
# `dangling`. Names that begin with `_` or `.` and names that end in `.tmp` or `.crc` are not data.

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


_CSV = ("csv",)
_PATH = Option("path", TEXT, "a file, a folder with all below it, or a glob", required=True)
_FORMAT = Option("format", one_of(*FORMATS), "the format of the files; without it the suffix of the path decides")
_ORDER = Option("order", one_of("path", "modified"), "the order in which files are read", "path")
_WATCH = Option("watch", BOOLEAN, "whether files are read as they come", "false")
_HEADER = Option("header", BOOLEAN, "whether the first record holds the names of the columns", "true", formats=_CSV)
_DELIMITER = Option("delimiter", characters(), "what divides cells; `,`, and the tabulator for `.tsv`", formats=_CSV)
_QUOTE = Option("quote", characters(""), "what stands around cells; empty for nothing", '"', formats=_CSV)
_ESCAPE = Option(
    "escape",
    characters(""),
    r"what stands before a quote in a quoted cell, as `\` of Spark's; empty where quotes are doubled",
    "",
    formats=_CSV,
)
_NULL = Option("null", ANY_TEXT, "a text that is NULL, beside the empty cell", "", formats=_CSV)
_TEXTS = ("csv", "json")
_TIMESTAMP = timestamp_format_option(_TEXTS)
_MISSING = Option(
    "missing_columns",
    one_of("null", "refuse"),
    "what a file without a declared column is: its values are NULL, or it is refused; without it `null` for json, whose"
    " first objects say what it has, else `refuse`",
)
_RECORD_BYTES = record_bytes_option(_TEXTS)
_LOG = logger_of("connectors")


class FilesSource(SourceConnector):
    OPTIONS = OptionTable(
        (
            _PATH,
            _FORMAT,
            _ORDER,
            _WATCH,
            _HEADER,
            _DELIMITER,
            _QUOTE,
            _ESCAPE,
            _NULL,
            _TIMESTAMP,
            _MISSING,
            _RECORD_BYTES,
        )
    )
    in_local_files = True
    look_every = 0.02

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"FILES of {source.name}", source.options)
        options.only(self.OPTIONS)
        self._options = options
        self._path = str(local_path(options.needed(_PATH)))
        self._format_option = options.optional(_FORMAT)
        self._by_time = options.value(_ORDER) == "modified"
        self._watch = options.value(_WATCH)
        self._dangling_links: set[str] = set()
        self._text = TextOptions(
            options.value(_HEADER),
            options.optional(_DELIMITER) or ("\t" if self._path.lower().endswith((".tsv", ".tsv.gz")) else ","),
            options.value(_QUOTE) or None,
            options.value(_NULL),
            options.value(_RECORD_BYTES),
            options.optional(_TIMESTAMP) or "",
            options.optional(_MISSING) or "",
            options.value(_ESCAPE),
        )

    @classmethod
    def reads(cls, source: Source, target: Target) -> bool | None:
        options = Options(f"FILES of {source.name}", source.options)
        path = local_path(options.needed(_PATH))
        if target.system != "files" or not _reads_file(path, (*target.parts, "part-00000000")):
            return None
        return options.value(_WATCH)

    @property
    def bounded(self) -> bool:
        return not self._watch

    def check(self) -> None:
        paths = self._listing()
        if not paths and not (self._watch and (self._is_glob or Path(self._path).is_dir())):
            raise PenstockError(
                "P0404", f"source {self.source.name}: no file at {self._path}", hint=self._missing_hint()
            )
        for path in paths:
            self._check_readable(path)
        format_ = self._format
        for path in paths:
            if Path(path).stat().st_size == 0:
                continue
            try:
                format_.check(path)
                return
            except DAMAGE as error:
                # A damaged file is one rejected record; the next file shows whether the declaration fits.
                if self.source.on_error is OnError.FAIL:
                    reason = f"not a readable {format_.name} file: {one_line(error)}"
                    raise as_error(rejection(path, None, "", reason), self.source.name) from None

    def discover(self, known: Set[str]) -> list[str]:
        return self._listing(known)

    def ignored(self, known: Set[str]) -> str | None:
        later_files = [] if self._watch else self.discover(known)
        if not later_files:
            return None
        message = (
            f"source {self.source.name}: {counted(len(later_files), 'file')} at {self._path} "
            f"{'was' if len(later_files) == 1 else 'were'} added after the first start"
        )
        return f"{message} and will not be read; with the option watch 'true' later files are read too"

    def splits(self, path: str) -> list[Split]:
        self._check_readable(path)
        stamp = _stamp(path)
        return [replace(split, detail=stamp) for split in self._format.splits(path)]

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        """Yield the records of a split, as the contract requires.

        Raises:
            PenstockError: P0401, the file is gone, or was replaced after its splits were computed: parts of two
                files must not be mixed.
        """
        self._check_unchanged(split)
        yield from self._format.read(split, columns)
        self._check_unchanged(split)

    def _check_unchanged(self, split: Split) -> None:
        self._check_readable(split.path)
        if split.detail and split.detail != _stamp(split.path):
            raise PenstockError(
                "P0401",
                f"source {self.source.name}: {split.path} was rewritten after it was first listed",
                hint="put the old file back with its time, and write new data to another file; or start a new run",
            )

    @cached_property
    def _format(self) -> FileFormat:
        name = self._format_option or format_of(self._path)
        if name is None:
            name = next(filter(None, map(format_of, self._listing())), None)
        if name is None:
            message = f"FILES of {self.source.name}: the format of {self._path} cannot be derived from its name"
            raise PenstockError("P0208", message, hint=f"write format '{'|'.join(FORMATS)}'")
        self._options.check_format(self.OPTIONS, name)
        return FORMATS[name](self.source, self._text, predicate=self.predicate)

    @property
    def _is_glob(self) -> bool:
        return glob.has_magic(self._path) and not Path(self._path).exists()

    def _listing(self, known: Set[str] = frozenset()) -> list[str]:
        """Return all current data files that are not `known`, in arrival order. Known files are not sorted: a watched
        folder is listed often.
        """
        listing = Listing(partial(_denied, self.source.name), self._report_dangling)
        paths = listing.files(self._path, self._is_glob, known)
        if self._by_time:
            return [str(p) for p in sorted(paths, key=lambda p: (p.stat().st_mtime_ns, p.parts))]
        return [str(p) for p in sorted(paths, key=lambda p: p.parts)]

    def _report_dangling(self, path: str) -> None:
        """Warn, once, of a dangling link; it is read when it leads to a file and is listed again."""
        if path not in self._dangling_links:
            self._dangling_links.add(path)
            message = f"source {self.source.name}: {path} is a link to a file that does not exist, and is not read"
            log_event(_LOG, logging.WARNING, "dangling_link", message, source=self.source.name, path=path)

    def _check_readable(self, path: str) -> None:
        if not Path(path).exists():
            raise PenstockError(
                "P0401", f"source {self.source.name}: {path} is gone", hint="put it back, or start a new run"
            )
        if not os.access(path, os.R_OK):
            raise _denied(self.source.name, path)

    def _missing_hint(self) -> str:
        path = Path(self._path)
        address = self._options.needed(_PATH)
        if "://" in address and not address.startswith("file:"):
            return f"FILES reads files of this machine: copy {address} to it, or mount it"
        if self._is_glob:
            return "no file matches; a glob is * and ? within a folder, ** across folders"
        if path.is_dir():
            return "the folder holds no data file; with watch 'true' files may be added later"
        missing_folder = next((p for p in reversed(path.parents) if not p.exists()), path)
        return f"{missing_folder} does not exist; a relative path starts at {Path.cwd()}"


def _reads_file(path: Path, file: tuple[str, ...]) -> bool:
    """Return whether `path`, a file, a folder or a glob, reads a file with these real parts and any suffix."""
    glob_parts = [i for i, part in enumerate(path.parts) if glob.has_magic(part)]
    if not glob_parts or path.exists():
        parts = parts_of(path)
        is_inside = file[: len(parts)] == parts and not any(part.startswith(("_", ".")) for part in file[len(parts) :])
        return is_inside or (parts[:-1] == file[:-1] and Path(parts[-1]).stem == file[-1])
    start = parts_of(Path(*path.parts[: glob_parts[0]]))
    remaining = file[len(start) :]
    if file[: len(start)] != start or any(part.startswith(("_", ".")) for part in remaining):
        return False
    pattern = path.parts[glob_parts[0] :]
    # What a glob matches is read recursively.
    return any(_matches(pattern, remaining[:n]) for n in range(1, len(remaining))) or _matches(
        (*pattern[:-1], Path(pattern[-1]).stem), remaining
    )


def _matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Return whether a glob, part by part, matches a path."""
    if not pattern or not parts:
        return not parts and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _matches(pattern[1:], parts) or _matches(pattern, parts[1:])
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])


def _stamp(path: str) -> str:
    """Return the identity of a file, its size and modification time; empty for one that is gone."""
    try:
        status = Path(path).stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _denied(source: str, path: str) -> PenstockError:
    return PenstockError(
        "P0401", f"source {source}: {path} cannot be read", hint="allow reading it, or correct the path"
    )
