"""The state of a shard as memory-mapped Arrow files under the checkpoint.

Per batch and shard one data file holds the chunks that are new, one after the other, and one manifest names every live
chunk with its file and place. Batch b starts from the newest manifest before b and writes its own under a temporary
name, renamed when whole: a batch that is run again starts from the same state, whatever an earlier attempt left. What
nothing names any more is removed one batch later, when Spark has committed the one that let it go.

Reading a chunk maps it: a worker reads what it touches and workers share the pages (DESIGN 3, the hot copy). Files of
which little is alive are rewritten, and so are the smallest when there are many. Compared with Spark's own store this
spares every batch the start of stateful tasks, a socket per state variable and a commit
(docs/decisions/spark-runtime.md).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.connectors.seals import damaged, sealed, unsealed
from penstock.errors import PenstockError
from penstock.physical.elements import decode, encode
from penstock.runtime.spark.epochs import Epoch, delivered
from penstock.runtime.spark.folder import Folder, Job, unwritable

#: The layout of manifests and data files. A state of another number is refused, never guessed at. 1 named chunks by
#: the number of their step, 2 named them by its key (`physical/identity.py`) and sealed manifests, 3 has the tick up to
#: which a row window has told its content, 4 has the ends of tuples with partners as every count of tuples has them, 5
#: keeps an aggregate that is looked up, or computed at each boundary from its rows alone, as these rows.
FORMAT = 5
#: Behind every batch.
LAST = 10**9 - 1
#: Rewrite a file when less than this part of it is alive.
_LEAST_ALIVE = 0.25
#: Rewrite the smaller half of the files when there are more than this.
_MOST_FILES = 48


class StateFiles:
    """The state of one shard of one stage, as batch `batch` finds and leaves it."""

    def __init__(self, root: str, stage: int, shard: int, batch: int) -> None:
        self._folder = Path(root) / "state" / str(stage) / str(shard)
        self._batch = batch
        self._maps: dict[str, pa.Buffer] = {}
        self._previous = self._newest_before(batch)
        self._files: dict[str, dict[str, list[int]]] = {}
        if self._previous is not None:
            self._files = {f: dict(chunks) for f, chunks in self._previous["files"].items()}

    @property
    def previous(self) -> int | None:
        """The batch that left the state."""
        return max((n for n in _numbers(self._folder) if n < self._batch), default=None)

    def manifest(self) -> dict[str, Any] | None:
        """What the stage noted in the batch before; None at the beginning. Raises PenstockError P0605."""
        return None if self._previous is None else self._previous["stage"]

    def chunk(self, name: str) -> pa.RecordBatch:
        """A live chunk by name. Raises PenstockError P0605 when its file is damaged."""
        file = next((f for f, chunks in self._files.items() if name in chunks), None)
        if file is None:
            raise damaged(self._folder, ValueError(f"no file holds {name}"))
        try:
            (batch,) = decode(self._bytes(file, name))
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            raise damaged(self._folder / file, error) from error
        return batch

    def save(self, manifest: Mapping[str, Any], new: Mapping[str, pa.RecordBatch], gone: set[str]) -> None:
        """Leave `manifest` and the live chunks: those before without `gone`, and `new`. Raises PenstockError P0601
        where the disk takes no more; the state before stays."""
        try:
            self._save(manifest, new, gone)
        except OSError as error:
            raise unwritable(self._folder, error) from error

    def _save(self, manifest: Mapping[str, Any], new: Mapping[str, pa.RecordBatch], gone: set[str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for chunks in self._files.values():
            for name in gone & chunks.keys():
                del chunks[name]
        blobs: dict[str, bytes | pa.Buffer] = {name: encode([batch]) for name, batch in new.items()}
        for file in self._to_rewrite():
            try:
                blobs |= {name: self._bytes(file, name) for name in self._files[file]}
            except (OSError, ValueError) as error:
                raise damaged(self._folder / file, error) from error
            self._files[file] = {}
        if blobs:
            self._write_data(f"{self._batch:09d}-{manifest['token'][:12]}.arrow", blobs)
        before = set(self._previous["files"]) if self._previous else set()
        self._files = {f: chunks for f, chunks in self._files.items() if chunks}
        found = {"format": FORMAT, "stage": manifest, "files": self._files, "dead": sorted(before - self._files.keys())}
        self._write(self._manifest_path(self._batch), sealed(json.dumps(found)))
        self._remove_old()

    @property
    def files(self) -> dict[str, dict[str, list[int]]]:
        """By data file its live chunks: where each begins, how long it is, its checksum."""
        return self._files

    # -- reading -----------------------------------------------------------------------------------------------

    def _newest_before(self, batch: int) -> dict[str, Any] | None:
        numbers = [n for n in _numbers(self._folder) if n < batch]
        if not numbers:
            return None
        return read_manifest(self._manifest_path(max(numbers)))

    def _bytes(self, file: str, name: str) -> pa.Buffer:
        if file not in self._maps:
            with pa.memory_map(str(self._folder / file)) as mapped:
                self._maps[file] = mapped.read_buffer()
        start, length, checksum = self._files[file][name]
        whole = start + length <= self._maps[file].size
        found = self._maps[file].slice(start, length) if whole else pa.py_buffer(b"")
        if not whole or zlib.crc32(found) != checksum:
            raise ValueError(f"the {length} bytes from {start} on are not those that were written")
        return found

    # -- writing -----------------------------------------------------------------------------------------------

    def _to_rewrite(self) -> list[str]:
        """Files of which little is alive; the smaller half when there are many."""
        alive = {
            file: sum(length for _, length, _ in chunks.values()) for file, chunks in self._files.items() if chunks
        }
        missing = [file for file in alive if not (self._folder / file).exists()]
        if missing:
            raise damaged(self._folder / missing[0], FileNotFoundError("the file is gone"))
        sizes = {file: (self._folder / file).stat().st_size for file in alive}
        chosen = {file for file in alive if alive[file] < _LEAST_ALIVE * sizes[file]}
        if len(alive) > _MOST_FILES:
            chosen |= set(sorted(alive, key=lambda file: (alive[file], file))[: len(alive) // 2])
        return sorted(chosen)

    def _write_data(self, file: str, blobs: Mapping[str, bytes | pa.Buffer]) -> None:
        place, chunks = 0, {}
        with (self._folder / file).open("wb") as output:
            for name, blob in blobs.items():
                # Arrow wants buffers at multiples of 8 bytes; 64 keeps them off shared cache lines.
                padding = -place % 64
                output.write(b"\0" * padding)
                length = output.write(blob)
                chunks[name] = [place + padding, length, zlib.crc32(blob)]
                place += padding + length
        self._files[file] = chunks

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(data)
        temporary.replace(path)

    def _remove_old(self) -> None:
        """The batch before is committed, or this one would not run: what only older ones named can go."""
        if self._previous is None:
            return
        for file in self._previous["dead"]:
            (self._folder / file).unlink(missing_ok=True)
        numbers = sorted(n for n in _numbers(self._folder) if n < self._batch)
        for number in numbers[:-1]:
            self._manifest_path(number).unlink(missing_ok=True)

    def _manifest_path(self, batch: int) -> Path:
        return self._folder / f"{batch:09d}.json"


def open_state(root: str, job: Job, stage: int, shard: int, batch: int) -> tuple[StateFiles, StateFiles | None]:
    """The state of a shard as `batch` finds it, and what queries that join with this batch have made of their past."""
    state = StateFiles(root, stage, shard, batch)
    # Every shard leaves its state in every batch; only Spark knows how often it asks for DataFrames.
    if batch > job.base and state.previous != batch - 1 and not job.intake.spark_sources:
        raise _missing(Path(root) / "state" / str(stage) / str(shard), batch - 1)
    return state, StateFiles(past_of(root, job.epoch), stage, shard, LAST) if batch == job.base else None


def check_state(folder: Folder, epoch: Epoch | None) -> None:
    """Find out before the start whether the state that a run goes on with is there. Raises PenstockError P0605."""
    base = delivered(folder)["batch"] + 1
    if epoch is None or epoch.state_store != "files" or epoch.frames or base <= epoch.base:
        return
    for stage in range(1, epoch.stages + 1):
        for shard in range(epoch.shards):
            state = StateFiles(str(folder.root), stage, shard, base)
            if state.previous != base - 1:
                raise _missing(folder.root / "state" / str(stage) / str(shard), base - 1)


def _missing(folder: Path, batch: int) -> PenstockError:
    return damaged(folder, FileNotFoundError(f"the state that batch {batch} left is missing"))


def past_of(root: str, epoch: int) -> str:
    """Where the queries that are new in an epoch keep their state until they join the others."""
    return str(Path(root) / "backfill" / str(epoch))


def sweep(root: Path) -> None:
    """Remove what attempts that failed have left. Only while no task runs."""
    for folder in root.glob("state/*/*"):
        named: set[str] = set()
        for number in _numbers(folder):
            found = read_manifest(folder / f"{number:09d}.json")
            named |= {*found.get("files", ()), *found.get("dead", ())}
        for path in folder.iterdir():
            if path.suffix == ".tmp" or (path.suffix == ".arrow" and path.name not in named):
                path.unlink()


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest. Raises PenstockError P0605 for one that is damaged or of another format."""
    try:
        data = path.read_bytes()
        # Format 1 had no seal; whatever is no such manifest must have one.
        first: dict[str, Any] = json.loads(data) if data.startswith(b'{"format": 1,') else json.loads(unsealed(data))
        number = first["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    if number != FORMAT:
        raise PenstockError(
            "P0605", f"the state in {path.parent} has format {number}, this version reads format {FORMAT}",
            hint="go on with the version that wrote it, or start afresh with a new --checkpoint",
        )  # fmt: skip
    return first
