"""Record which batches wrote a part of the result of a query, so that a start detects missing parts.

`results/<block>.json` holds for 1,024 batches, by query, those with rows, as stretches `[first, last]`. It is written
after the sinks and before the batch counts as delivered: a recorded part did exist. Only sinks that write one file a
batch are recorded (`Sink.leaves_parts`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from penstock.connectors.contract import Sink
from penstock.errors import PenstockError, counted
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.storage import storage
from penstock.storage.names import file_name
from penstock.storage.seals import damaged

#: Batches in one file, which is rewritten with each of them.
_BLOCK = 1024
#: Number of missing parts named in a message.
_SHOWN = 5
#: Characters of the name of a query in the id of its result.
_LONGEST_NAME = 24

Stretches = list[list[int]]


class ResultParts:
    """The record of one checkpoint. A process caches the block to which it writes."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._block: tuple[int, dict[str, set[int]]] | None = None

    def note(self, batch: int, rows: Mapping[str, int], sinks: Mapping[str, Sink]) -> None:
        """Record the rows of `batch` by query. A batch that is repeated is recorded again."""
        number = batch // _BLOCK
        if self._block is None or self._block[0] != number:
            self._block = (number, self._read(number))
        by_query = self._block[1]
        recorded_rows = {name: count for name, count in rows.items() if sinks[name].leaves_parts}
        changed_queries = {
            name for name, count in recorded_rows.items() if (count > 0) != (batch in by_query.get(name, ()))
        }
        for name in changed_queries:
            batches = by_query.setdefault(name, set())
            batches.add(batch) if recorded_rows[name] else batches.discard(batch)
        if changed_queries:
            self._write(number, by_query)

    def of(self, query: str) -> list[int]:
        """Return the batches that wrote a part of the result of `query`, in order."""
        return sorted(batch for number in self._numbers() for batch in self._read(number).get(query, ()))

    def keep_only(self, queries: Collection[str]) -> None:
        """Remove the records of other queries, whose results start from the beginning."""
        for number in self._numbers():
            by_query = self._read(number)
            if by_query.keys() - set(queries):
                self._write(number, {name: batches for name, batches in by_query.items() if name in queries})
        self._block = None

    def forget(self, query: str, batches: Iterable[int]) -> None:
        """Remove these parts from the record."""
        removed = set(batches)
        for number in sorted({batch // _BLOCK for batch in removed}):
            by_query = self._read(number)
            self._write(number, {**by_query, query: by_query.get(query, set()) - removed})
        self._block = None

    def _numbers(self) -> list[int]:
        stems = (name.removesuffix(".json") for name in storage().list(self._folder.root / "results"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def _path(self, number: int) -> Path:
        return self._folder.root / "results" / f"{number:06d}.json"

    def _read(self, number: int) -> dict[str, set[int]]:
        path = self._path(number)
        if not storage().exists(path):
            return {}
        try:
            stretches: dict[str, Stretches] = json.loads(self._folder.read_sealed(path))
            return {name: {b for low, high in stretches[name] for b in range(low, high + 1)} for name in stretches}
        except (OSError, ValueError, TypeError) as error:
            raise damaged(path, error) from error

    def _write(self, number: int, by_query: Mapping[str, set[int]]) -> None:
        stretches = {name: _stretches(batches) for name, batches in by_query.items() if batches}
        self._folder.write_sealed(self._path(number), json.dumps(stretches))


def _stretches(batches: Iterable[int]) -> Stretches:
    stretches: Stretches = []
    for batch in sorted(batches):
        if stretches and stretches[-1][1] == batch - 1:
            stretches[-1][1] = batch
        else:
            stretches.append([batch, batch])
    return stretches


def check_results(parts: ResultParts, sinks: Mapping[str, Sink], kept_queries: Collection[str], accept: bool) -> None:
    """Check before the results of `kept_queries` continue that all recorded parts exist.

    Args:
        accept: continue without missing parts, which are removed from the record.

    Raises:
        PenstockError: P0503 for missing parts.
    """
    parts.keep_only(kept_queries)
    for name in sorted(kept_queries):
        if not sinks[name].leaves_parts:
            continue
        recorded = parts.of(name)
        missing = sinks[name].missing(recorded)
        if missing and not accept:
            missing_text = ", ".join(list(missing)[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
            raise PenstockError(
                "P0503",
                f"query {name}: of the {counted(len(recorded), 'part')} of its result in {sinks[name].place} "
                f"{len(missing)} {'is' if len(missing) == 1 else 'are'} gone: {missing_text}",
                hint="restore the missing parts; --accept-missing-results continues without them; or start a new run: "
                "another --checkpoint, and --overwrite",
            )
        parts.forget(name, missing.values())


def new_result_id(name: str) -> str:
    """Return the id of a new result, which begins with the name of its query for readers of the folder."""
    return f"{file_name(name)[:_LONGEST_NAME]}-{secrets.token_hex(6)}"
