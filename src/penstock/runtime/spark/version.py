"""The versions of a run's plan, as its callers see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.connectors.contract import Sink
from penstock.runtime.spark.checkpoint.epochs import Epoch, forget_epochs, latest_epoch
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.place import forget_older
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.work import Work
from penstock.runtime.spark.worker.job_files import forget_parts
from penstock.storage.documents import Document


@dataclass(frozen=True)
class VersionInfo:
    """A version of the plan of a run.

    Args:
        number: of its epoch.
        command: number of the last command that it contains, 0 for none.
        outcomes: of the commands since the version before, by their numbers.
        batch: its first batch.
        failed: the queries that were left out since they failed.
        queries, sources: their heartbeats, in ticks, after the last batch.
        offset: up to which the sources had been read when the version began; None where it is the first.
        results: by query, the id of its result, also of those that are left out.
        rows: by query, the rows that its sink has received.
    """

    number: int
    command: int
    outcomes: Document
    batch: int
    failed: Mapping[str, QueryFailure]
    queries: Mapping[str, int]
    sources: Mapping[str, int]
    offset: Offset | None = None
    results: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class JobChange:
    """What a run goes on with after a change.

    Args:
        digest: of the job as workers read it.
        offset: at which its first round begins; None where only the record of the version changes.
        work: what was admitted of the request.
        sinks: of all its queries, opened.
        notices: messages for the user.
        horizons: of operators that are new, as in `GrowthDetector`.
        begun: the sinks of results that begin with it.
    """

    work: Work
    epoch: Epoch
    job: Job
    digest: str
    offset: Offset | None
    sinks: Mapping[str, Sink]
    notices: tuple[str, ...]
    horizons: Mapping[str, float] = field(default_factory=dict)
    begun: tuple[Sink, ...] = ()


def version_of(
    epoch: Epoch,
    queries: Mapping[str, int] | None = None,
    sources: Mapping[str, int] | None = None,
    rows: Mapping[str, int] | None = None,
) -> VersionInfo:
    """Return the version that an epoch records. queries, sources: heartbeats; rows: answered by each query."""
    failed = {name: record.failure for name, record in epoch.paused.items() if record.failure is not None}
    results = {name: record.id for name, record in epoch.paused.items()}
    results |= {name: record.id for name, record in epoch.queries.items()}
    return VersionInfo(
        epoch.number,
        epoch.command,
        epoch.outcomes,
        epoch.base,
        failed,
        queries or {},
        sources or {},
        epoch.offset,
        results,
        rows or {},
    )


def stored_version(checkpoint: Path) -> VersionInfo | None:
    """Return the latest version in a checkpoint whose run is not active, None for a run that never began: every command
    up to `VersionInfo.command` has been applied, no later one.
    """
    epoch = latest_epoch(Folder(checkpoint / "penstock"))
    return None if epoch is None else version_of(epoch)


class OlderVersions:
    """The files of the versions that a run has left, which are removed when no start needs them.

    Args:
        present: whether there may be some.
    """

    def __init__(self, folder: Folder, present: bool) -> None:
        self._folder = folder
        self._present = present
        self._last: int | None = None

    def add(self) -> None:
        """Note that the run has left a version."""
        self._present = True

    def delivered(self, job: Job, batch: int, sources: Collection[str]) -> None:
        """Remove what is not needed once `batch` of `job` is delivered: Spark has committed the one before.

        Args:
            sources: of the job, static ones included.
        """
        if self._present:
            # No worker reads another job again.
            forget_parts(self._folder, job)
            if batch > job.base:
                self._present = False
                forget_older(self._folder, job, sources)
            elif self._last is not None:
                # Versions may change with every batch.
                forget_epochs(self._folder, self._last)
        self._last = job.epoch
