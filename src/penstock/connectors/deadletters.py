"""Dead letters: records that no query reads, with their position and the reason [semantics 1 and 3].

Contract: `write` is idempotent per (source, batch, task): a task that runs again replaces what it wrote, so nothing is
counted twice. A file appears complete or not at all. One folder per source, and one per query whose sink cannot hold
some of its rows; the two share no name. One JSON object per line; `source.txt` in it holds the name, because folders
are named by `storage/names.py`. All files are private to the user.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import OnError, declared_sources
from penstock.connectors.contract import Rejected
from penstock.errors import PenstockError
from penstock.storage import storage
from penstock.storage.names import file_name

#: The code of the error that ends a run where a source is declared ON ERROR FAIL.
MALFORMED = "P0403"
_NAME = "source.txt"
_VALUE = re.compile(r" ?'(?:[^'\\]|\\.)*'")


@dataclass(frozen=True)
class DeadLetter:
    """One record. `line`: its line in the file, if the reader knows it; `ts`: the timestamp in ticks, as of an
    update that a relation could not apply.
    """

    path: str
    line: int | None
    record: str
    reason: str
    ts: int | None = None

    @property
    def known(self) -> dict[str, str | int]:
        """Return the fields that have a value: a letter is written without the others, since there may be many."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @staticmethod
    def of(rejected: Rejected) -> DeadLetter:
        return DeadLetter(rejected.path, rejected.line, rejected.record, rejected.reason)


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of one run, in `directory`, which is created when the first one is written."""

    directory: str

    def write(self, source: str, batch: int, task: int, letters: Iterable[DeadLetter], part: str = "") -> int:
        """Store the letters of one task and return their number.

        Args:
            part: distinguishes writers that number batches independently.

        Raises:
            PenstockError: P0502, they cannot be written.
        """
        lines = [json.dumps(letter.known, ensure_ascii=False) + "\n" for letter in letters]
        path = self._path(source, batch, task, part)
        try:
            if lines:
                if not storage().exists(path.parent / _NAME):
                    storage().write(path.parent / _NAME, source.encode("utf-8", "surrogatepass"))
                storage().write(path, "".join(lines).encode("utf-8", "surrogatepass"))
            else:
                storage().remove(path)
        except OSError as error:
            hint = "free space, or choose another folder"
            raise PenstockError(
                "P0502", f"dead letters cannot be written: {path}: {error.strerror}", hint=hint
            ) from error
        return len(lines)

    def read(self, source: str) -> Iterator[DeadLetter]:
        """Yield all letters of a source, by batch and task."""
        folder = self._folder(source)
        for name in storage().list(folder):
            if name.endswith(".jsonl") and name[0].isdigit():
                yield from _letters(folder / name)

    def read_part(self, source: str, batch: int, task: int, part: str = "") -> Iterator[DeadLetter]:
        """The letters that `write` kept under these numbers."""
        path = self._path(source, batch, task, part)
        if storage().exists(path):
            yield from _letters(path)

    def folders(self) -> set[str]:
        """Return the names of the folders of all sources and queries that have letters (`file_name`)."""
        return set(storage().list(Path(self.directory)))

    def sources(self) -> list[str]:
        """Return the sources that have letters."""
        root = Path(self.directory)
        names = (root / name / _NAME for name in storage().list(root))
        return sorted(storage().read(n).decode("utf-8", "surrogatepass") for n in names if storage().exists(n))

    def counts(self, source: str) -> dict[str, int]:
        """Return the number of letters per reason, the most frequent first.

        Values in a reason are left out, so that equal mistakes count together.
        """
        return dict(Counter(reason_kind(letter.reason) for letter in self.read(source)).most_common())

    def _folder(self, source: str) -> Path:
        return Path(self.directory) / file_name(source)

    def _path(self, source: str, batch: int, task: int, part: str) -> Path:
        return self._folder(source) / f"{batch:08d}-{part}{task:05d}.jsonl"


def _letters(path: Path) -> Iterator[DeadLetter]:
    for line in storage().read(path).decode("utf-8", "surrogatepass").split("\n")[:-1]:
        yield DeadLetter(**{"line": None, **json.loads(line)})


def reason_kind(reason: str) -> str:
    """Return a reason without the value it quotes: `bad number 'x' in column b` -> `bad number in column b`."""
    return _VALUE.sub("", reason)


def fails_of_values(query: Query) -> bool:
    """Whether a row that the sink of `query` cannot hold ends the run: one of its sources is declared ON ERROR FAIL."""
    return any(source.on_error is OnError.FAIL for source in declared_sources(query.root).values())


def as_error(rejected: Rejected | DeadLetter, source: str | None = None) -> PenstockError:
    """Return the error for a rejected record of a source declared ON ERROR FAIL."""
    location = rejected.path if rejected.line is None else f"{rejected.path}:{rejected.line}"
    name = f"source {source}: " if source else ""
    record_text = f"; the record: {rejected.record[:200]}" if rejected.record else ""
    hint = "correct the file, or declare the source ON ERROR DEAD LETTER or SKIP"
    return PenstockError(MALFORMED, f"{name}{location}: {rejected.reason}{record_text}", hint=hint)
