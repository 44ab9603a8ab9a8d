"""Answers of silent queries: these run, so that their state stays, and their sinks receive nothing.

When a query is shown again, a stream emits its instants after the heartbeat of that moment, and a relation the net
difference of its content to what was emitted before, at that heartbeat, and then its later changes. What that takes is
kept after every batch in `withheld/<query>/<batch>.arrow`; a batch that is repeated starts from the file before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.physical.elements import Elements, concat, decode, encode
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.live.content import net
from penstock.runtime.spark.checkpoint.epochs import Epoch
from penstock.runtime.spark.checkpoint.folder import Folder, Job, write_whole
from penstock.runtime.spark.output.answer_writer import PendingAnswer
from penstock.storage import storage
from penstock.storage.names import file_name
from penstock.storage.seals import damaged

#: By query the answer chunks of each shard.
Answers = Mapping[str, Sequence[tuple[int, Sequence[PendingAnswer]]]]
#: Files kept of each query: the last batch may be repeated.
_KEPT = 2


def shown_answers(
    folder: Folder, epoch: Epoch, job: Job, answers: Answers, heartbeats: Mapping[str, int], batch: int
) -> Answers:
    """Withhold the answers of silent queries; return the others, in the first batch of an epoch after what was withheld
    of the queries that it shows again.

    Args:
        heartbeats: of the queries after the batch.
    """
    withheld = WithheldAnswers(folder)
    shown = dict(answers)
    for name, first in epoch.silent.items():
        chunks = [chunk for _, by_shard in shown.pop(name, ()) for chunk in by_shard]
        tick = heartbeats.get(name, NOTHING)
        withheld.add(job.plan.queries[name], first, batch, [chunk.take() for chunk in chunks], tick)
    for name, first in epoch.shown.items() if batch == epoch.base else ():
        before = withheld.read(name, first, batch)
        if before is not None and len(before):
            shown[name] = [(job.keys[0], [PendingAnswer.of(before)]), *shown.get(name, ())]
    return shown


class WithheldAnswers:
    """The answers that one checkpoint withholds."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def add(self, query: Query, first: int, batch: int, parts: Sequence[Elements], heartbeat: int) -> None:
        """Add the answer of a batch to what is withheld of `query` since the batch `first`.

        Args:
            heartbeat: of the query after the batch.
        """
        before = self.read(query.name, first, batch)
        types = query.root.schema.types
        every = [] if before is None else [before]
        for part in parts:
            columns = [c if c.type == t else c.cast(t) for c, t in zip(part.columns, types, strict=True)]
            every.append(part.with_columns(columns))
        if not every:
            return
        whole = concat(every)
        later = whole.filter(whole.ts > heartbeat)
        if not query.root.is_stream:
            changes = net([whole.filter(whole.ts <= heartbeat)])
            at = np.full(len(changes), heartbeat, np.int64)
            later = concat([Elements(changes.columns, at, changes.exp, changes.signs), later])
        place = self._place(query.name)
        data = encode([later.to_batch()])
        path = place / f"{batch:09d}.arrow"
        self._folder.write_sealed(path.with_suffix(".crc"), str(zlib.crc32(data)))
        write_whole(path, data)
        for number in self._batches(place)[:-_KEPT]:
            storage().remove(place / f"{number:09d}.arrow")
            storage().remove(place / f"{number:09d}.crc")

    def read(self, query: str, first: int, batch: int) -> Elements | None:
        """Return what is withheld of a query between the batches `first` and `batch`, None for nothing. Raises
        PenstockError P0605 for a damaged file.
        """
        place = self._place(query)
        numbers = [number for number in self._batches(place) if first <= number < batch]
        if not numbers:
            return None
        path = place / f"{numbers[-1]:09d}.arrow"
        try:
            data = storage().map(path)
            if zlib.crc32(data) != int(self._folder.read_sealed(path.with_suffix(".crc"))):
                raise ValueError("its content does not match its checksum")
            (content,) = decode(data)
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise damaged(path, error) from error
        return Elements.from_batch(content)

    def keep_only(self, epoch: Epoch) -> None:
        """Remove what is withheld of other queries than those that `epoch` needs."""
        kept = {file_name(query) for query in (*epoch.silent, *epoch.shown)}
        root = self._folder.root / "withheld"
        for name in storage().list(root):
            if name not in kept:
                storage().remove_tree(root / name)

    def _place(self, query: str) -> Path:
        return self._folder.root / "withheld" / file_name(query)

    @staticmethod
    def _batches(place: Path) -> list[int]:
        stems = (name.removesuffix(".arrow") for name in storage().list(place) if name.endswith(".arrow"))
        return sorted(int(stem) for stem in stems if stem.isdigit())
