"""The state of the shards of a run: a folder for each stage and shard below its checkpoint
(`runtime/state/chunk_files.py`).

Per batch, a shard writes its state before its packets leave it. Compared with Spark's own store, this saves every batch
the start of stateful tasks, a socket per state variable and a commit (docs/decisions/state-in-files.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.epochs import Epoch
from penstock.runtime.spark.checkpoint.folder import Folder, Job, unwritable
from penstock.runtime.state.chunk_files import LAST, ChunkFiles, step_numbers, sweep_folder
from penstock.runtime.state.shard_manifest import ShardManifest
from penstock.storage import storage
from penstock.storage.local import TEMPORARY
from penstock.storage.seals import damaged


class StateFiles(ChunkFiles):
    """The state of one shard of one stage, as it is before and after batch `batch`."""

    def __init__(self, root: str, stage: int, shard: int, batch: int) -> None:
        folder = Folder(root)
        super().__init__(folder.root / "state" / str(stage) / str(shard), batch, folder.place)

    def save(self, manifest: ShardManifest, new_chunks: Mapping[str, pa.RecordBatch], dropped_chunks: set[str]) -> None:
        """See `ChunkFiles.save`. Raises PenstockError P0601 where the disk cannot be written."""
        try:
            super().save(manifest, new_chunks, dropped_chunks)
        except OSError as error:
            raise unwritable(self._folder, error) from error


def open_state(root: str, job: Job, stage: int, shard: int, batch: int) -> tuple[StateFiles, list[StateFiles]]:
    """Return the state of a shard before `batch`, and the backfilled states of queries that join with this batch."""
    state = StateFiles(root, stage, shard, batch)
    # Every shard writes its state in every batch; with DataFrames only Spark knows which batches call for them.
    if batch > job.base and state.previous != batch - 1 and not job.intake.spark_sources:
        raise _missing(Path(root) / "state" / str(stage) / str(shard), batch - 1)
    roots = backfill_roots(root, job.past) if batch == job.base and job.past else []
    return state, [StateFiles(one, stage, shard, LAST) for one in roots]


def check_state(folder: Folder, epoch: Epoch | None) -> None:
    """Check before the start that the state from which a run continues is there. Raises PenstockError P0605."""
    base = folder.delivered().batch + 1
    if epoch is None or epoch.state_store != "files" or epoch.frames or base <= epoch.base:
        return
    for stage in range(1, epoch.stages + 1):
        for shard in range(epoch.shards):
            shard_folder = folder.root / "state" / str(stage) / str(shard)
            if StateFiles(str(folder.root), stage, shard, base).previous != base - 1:
                raise _missing(shard_folder, base - 1)
            if max(step_numbers(shard_folder)) > base:
                cause = ValueError(f"it is older than the state in {shard_folder}")
                raise damaged(folder.root / "delivered.json", cause)


def _missing(folder: Path, batch: int) -> PenstockError:
    return damaged(folder, FileNotFoundError(f"the state that batch {batch} left is missing"))


def backfill_root(root: str, past: int) -> str:
    """Return the folder in which new queries keep their state until they join the others. past: see `Job.past`."""
    return str(Path(root) / "backfill" / str(past))


def contents_root(root: str, group: int) -> str:
    """Return the folder in which a group of queries that begin with contents of relations keep theirs. root: that of
    the new queries of their epoch.
    """
    return str(Path(root) / "contents" / str(group))


def backfill_roots(root: str, past: int) -> list[str]:
    """Return the folders that hold state of the new queries of an epoch, each of other steps."""
    folder = backfill_root(root, past)
    return [folder, *(contents_root(folder, int(name)) for name in storage().list(Path(folder) / "contents"))]


def sweep(root: Path) -> None:
    """Remove the files of failed attempts. Call it only while no task runs."""
    folder = Folder(root)
    for shard_folder in _shards(root):
        sweep_folder(shard_folder, folder.place)
    _sweep_temporaries(root)


def _shards(root: Path) -> list[Path]:
    state = root / "state"
    return [state / s / shard for s in storage().list(state) for shard in storage().list(state / s)]


def _sweep_temporaries(folder: Path) -> None:
    for name in storage().list(folder):
        if name.startswith(TEMPORARY[0]) and name.endswith(TEMPORARY[1]):
            storage().remove(folder / name)
        elif "." not in name or folder.name == "dead-letters":
            _sweep_temporaries(folder / name)
