"""Answers of some shards that go beyond what all shards have reached.

Where an answer is emitted in portions (`physical/execution/portions.py`), each shard ends a round at an instant of its
own. A sink receives answers in the order of time, so what is later than the earliest of these instants waits for the
next batch: at most a portion of each shard. `surplus/<query>/<batch>.arrow` is what waits after a batch; it is written
before the batch counts as delivered, and one that is repeated starts from the file of the batch before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.physical.elements import Elements, decode, encode
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.runtime.spark.checkpoint.folder import Folder, write_whole
from penstock.runtime.spark.worker.answer_writer import PendingAnswer
from penstock.storage import storage
from penstock.storage.names import file_name
from penstock.storage.seals import damaged

#: By query the answer chunks of each shard.
Answers = Mapping[str, Sequence[tuple[int, Sequence[PendingAnswer]]]]
#: Batches whose files are kept: the last one may be repeated.
_KEPT = 2


class SurplusAnswers:
    """The answers of one checkpoint that wait for other shards."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._root = folder.root / "surplus"
        #: The queries of which files may be there; None before the folder has been read.
        self._stored: set[str] | None = None

    def until(self, plan: Plan, answers: Answers, reached: Mapping[str, int], batch: int) -> Answers:
        """Return the answers of a batch that are due, with what waited for it, and keep the others.

        Args:
            reached: by query that goes on in later rounds, the instant up to which all shards have emitted.

        Raises:
            PenstockError: P0601, P0605.
        """
        if self._stored is None:
            self._stored = set(storage().list(self._root))
        if not reached and not self._stored:
            return answers
        due = dict(answers)
        for name in plan.queries:
            place = file_name(name)
            if name not in reached and place not in self._stored:
                continue
            known = self._root / place
            waited = self._read(known, batch - 1, _identity(plan, name))
            chunks: list[tuple[int, Sequence[PendingAnswer]]] = [*waited, *answers.get(name, ())]
            if name in reached:
                divided, late = _divided(chunks, reached[name])
                chunks = [*divided]
                self._write(known, batch, _identity(plan, name), late)
                self._stored.add(place)
                self._remove_old(known, batch - _KEPT)
            elif not waited:
                # What is there is of batches long before this one.
                storage().remove_tree(known)
                self._stored.discard(place)
            if chunks:
                due[name] = chunks
            else:
                due.pop(name, None)
        kept = {file_name(name) for name in plan.queries}
        for place in [place for place in self._stored if place not in kept]:
            storage().remove_tree(self._root / place)
            self._stored.discard(place)
        return due

    def _write(self, place: Path, batch: int, identity: str, late: Sequence[tuple[int, Elements]]) -> None:
        """Write the answers that wait after a batch; without such answers write no file."""
        for stale in self._paths(place, batch):
            storage().remove(stale)
        for number, (shard, elements) in enumerate(late):
            path = place / f"{batch:09d}-{identity}-{number}-{shard}.arrow"
            data = encode([elements.to_batch()])
            self._folder.write_sealed(path.with_suffix(".crc"), str(zlib.crc32(data)))
            write_whole(path, data)

    def _read(self, place: Path, batch: int, identity: str) -> list[tuple[int, list[PendingAnswer]]]:
        """Return what waited after a batch, by shard; nothing of another query that had the name."""
        found: list[tuple[int, list[PendingAnswer]]] = []
        for path in self._paths(place, batch):
            _, key, _, shard = path.stem.split("-", 3)
            if path.suffix == ".arrow" and key == identity:
                found.append((int(shard), [PendingAnswer.of(self._elements(path))]))
        return found

    def _elements(self, path: Path) -> Elements:
        try:
            data = storage().map(path)
            if zlib.crc32(data) != int(self._folder.read_sealed(path.with_suffix(".crc"))):
                raise ValueError("its content does not match its checksum")
            (found,) = decode(data)
            return Elements.from_batch(found)
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise damaged(path, error) from error

    def _paths(self, place: Path, batch: int) -> list[Path]:
        names = [name for name in storage().list(place) if name.startswith(f"{batch:09d}-")]
        return [place / name for name in sorted(names, key=_place_of)]

    def _remove_old(self, place: Path, newest: int) -> None:
        for name in storage().list(place):
            if int(name.split("-", 1)[0]) <= newest:
                storage().remove(place / name)


def _place_of(name: str) -> tuple[int, str]:
    return int(name.split("-")[2]), name


def _identity(plan: Plan, query: str) -> str:
    """Return what distinguishes the answers of a query from those of another one that had its name."""
    return f"{zlib.crc32(step_keys(plan)[plan.output(query).id].encode()):08x}"


def _divided(
    chunks: Sequence[tuple[int, Sequence[PendingAnswer]]], tick: int
) -> tuple[list[tuple[int, list[PendingAnswer]]], list[tuple[int, Elements]]]:
    """Return the chunks up to an instant, and what is later."""
    due: list[tuple[int, list[PendingAnswer]]] = []
    late: list[tuple[int, Elements]] = []
    for shard, own in chunks:
        kept: list[PendingAnswer] = []
        for chunk in own:
            # Elements that are due as a whole stay where they lie.
            elements = chunk.take()
            later = elements.ts > tick
            if not later.any():
                kept.append(chunk)
                continue
            late.append((shard, elements.filter(later)))
            if not later.all():
                kept.append(PendingAnswer.of(elements.filter(~later)))
        if kept:
            due.append((shard, kept))
    return due, late
