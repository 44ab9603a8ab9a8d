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
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.execution.wall_clock import WallClock
from penstock.runtime.spark.checkpoint.folder import Seen
from penstock.runtime.spark.checkpoint.kept_punctuations import KeptPlace, places_after, places_of
from penstock.storage.documents import (
    Document,
    Json,
    as_integer,
    as_optional_integer,
    as_text,
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
        beats: by source, the heartbeat that records of it had set before the round.
        advanced: by source that is not posted to, the last heartbeat that was posted of it and that has been read, as
            `<number of the source>.<number of the post>`.
        punctuations: by source, those that it kept before the round.
        ended: sources that have ended.
        limit: bytes that the round was planned to read at most, None before the first.
        read: bytes that it reads.
        logs: by log, where its reading stands.
        reported: by source, the heartbeat that it reported of its own time.
        wall: the wall clock of the round, where sources use it.
        again: whether `high`, `beats` and `punctuations` include the round, and the next round is due even if there is
            nothing to read.
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
    beats: Mapping[str, int] = field(default_factory=dict)
    advanced: Mapping[str, str] = field(default_factory=dict)
    punctuations: Mapping[str, KeptPlace] = field(default_factory=dict)

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
            "beats": dict(self.beats) or None,
            "advanced": dict(self.advanced) or None,
            "punctuations": {name: place.as_json() for name, place in self.punctuations.items()} or None,
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
            "beats": {},
            "advanced": {},
            "punctuations": {},
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
            _integers_by_source(fields, "beats"),
            {source: as_text(place, "advanced") for source, place in nested(fields, "advanced").items()},
            places_of(nested(fields, "punctuations")),
        )

    def splits_done(self, source: str) -> int:
        """Return the number of splits of a source that have been read."""
        return self.done.get(source, 0)

    def progress(self, source: str) -> SourceProgress:
        """Return the progress of a source before the round, or after it with `again`, as if it had not ended."""
        wall = {} if self.wall is None else self.wall.beats
        beats = (known.get(source, NOTHING) for known in (wall, self.reported, self.beats))
        recorded = self.beats.get(source, NOTHING)
        return SourceProgress(None, self.high.get(source), beat=max(beats), recorded=recorded)

    def after(self, seen: Mapping[str, Seen]) -> Offset:
        """Return the offset with the progress of its round, so that the next one is due. seen: what the tasks of the
        round observed."""
        if self.again:
            return self
        high, beats = dict(self.high), dict(self.beats)
        for name, source_seen in seen.items():
            if name in high and source_seen.high is not None:
                before = high[name]
                high[name] = source_seen.high if before is None else max(source_seen.high, before)
            if name in high and source_seen.beat is not None:
                beats[name] = max(source_seen.beat, beats.get(name, NOTHING))
        added = {name: source_seen.punctuations for name, source_seen in seen.items() if name in high}
        kept = places_after(self.punctuations, added)
        return replace(self, high=high, beats=beats, punctuations=kept, again=True)

    def planned(self) -> Offset:
        """Return the offset as the planner made it, without what a mark adds."""
        return replace(self, before=None, tasks=0, epoch=0)

    def only(self, kept: Collection[str], sources: Collection[str], idle: Collection[str]) -> Offset:
        """Return the offset with the sources `kept` as they are, and the others of `sources` at their beginning.

        Args:
            idle: those of `sources` with an IDLE TIMEOUT.
        """
        wall = None if self.wall is None else self.wall.of(kept, idle)
        return replace(
            self.planned(),
            done={name: self.splits_done(name) if name in kept else 0 for name in sources},
            high={name: self.high.get(name) if name in kept else None for name in sources},
            ended=tuple(name for name in self.ended if name in kept),
            logs={name: log for name, log in self.logs.items() if name in kept},
            reported={name: tick for name, tick in self.reported.items() if name in kept},
            beats={name: tick for name, tick in self.beats.items() if name in kept},
            advanced={name: place for name, place in self.advanced.items() if name in kept},
            punctuations={name: place for name, place in self.punctuations.items() if name in kept},
            wall=wall,
        )


def _integers_by_source(fields: Document, name: str) -> dict[str, int]:
    return {source: as_integer(value, name) for source, value in nested(fields, name).items()}


def _wall_clock(fields: Document) -> WallClock:
    ticks = (_integers_by_source(fields, name) for name in ("heard", "beats", "promised"))
    return WallClock(integer(fields, "now"), *ticks)


def _log(fields: Document) -> LogOffset:
    state = None if fields["state"] is None else dict(nested(fields, "state"))
    split: Any = fields["split"]
    return LogOffset(state, None if split is None else Split(**split))
