"""A keyed stage as Spark sees it: a stateful processor, called once per shard and batch.

Spark also loads this module in the driver, only to ask which state variables there are, so it imports what computes
only where it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class KeyedStage(StatefulProcessor):
    """The processor of stage `stage` of the job in `root`. State: one manifest and any number of chunks per shard."""

    def __init__(self, root: str, stage: int) -> None:
        self._root = root
        self._stage = stage

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", "json string")
        self._chunks = handle.getMapState("chunks", "id string", "blob binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        from penstock.runtime.spark.stage import ShardRound

        return ShardRound(self._root, self._stage, self._manifest, self._chunks).run(int(key[0]), rows)
