"""Which of the retained elements of a stream its checks have rejected.

`rejected/<source>/` holds the rejected rows with all declared columns, as `retained/<source>/` holds the elements: a
file for each round in which some were rejected, which is merged with others and removed as these are
(`retained_log.py`). A column has the name of the promise. A check judges a row when the heartbeat has reached it, so
its file may be that of a later round than the one that retained it; the files of rounds up to the delivered one have
all verdicts up to the heartbeat there.

Contract: the files of a round are written before it counts as delivered; those of an interrupted one are removed at the
next start (`retention.py`), and the round writes them again. Verdicts are recorded while all checks of the stream stand
beside its queries (`judged_streams`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import RejectedScan, Source
from penstock.algebra.properties.promises import PromiseMode
from penstock.physical.elements import Elements, Int64s, concat, encoded
from penstock.physical.operators.checks.unrejected import unbroken
from penstock.runtime.spark.checkpoint.folder import Folder, write_whole
from penstock.runtime.spark.retention.file_checksum import checksum
from penstock.runtime.spark.retention.retained_log import TS, RetainedFile, RetainedLog
from penstock.types import END

#: The folder of all streams, in that of the run.
REJECTED = "rejected"
#: Name of the column with the name of the promise.
_PROMISE = "promise"


def judged_streams(sources: Iterable[Source], queries: Iterable[Query]) -> frozenset[str]:
    """Return the names of the streams all of whose promises that are CHECKED are checked beside the queries, so that
    what is rejected is known."""
    standing: dict[str, set[str]] = {}
    for query in queries:
        if isinstance(query.root, RejectedScan):
            standing.setdefault(query.root.source.name, set()).add(query.root.check.name)
    return frozenset(
        source.name
        for source in sources
        if standing.get(source.name, set()).issuperset(
            promise.name for promise in source.promises if promise.mode is PromiseMode.CHECKED
        )
    )


class RejectedLog:
    """The rejected elements of one stream. file: its name in the folder (`epochs.source_file`)."""

    def __init__(self, folder: Folder, file: str) -> None:
        self.log = RetainedLog(folder, file, kind=REJECTED)

    def write(self, round_: int, rejected: Mapping[str, Elements]) -> None:
        """Write what was rejected in a round, by the names of promises. Raises PenstockError P0601."""
        rows = concat([*rejected.values()])
        names = [f"c{i}" for i in range(len(rows.columns))]
        promises = pa.concat_arrays([pa.repeat(promise, len(some)) for promise, some in rejected.items()])
        batch = pa.RecordBatch.from_arrays([*rows.columns, pa.array(rows.ts), promises], names=[*names, TS, _PROMISE])
        data = memoryview(encoded([batch]))
        low, high = int(rows.ts.min()), int(rows.ts.max())
        write_whole(self.log.place / RetainedFile(round_, 0, low, high, checksum(data)).name, data)

    def between(self, promise: str, after: int, until: int) -> Elements | None:
        """Return the rows with ticks in (after, until] that the check of a promise has rejected, None for none. Raises
        PenstockError P0605."""
        files = [file for file in self.log.files() if file.high > after and file.low <= until]
        found = by_promise(self.log, files).get(promise)
        if found is None:
            return None
        chosen = found.filter((found.ts > after) & (found.ts <= until))
        return chosen if len(chosen) else None

    def ticks(self, last: int) -> Int64s:
        """Return the ticks of the rows that were rejected in rounds up to `last`, of one that several promises reject
        several times. Raises PenstockError P0605."""
        found = by_promise(self.log, self.log.files(last=last))
        return np.concatenate([np.empty(0, np.int64), *(rows.ts for rows in found.values())])


def by_promise(log: RetainedLog, files: Iterable[RetainedFile]) -> dict[str, Elements]:
    """Return the rejected rows in some files of a `RejectedLog`, by the names of promises."""
    found: dict[str, list[Elements]] = {}
    for batch in (batch for file in files for batch in log.batches(file)):
        names = batch.column(_PROMISE)
        ts = batch.column(TS).to_numpy()
        columns = tuple(batch.column(i) for i, name in enumerate(batch.schema.names) if name.startswith("c"))
        rows = Elements(columns, ts, np.full(len(ts), END, np.int64))
        for promise in names.unique().to_pylist():
            chosen = pc.equal(names, promise).to_numpy(zero_copy_only=False)
            found.setdefault(promise, []).append(rows.filter(chosen))
    return {promise: concat(parts) for promise, parts in found.items()}


def without_rejected(
    log: RetainedLog, files: Iterable[RetainedFile], columns: Sequence[int], rejected: Sequence[Elements], width: int
) -> Iterator[Elements]:
    """Yield the retained elements in some files without the rejected ones; those of an instant in the order of arrival.

    Args:
        columns: positions of the declared columns that they have.
        rejected: the rows that each of several checks rejects.
        width: the number of declared columns.
    """
    ticks = np.unique(np.concatenate([np.empty(0, np.int64), *(rows.ts for rows in rejected)]))
    whole = range(width)
    # Of equal rows some may be left, wherever they lie.
    judged: list[Elements] = []
    for file in files:
        first, stop = np.searchsorted(ticks, [file.low, file.high + 1])
        if first == stop:
            yield from log.read(file, columns)
            continue
        for part in log.read(file, whole):
            concerned = np.isin(part.ts, ticks)
            judged.append(part.filter(concerned))
            others = part.filter(~concerned)
            yield others.with_columns([others.columns[i] for i in columns])
    if judged:
        rows = concat(judged)
        left = rows.filter(unbroken(rows, list(rejected)))
        yield left.with_columns([left.columns[i] for i in columns])
