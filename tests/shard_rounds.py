"""Rounds of one shard on Spark, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.physical.plan.plan import Plan
from penstock.runtime.result_limits import ResultLimits
from penstock.runtime.spark.worker.stage import ShardRound


def shard_round(name: str, plan: Plan, stage: int) -> ShardRound:
    """Return a round of a stage of the only shard of a plan, whose state is not kept."""
    job: Any = SimpleNamespace(
        plan=plan,
        shards=1,
        drain=False,
        epoch=0,
        cache_bytes=0,
        isolated=False,
        limits=ResultLimits(),
        ends=lambda _: True,
    )
    state: Any = SimpleNamespace(manifest=lambda: None, token=None, save=lambda manifest, new, gone: None)
    return ShardRound(name, job, {}, stage, state)
