"""Keep which rows of streams that are retained their checks have rejected, beside what is retained.

Contract: writing a round again replaces what it wrote before, so a replay leaves one copy.
"""

from __future__ import annotations

from penstock.algebra.nodes.scans import RejectedScan
from penstock.physical.elements import Elements, concat
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.output.withheld import Answers, typed
from penstock.runtime.spark.retention.rejected_log import RejectedLog


def record_rejected(folder: Folder, job: Job, answers: Answers, round_: int) -> None:
    """Write which elements of retained streams their checks have rejected in a round. Raises PenstockError P0601."""
    retained = {source.name for source in job.intake.sources if source.retain is not None}
    found: dict[str, dict[str, Elements]] = {}
    for name, by_shard in answers.items():
        query = job.plan.queries[name]
        if isinstance(query.root, RejectedScan) and query.root.source.name in retained:
            parts = [typed(query, chunk.take()) for _, chunks in by_shard for chunk in chunks]
            if sum(map(len, parts)):
                found.setdefault(query.root.source.name, {})[query.root.check.name] = concat(parts)
    for source, rejected in found.items():
        RejectedLog(folder, source_file(source, job.intake.births)).write(round_, rejected)
