"""Changes that sinks have not received yet: of silent queries, and of relations whose results continue.

A silent query runs, so that its state stays, and its sink receives nothing. When it is shown again, a stream emits its
instants after the heartbeat of that moment, and a relation the net difference of its content to what was emitted
before, at that heartbeat, and then its later changes.

A relation whose result goes on after a pause, or with another query, begins with the net difference too. That of all
its content so far to the content of the sink is withheld when it begins (`seed`). It is emitted at an instant that the
sink has not been answered before, when the query's heartbeat has reached that. So is the answer of a query that begins
AT an instant ahead.

What is withheld is thus always the difference between what is true and what the sink has. It is kept after every batch
in `withheld/<query>/<batch>.arrow`; a batch that is repeated starts from the file before it. Commands look at these
files while batches write and remove them, so one file is all of it, and one that is gone has a later one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.physical.elements import Elements, concat, decode, empty, encode
from penstock.physical.execution.progress import NOTHING, timed_names
from penstock.runtime.live.content import net
from penstock.runtime.spark.checkpoint.epochs import Epoch
from penstock.runtime.spark.checkpoint.folder import Folder, Job, write_whole
from penstock.runtime.spark.worker.answer_writer import PendingAnswer
from penstock.storage import storage
from penstock.storage.names import file_name
from penstock.storage.seals import damaged, sealed, unsealed
from penstock.types import END

#: By query the answer chunks of each shard.
Answers = Mapping[str, Sequence[tuple[int, Sequence[PendingAnswer]]]]
#: Files kept of each query: the last batch may be repeated.
_KEPT = 2
#: Bytes of the number at the end of a file.
_LENGTH = 4


@dataclass(frozen=True)
class ShownAnswers:
    """The answers of a batch that sinks receive.

    Args:
        withheld: the queries whose sinks receive nothing.
        timeless: those over relations alone that never change.
    """

    answers: Answers
    withheld: frozenset[str]
    timeless: frozenset[str] = frozenset()

    def heartbeats(self, of_queries: Mapping[str, int], failed: Collection[str] = ()) -> dict[str, int]:
        """Return the heartbeats up to which sinks have been answered, END where nothing follows. failed: queries
        without an answer."""
        answered = {n: tick for n, tick in of_queries.items() if n not in self.withheld and n not in failed}
        return {n: END if n in self.timeless else tick for n, tick in answered.items()}


class AnswerGate:
    """Decides which answers of a run sinks receive."""

    def __init__(self, folder: Folder) -> None:
        self._kept = WithheldAnswers(folder)
        #: By epoch, queries of which nothing is withheld any more.
        self._through: set[tuple[int, str]] = set()

    def shown(
        self, epoch: Epoch, job: Job, answers: Answers, heartbeats: Mapping[str, int], batch: int
    ) -> ShownAnswers:
        """Withhold the answers of queries that are silent or have not reached their first instant; return the others,
        with what was withheld of those that are shown in this batch.

        Args:
            heartbeats: of the queries after the batch.
        """
        shown = dict(routed(epoch, job, answers))
        withheld = set(epoch.silent)
        for name, since in (epoch.shown | epoch.silent).items():
            if (epoch.number, name) in self._through:
                continue
            before, silent = self._kept.read(name, since, batch), name in epoch.silent
            if not silent and (before is None or before.done):
                self._through.add((epoch.number, name))
                continue
            query, tick = job.plan.queries[name], heartbeats.get(name, NOTHING)
            parts = [chunk.take() for _, by_shard in shown.pop(name, ()) for chunk in by_shard]
            if before is None and not parts:
                continue
            after = (before or Withheld.nothing(query)).plus(query, parts)
            if silent or tick < after.first:
                withheld.add(name)
                self._kept.write(name, batch, after.netted(query, tick))
                continue
            emitted = after.emitted(query)
            self._kept.write(name, batch, Withheld(emitted.slice(0, 0), after.first, done=True))
            if len(emitted):
                shown[name] = [(job.keys[0], [PendingAnswer.of(emitted)])]
        timeless = frozenset(name for name, query in job.plan.queries.items() if not timed_names(query.root))
        return ShownAnswers(shown, frozenset(withheld), timeless)


def routed(epoch: Epoch, job: Job, answers: Answers) -> Answers:
    """Return the answers by the sinks that receive them: of a stream that was exchanged, instants up to that of the
    exchange go to the sink that it had before."""
    if not epoch.routes:
        return answers
    routes = {name: route for name, route in epoch.routes.items() if name in answers}
    found = {name: list(chunks) for name, chunks in answers.items() if name not in routes}
    for name, route in routes.items():
        for shard, chunks in answers[name]:
            for chunk in chunks:
                for sink, part in _parts(chunk, [*route, [None, name]]):
                    if sink in job.plan.queries:
                        found.setdefault(sink, []).append((shard, [part]))
    return found


def _parts(chunk: PendingAnswer, route: Sequence[Sequence[object]]) -> list[tuple[str, PendingAnswer]]:
    """Return the parts of a chunk by sink. route: pairs of the last tick of a sink and the sink, in order of time."""
    after = [(tick, str(sink)) for tick, sink in route if not isinstance(tick, int) or chunk.low <= tick]
    if len(after) == 1:
        return [(after[0][1], chunk)]
    rest, parts = chunk.take(), []
    for tick, sink in after:
        due = rest if not isinstance(tick, int) else rest.filter(rest.ts <= tick)
        if isinstance(tick, int):
            rest = rest.filter(rest.ts > tick)
        if len(due):
            parts.append((sink, PendingAnswer.of(due)))
    return parts


@dataclass(frozen=True)
class Withheld:
    """What is withheld of a query.

    Args:
        changes: those that its sink has not received; instants up to the heartbeat are netted.
        first: the first instant that the sink receives; earlier changes are netted there.
        done: it has been emitted.
    """

    changes: Elements
    first: int = NOTHING
    done: bool = False

    @staticmethod
    def nothing(query: Query) -> Withheld:
        return Withheld(empty(query.root.schema.types))

    def plus(self, query: Query, parts: Sequence[Elements]) -> Withheld:
        """Return it with further changes."""
        return Withheld(concat([self.changes, *(typed(query, part) for part in parts)]), self.first)

    def netted(self, query: Query, heartbeat: int) -> Withheld:
        """Return what is still to be emitted if the query is shown later: of a stream nothing up to `heartbeat`."""
        if query.root.is_stream:
            return replace(self, changes=self.changes.filter(self.changes.ts > heartbeat))
        changes = _netted_at(self.changes, heartbeat)
        return Withheld(changes, max(self.first, heartbeat))

    def emitted(self, query: Query) -> Elements:
        """Return what the sink receives."""
        if query.root.is_stream:
            return self.changes.filter(self.changes.ts >= self.first)
        return _netted_at(self.changes, self.first)


def _netted_at(changes: Elements, tick: int) -> Elements:
    """Return changes with those up to `tick` as their net difference at `tick`."""
    due = net([changes.filter(changes.ts <= tick)])
    at = np.full(len(due), tick, np.int64)
    return concat([Elements(due.columns, at, due.exp, due.signs), changes.filter(changes.ts > tick)])


def typed(query: Query, part: Elements) -> Elements:
    """Return elements with the column types of a query's answer."""
    types = query.root.schema.types
    return part.with_columns([c if c.type == t else c.cast(t) for c, t in zip(part.columns, types, strict=True)])


class WithheldAnswers:
    """What one checkpoint withholds.

    `<batch>.arrow`: what was withheld after a batch; `seed-<batch>.arrow` and `past-<batch>.arrow`: what was withheld
    when the query began with that batch, the second of them what it has read of its past.

    A file is the changes as an Arrow IPC stream, a sealed line of JSON (its checksum, `first` and `done`), and
    the length of that line in 4 bytes, little endian.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def write(self, query: str, batch: int, withheld: Withheld) -> None:
        """Write what is withheld after a batch. Raises PenstockError P0601."""
        place = self._place(query)
        self._write(place / f"{batch:09d}.arrow", withheld)
        for number in self._batches(place)[:-_KEPT]:
            storage().remove(place / f"{number:09d}.arrow")

    def seed(self, query: str, base: int, withheld: Withheld) -> None:
        """Write what is withheld of a query when it begins with the batch `base`, before it has read its past."""
        storage().remove(self._place(query) / f"past-{base:09d}.arrow")
        self._write(self._place(query) / f"seed-{base:09d}.arrow", withheld)

    def add_past(self, query: str, base: int, withheld: Withheld) -> None:
        """Write what a query that begins with the batch `base` has read of its past. What was written before is
        replaced."""
        self._write(self._place(query) / f"past-{base:09d}.arrow", withheld)

    def read(self, query: str, since: int, batch: int) -> Withheld | None:
        """Return what is withheld of a query before `batch`, None for nothing.

        Args:
            since: the batch with which it began to be withheld.

        Raises:
            PenstockError: P0605 for a damaged file.
        """
        while True:
            try:
                return self._found(self._place(query), since, batch)
            except FileNotFoundError:
                # It was removed after it had been listed: there is a later one, or nothing is withheld any more.
                continue

    def _found(self, place: Path, since: int, batch: int) -> Withheld | None:
        numbers = [number for number in self._batches(place) if since <= number < batch]
        if numbers:
            return self._read(place / f"{numbers[-1]:09d}.arrow")
        paths = [place / f"{kind}-{since:09d}.arrow" for kind in ("seed", "past")]
        found = [self._read(path) for path in paths if storage().exists(path)]
        if not found:
            return None
        return Withheld(concat([one.changes for one in found]), max(one.first for one in found))

    def is_pending(self, query: str, since: int, batch: int) -> bool:
        """Return whether something of a query is still to be emitted before `batch`."""
        withheld = self.read(query, since, batch)
        return withheld is not None and not withheld.done

    def keep_only(self, epoch: Epoch) -> None:
        """Remove what is withheld of other queries than those that `epoch` needs."""
        kept = {file_name(query) for query in (*epoch.silent, *epoch.shown)}
        root = self._folder.root / "withheld"
        for name in storage().list(root):
            if name not in kept:
                storage().remove_tree(root / name)

    # -- files -------------------------------------------------------------------------------------------------

    def _write(self, path: Path, withheld: Withheld) -> None:
        data = encode([withheld.changes.to_batch()])
        head = {"checksum": zlib.crc32(data), "first": withheld.first, "done": withheld.done}
        line = sealed(json.dumps(head), self._folder.place(path))
        write_whole(path, b"".join((data, line, len(line).to_bytes(_LENGTH, "little"))))

    def _read(self, path: Path) -> Withheld:
        """Return what a file holds. Raises PenstockError P0605, and FileNotFoundError where there is none."""
        try:
            content = storage().map(path)
            data, head = self._divided(path, content)
            if zlib.crc32(data) != head["checksum"]:
                raise ValueError("its content does not match its checksum")
            (batch,) = decode(data)
            return Withheld(Elements.from_batch(batch), head["first"], head["done"])
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise damaged(path, error) from error

    def _divided(self, path: Path, content: pa.Buffer) -> tuple[pa.Buffer, dict[str, Any]]:
        """Return the stream of changes of a file and the document behind it. Raises ValueError."""
        size = content.size - _LENGTH
        length = int.from_bytes(content[max(0, size) :].to_pybytes(), "little")
        if not 0 < length <= size:
            raise ValueError("it is cut off")
        line = content[size - length : size].to_pybytes()
        return content[: size - length], json.loads(unsealed(line, self._folder.place(path)))

    def _place(self, query: str) -> Path:
        return self._folder.root / "withheld" / file_name(query)

    @staticmethod
    def _batches(place: Path) -> list[int]:
        stems = (name.removesuffix(".arrow") for name in storage().list(place) if name.endswith(".arrow"))
        return sorted(int(stem) for stem in stems if stem.isdigit())
