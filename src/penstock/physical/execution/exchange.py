"""The exchange: results of a stage on their way to later stages, by channel and receiving shard.

One router serves every way of running a plan: the ingest and the stages on Spark, those in this process, and the plan
inside an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.physical.elements import Elements
from penstock.physical.kernels.compiled import cut_by_shard
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators import Rejection
from penstock.physical.plan.plan import Channel, Exchange, Plan

#: An input of a step: (step, number of the input).
Port = tuple[int, int]


@dataclass
class StageResult:
    """The output of one round of a stage.

    Args:
        answers: by query.
        onward: by channel to later stages.
        rejected: updates that their relation could not apply.
        reached: by query that goes on in later rounds, the instant up to which it has emitted (`portions.py`).
    """

    answers: dict[str, list[Elements]] = field(default_factory=dict)
    onward: dict[Channel, list[Elements]] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    reached: dict[str, int] = field(default_factory=dict)


class ExchangeRouter:
    """Routes the results of one round to later stages; batches of a channel keep the order in which they were posted.

    Args:
        shards: number of shards of every keyed stage.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._inboxes: list[dict[Channel, list[Elements]]] = [{} for _ in range(shards)]

    def post(self, result: StageResult, sender: int) -> None:
        """Route what goes on to later stages. sender: the ingest task or the shard of the result."""
        for channel, batches in result.onward.items():
            for elements in batches:
                for shard, part in cut(elements, channel.exchange, self._shards, sender):
                    self._inboxes[shard].setdefault(channel, []).append(part)

    def take(self, plan: Plan, stage: int, shard: int) -> dict[Channel, list[Elements]]:
        """Return the batches for a shard of a stage of `plan`; those that no later stage reads are removed."""
        inbox = self._inboxes[shard]
        taken: dict[Channel, list[Elements]] = {}
        for channel in list(inbox):
            stages = plan.receivers[channel]
            if stage in stages:
                taken[channel] = inbox[channel]
            if max(stages) <= stage:
                del inbox[channel]
        return taken

    def __iter__(self) -> Iterator[tuple[int, Channel, list[Elements]]]:
        """Yield (shard, channel, batches)."""
        for shard, inbox in enumerate(self._inboxes):
            for channel, batches in inbox.items():
                yield shard, channel, batches


def cut(elements: Elements, exchange: Exchange, shards: int, sender: int) -> list[tuple[int, Elements]]:
    """Return `elements` by receiving shard. Rows without a key go to a shard that the sender's number selects."""
    if exchange.everywhere:
        return [(shard, elements) for shard in range(shards)]
    if exchange.key is None:
        return [(sender % shards, elements)]
    if not exchange.key or shards == 1:
        return [(0, elements)]
    first, _ = fingerprints([elements.columns[i] for i in exchange.key], len(elements))
    order, bounds = cut_by_shard(first, shards)
    ordered = elements.take(order)
    pieces = ((k, int(bounds[k]), int(bounds[k + 1])) for k in range(shards))
    return [(k, ordered.slice(start, stop)) for k, start, stop in pieces if stop > start]
