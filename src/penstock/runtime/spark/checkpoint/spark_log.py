"""Spark's own log of the rounds of a run: which round each batch reads, and which batches are committed.

Contract: it is checked against the delivered batches of the checkpoint, and brought into agreement with them, before
Spark reads it.
"""

from __future__ import annotations

from pathlib import Path

from penstock.runtime.spark.checkpoint.folder import Delivery, Folder, unwritable
from penstock.storage import storage
from penstock.storage.seals import damaged


def spark_log_folder(checkpoint: Path) -> Path:
    """Return the folder of Spark's own checkpoint."""
    return checkpoint / "spark"


def check_log(folder: Folder, log: Path) -> None:
    """Check Spark's `log` of a run.

    Raises:
        PenstockError: P0605 where the log lacks the batch that was delivered last, so that Spark would start again from
            the beginning.
    """
    last_batch = folder.delivered().batch
    if _newest(log / "offsets") < last_batch:
        raise damaged(log, FileNotFoundError(f"it does not contain batch {last_batch}, which was delivered"))
    if _newest(log / "commits") > last_batch:
        # Spark commits delivered batches only.
        cause = ValueError(f"it is older than {log}")
        raise damaged(folder.root / f"{Delivery.NAME}.json", cause)


def mend_log(folder: Folder, log: Path) -> None:
    """Remove from Spark's log the empty files of batches after the last delivered one, and that of its commit: a loss
    of power leaves these of files that Spark did not sync. Spark then repeats the batch.
    """
    last_batch = folder.delivered().batch
    for name, first in (("offsets", last_batch + 1), ("sources/0", last_batch + 1), ("commits", last_batch)):
        directory = log / name
        for number in (int(n) for n in storage().list(directory) if n.isdigit()):
            if number >= first and not storage().size(directory / str(number)):
                storage().remove(directory / str(number))
                storage().remove(directory / f".{number}.crc")


def take_back(folder: Folder, log: Path) -> None:
    """Remove from Spark's log what it holds of batches after the last delivered one, durably. The run then plans the
    round of such a batch anew, so its files may be others than those in the log. Another start may find them again
    where power goes meanwhile, and removes them too.
    """
    last_batch = folder.delivered().batch
    for directory in (log / "offsets", log / "sources" / "0"):
        names = [name for name in storage().list(directory) if _batch_of(name) > last_batch]
        for name in names:
            storage().remove(directory / name)
            storage().remove(directory / f".{name}.crc")
        if names:
            storage().sync(directory)


def _batch_of(name: str) -> int:
    """Return the batch of a file of Spark's log, -1 for a file of no batch."""
    stem = name.removesuffix(".compact")
    return int(stem) if stem.isdigit() else -1


def sync_log(log: Path, number: int, first: bool) -> None:
    """Sync what Spark's `log` holds of batch `number`, since Spark does not. Raises PenstockError P0601.

    Args:
        first: also what does not change from batch to batch.
    """
    disk = storage()
    names = [f"offsets/{number}", f"sources/0/{number}", f"sources/0/{number}.compact"]
    folders = [log / "offsets", log / "sources" / "0"]
    try:
        for name in ["metadata", *names] if first else names:
            if disk.exists(log / name):
                disk.sync_file(log / name)
        disk.sync(*(folder for folder in ([log, *folders] if first else folders) if disk.exists(folder)))
    except OSError as error:
        raise unwritable(log, error) from error


def _newest(directory: Path) -> int:
    """Return the number of the last batch in a folder of Spark's log, -1 for none."""
    return max((int(name) for name in storage().list(directory) if name.isdigit()), default=-1)
