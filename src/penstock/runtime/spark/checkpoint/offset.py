"""The offset of a round: what determines the input of the rounds after it, and its form as JSON.

Contract: `as_json` and `from_json` alone know the form, in the marks and epochs of a checkpoint and in Spark's own log.
Fields that hold nothing are left out, as an offset is written for each round, so `from_json(x).as_json() == x` for what
`as_json` has returned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.connectors.contract import Split
from penstock.physical.decisions import NO_DECISIONS, Decisions
from penstock.physical.execution.wall_clock import WallClock
from penstock.storage.documents import (
    Document,
    Json,
    as_integer,
    as_optional_integer,
    flag,
    integer,
    nested,
    optional_integer,
    texts,
)


@dataclass(frozen=True)
class LogOffset:
    """Where the reading of a log stands.

    Args:
        state: of the connector, from which it continues; None at the start.
        split: what the round reads of the log; None for nothing.
    """

    state: dict[str, Any] | None = None
    split: Split | None = None


@dataclass(frozen=True)
class Offset:
    """The offset of a round.

    Args:
        round: number of the round; 0 before the first.
        done: by source, the number of splits read up to and including the round.
        high: by source, the largest timestamp before the round, None for none.
        ended: sources that have ended.
        limit: bytes that the round was planned to read at most, None before the first.
        read: bytes that it reads.
        logs: by log, where its reading stands.
        reported: by source, the heartbeat that it reported of its own time.
        wall: the wall clock of the round, where sources use it.
        again: whether `high` includes the round, and the next round is due even if there is nothing to read.
        before: the offset before the round, where the offset is that of a mark.
        tasks: number of files of the round, where the offset is that of a mark; else 0.
        decided: what the run decided by measuring, before the round.
        epoch: the epoch whose plan the round runs, where the offset is that of a mark.
    """

    round: int
    done: Mapping[str, int]
    high: Mapping[str, int | None]
    ended: tuple[str, ...] = ()
    limit: int | None = None
    read: int = 0
    logs: Mapping[str, LogOffset] = field(default_factory=dict)
    reported: Mapping[str, int] = field(default_factory=dict)
    wall: WallClock | None = None
    again: bool = False
    before: Offset | None = None
    tasks: int = 0
    epoch: int = 0
    decided: Decisions = NO_DECISIONS

    def as_json(self) -> dict[str, Json]:
        """Return the offset as JSON, fields that hold nothing left out."""
        optional: dict[str, Json] = {
            "limit": self.limit,
            "read": self.read if self.round else None,
            "logs": {name: asdict(log) for name, log in self.logs.items()} or None,
            "told": dict(self.reported) or None,
            "wall": self.wall.as_json() if self.wall is not None else None,
            "again": self.again or None,
            "before": self.before.as_json() if self.before is not None else None,
            "tasks": self.tasks or None,
            "epoch": self.epoch or None,
            "decided": self.decided.as_json() if self.decided else None,
        }
        needed: dict[str, Json] = {
            "round": self.round,
            "done": dict(self.done),
            "high": dict(self.high),
            "ended": list(self.ended),
        }
        return needed | {name: value for name, value in optional.items() if value is not None}

    @staticmethod
    def from_json(fields: Document) -> Offset:
        """Return the offset that `as_json` wrote."""
        absent: dict[str, Json] = {
            "limit": None,
            "read": 0,
            "logs": {},
            "told": {},
            "again": False,
            "tasks": 0,
            "epoch": 0,
        }
        fields = {**absent, **fields}
        return Offset(
            integer(fields, "round"),
            _integers_by_source(fields, "done"),
            {name: as_optional_integer(tick, "high") for name, tick in nested(fields, "high").items()},
            tuple(texts(fields, "ended")),
            optional_integer(fields, "limit"),
            integer(fields, "read"),
            {name: _log(nested(nested(fields, "logs"), name)) for name in nested(fields, "logs")},
            _integers_by_source(fields, "told"),
            _wall_clock(nested(fields, "wall")) if "wall" in fields else None,
            flag(fields, "again"),
            Offset.from_json(nested(fields, "before")) if "before" in fields else None,
            integer(fields, "tasks"),
            integer(fields, "epoch"),
            Decisions.from_json(nested(fields, "decided")) if "decided" in fields else NO_DECISIONS,
        )

    def splits_done(self, source: str) -> int:
        """Return the number of splits of a source that have been read."""
        return self.done.get(source, 0)

    def planned(self) -> Offset:
        """Return the offset as the planner made it, without what a mark adds."""
        return replace(self, before=None, tasks=0, epoch=0)

    def only(self, kept: Collection[str], sources: Collection[str], idle: Collection[str]) -> Offset:
        """Return the offset with the sources `kept` as they are, and the others of `sources` at their beginning.

        Args:
            idle: those of `sources` with an IDLE TIMEOUT.
        """
        wall = self.wall
        if wall is not None:
            last_heard = {name: wall.heard.get(name, wall.now) if name in kept else wall.now for name in idle}
            wall = WallClock(wall.now, last_heard, {name: beat for name, beat in wall.beats.items() if name in kept})
        return replace(
            self.planned(),
            done={name: self.splits_done(name) if name in kept else 0 for name in sources},
            high={name: self.high.get(name) if name in kept else None for name in sources},
            ended=tuple(name for name in self.ended if name in kept),
            logs={name: log for name, log in self.logs.items() if name in kept},
            reported={name: tick for name, tick in self.reported.items() if name in kept},
            wall=wall,
        )


def _integers_by_source(fields: Document, name: str) -> dict[str, int]:
    return {source: as_integer(value, name) for source, value in nested(fields, name).items()}


def _wall_clock(fields: Document) -> WallClock:
    return WallClock(integer(fields, "now"), _integers_by_source(fields, "heard"), _integers_by_source(fields, "beats"))


def _log(fields: Document) -> LogOffset:
    state = None if fields["state"] is None else dict(nested(fields, "state"))
    split: Any = fields["split"]
    return LogOffset(state, None if split is None else Split(**split))
