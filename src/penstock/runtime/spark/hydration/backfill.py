"""Let the new queries of an epoch read the past of their sources before they join the others.

What they answer of it has batch numbers below those of the epoch in the sinks. A start that is interrupted repeats all
of it, with the same result (`hydration/`).
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connectors.contract import Sink
from penstock.runtime.spark.checkpoint.epochs import Epoch
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.hydration.catch_up import CatchUp
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.hydration.past_input import delivered_part


def backfill(
    folder: Folder,
    job: Job,
    epoch: Epoch,
    sinks: Mapping[str, Sink],
    ahead: CatchUp | None = None,
    kept: KeptRelations | None = None,
) -> None:
    """Read the past of the new queries of `epoch`, unless that is complete.

    Args:
        ahead: the prefetch that has read a part of it.
        kept: the relations that a run keeps, which continues.
    """
    mark = f"backfilled-{epoch.number}"
    if not epoch.backfill or folder.read_mark(mark):
        return
    assert epoch.offset is not None, "an epoch that follows another one begins with an offset"
    tables = folder.read_tables(job.plan.statics)
    reading = ahead or CatchUp(folder, job, epoch.started, tables, kept, epoch.answered)
    try:
        reading.finish(delivered_part(folder, epoch.offset), epoch.base, sinks, epoch)
    except BaseException:
        reading.discard()
        raise
    folder.write_mark(mark, True)
