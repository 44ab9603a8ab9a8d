"""Make a batch of the results that a run keeps itself visible, for all its queries at once."""

from __future__ import annotations

import time
from collections.abc import Mapping

from penstock.connectors.contract import BatchLog, Sink
from penstock.runtime.spark.output.written_batch import DeliveredAnswer


def commit_logs(
    sinks: Mapping[str, Sink],
    batch: int,
    heartbeats: Mapping[str, int],
    answers: Mapping[str, DeliveredAnswer] | None = None,
) -> None:
    """Make visible what sinks that write together have written of a batch. heartbeats: by query, in ticks; answers: by
    query, delivered when they are visible. Raises PenstockError P0502.
    """
    ids: dict[BatchLog, dict[str, str]] = {}
    for name, sink in sinks.items():
        if sink.log is not None and sink.own_place is not None:
            ids.setdefault(sink.log, {})[name] = sink.own_place.id
    for log, names in ids.items():
        log.commit(batch, {id_: heartbeats[name] for name, id_ in names.items() if name in heartbeats}, names.values())
        now = time.monotonic()
        for name in names.keys() & (answers or {}).keys():
            (answers or {})[name].at = now
