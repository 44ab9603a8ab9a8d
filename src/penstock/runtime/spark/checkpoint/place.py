"""Where a checkpoint may lie, and the removal of what is not needed of it any more."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.epochs import forget_epochs, source_file
from penstock.runtime.spark.checkpoint.folder import RUN, Folder, Job, is_held
from penstock.runtime.spark.checkpoint.spark_log import spark_log_folder
from penstock.storage import storage
from penstock.temporary import release


def check_place(checkpoint: Path) -> None:
    """Raises PenstockError P0608 for a checkpoint that is a file, or is to lie below one."""
    for place in (checkpoint, *checkpoint.parents):
        # A link that leads nowhere is there and is no folder.
        if place.is_symlink() or place.exists():
            if place.is_dir():
                return
            consequence = "" if place == checkpoint else f", so {checkpoint} cannot be a folder"
            description = "a file" if place.is_file() else "no folder"
            raise PenstockError("P0608", f"{place} is {description}{consequence}", hint="--checkpoint names a folder")


def remove_checkpoint(checkpoint: Path, dead_letters: str) -> str:
    """Remove the checkpoint of a run that cannot be resumed; return where its dead letters lie, which are kept."""
    letters = Path(dead_letters)
    if letters.exists():
        kept_letters = checkpoint.with_name(checkpoint.name + "-dead-letters")
        storage().rename(letters, kept_letters)
        dead_letters = str(kept_letters)
    release(checkpoint)
    storage().remove_tree(checkpoint)
    return dead_letters


def forget_older(folder: Folder, job: Job, sources: Collection[str]) -> None:
    """Remove the files of epochs before that of `job`, once its first batch is committed."""
    disk = storage()
    forget_epochs(folder, job.epoch)
    for name in disk.list(folder.root / "backfill"):
        # Queries that begin later may be reading their past.
        if int(name) <= job.epoch and not is_held(str(folder.root / "backfill" / name)):
            disk.remove_tree(folder.root / "backfill" / name)
    kept_names = {source_file(name, job.intake.births) for name in sources}
    for name in disk.list(folder.root / "splits"):
        if name not in kept_names:
            disk.remove_tree(folder.root / "splits" / name)
    for name in disk.list(folder.root / "compacted"):
        if name not in kept_names:
            disk.remove_tree(folder.root / "compacted" / name)
    for name in disk.list(folder.root / "tables"):
        if name.partition(".")[0] not in job.plan.statics:
            disk.remove(folder.root / "tables" / name)
    for name in disk.list(folder.root / "state"):
        if int(name) > job.plan.stages:
            disk.remove_tree(folder.root / "state" / name)


def forget_all(folder: Folder, checkpoint: Path | None) -> None:
    """Remove the files of a run, to start from the beginning: no batch has been delivered yet.

    Args:
        checkpoint: the folder with Spark's log of the run, which is removed too; None where it is not the run's.
    """
    if checkpoint is not None:
        storage().remove_tree(spark_log_folder(checkpoint))
    # A state without epochs counts as damage.
    storage().remove_tree(folder.root / "state")
    # The name of the run goes last: without it the remains of an interrupted removal would be no checkpoint any more.
    for name in storage().list(folder.root):
        if name != RUN:
            storage().remove_tree(folder.root / name)
            with suppress(OSError):
                storage().remove(folder.root / name)
    storage().remove_tree(folder.root)
