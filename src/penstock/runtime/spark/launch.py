"""Start a run from bound queries: claim its checkpoint, decide what the start means for it, start Spark's part."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from penstock.errors import PenstockError
from penstock.runtime.reporting import ReportOptions
from penstock.runtime.spark.assembly import answers_only, assemble
from penstock.runtime.spark.changes.restart_decision import (
    StartKind,
    decide,
    other_script,
)
from penstock.runtime.spark.checkpoint.checkpoint_lock import CheckpointLock, claim
from penstock.runtime.spark.checkpoint.epochs import latest_epoch
from penstock.runtime.spark.checkpoint.folder import (
    RUN,
    Folder,
)
from penstock.runtime.spark.checkpoint.place import check_place
from penstock.runtime.spark.input.dataframes import spark_schema
from penstock.runtime.spark.job import FailureListener, SparkRun
from penstock.runtime.spark.live_change import leave_out
from penstock.runtime.spark.start import (
    begin,
    check_sources,
    closed_on_failure,
    prepare,
    remove_interrupted_start,
    settled,
    start_request,
)
from penstock.runtime.spark.work import Work
from penstock.storage import storage
from penstock.storage.local import TEMPORARY
from penstock.temporary import discard, temporary_folder

#: Every folder of a run has one of these.
_RUN_FILES = frozenset({RUN, "epochs"})


def launch(work: Work, checkpoint: str | None, overwrite: bool, on_failed: FailureListener | None = None) -> SparkRun:
    """Start `work` as one job.

    Args:
        checkpoint: a folder to resume from; without one the run is ephemeral.
        on_failed: receives the name and the error of a query that is left out since it failed (`Work.pause_failed`).

    Raises:
        PenstockError: P0401, P0402, P0404, P0501, P0503, P0602, P0603, P0605 to P0609 for what cannot start.
    """
    if checkpoint is None:
        folder = temporary_folder()
        try:
            return _launch(work, folder, overwrite, None, on_failed)
        except BaseException:
            discard(folder)
            raise
    folder = Path(checkpoint).absolute()
    _check_is_checkpoint(folder)
    lock = claim(folder)
    try:
        return _launch(work, folder, overwrite, lock, on_failed)
    except BaseException:
        lock.release()
        raise


#: Files ignored in a folder that becomes a checkpoint: left by an interrupted start, or by the system; and those of
#: who controls the run.
_IGNORED = frozenset({".in-use", "lost+found", "spark.log", "control"})


def _check_is_checkpoint(folder: Path) -> None:
    """Raises PenstockError P0608 for what is no folder, and for a folder that holds something else: a start removes
    what it takes for its own."""
    check_place(folder)
    names = set(storage().list(folder)) - _IGNORED
    if names and not ("penstock" in names and _is_run_folder(storage().list(folder / "penstock"))):
        raise _no_checkpoint(folder, names)


def _is_run_folder(names: Collection[str]) -> bool:
    """Return whether a folder with these names is that of a run, or may become one."""
    return any(name in _RUN_FILES for name in names) or all(
        name.startswith(TEMPORARY[0]) and name.endswith(TEMPORARY[1]) for name in names
    )


def _no_checkpoint(folder: Path, names: Collection[str]) -> PenstockError:
    return PenstockError(
        "P0608",
        f"{folder} is not empty and no checkpoint: it holds {min(names)}",
        hint="give a folder of its own as --checkpoint, which need not exist",
    )


def _launch(
    work: Work, checkpoint: Path, overwrite: bool, lock: CheckpointLock | None, on_failed: FailureListener | None
) -> SparkRun:
    folder = Folder(checkpoint / "penstock")
    start = begin(work, folder, overwrite, lambda: work.spark().sparkContext.defaultParallelism)
    with closed_on_failure(start.sinks):
        report_options = ReportOptions.of(work.settings, folder.read_mark("horizons"))
        return SparkRun(checkpoint, start, lock, report_options, leave_out, on_failed)


def answer_frame(work: Work, path: Path) -> DataFrame:
    """Return the answer of the one query of `work` as a streaming DataFrame. path: the folder that its
    workers share.
    """
    (query,) = work.queries
    folder = Folder(path.absolute())
    if not _is_run_folder(names := storage().list(path)):
        raise _no_checkpoint(path, names)
    spark = work.spark()
    request = replace(start_request(work, folder), state_store="spark")
    decision = decide(request, folder)
    if decision.kind is not StartKind.SAME and latest_epoch(folder) is not None:
        raise other_script(folder, "the checkpoint is the sink's, and fits one plan only")
    check_sources(work)
    remove_interrupted_start(folder, decision, None)
    folder.begin_run()
    parallelism = spark.sparkContext.defaultParallelism
    decision = settled(work, request, decision, folder, parallelism)
    job, digest = prepare(work, request, decision, folder, parallelism)
    packets = assemble(spark, folder, job, digest, work.streaming)
    return answers_only(packets, folder, digest, query.name, spark_schema(query.output_schema))
