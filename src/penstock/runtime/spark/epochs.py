"""What a run has been since when: an epoch begins whenever its script changes.

`epochs/<n>.json` tells, for people and for the next start, which queries the run answers since the batch `base`: the
text of each, the fingerprint of what it computes, the epoch in which it began, its operators with the keys that their
state goes by, and the same of the sources. It is data, sealed with a checksum, written whole before anything of the
epoch runs; from then on the epoch exists. What an epoch before left stays until the second batch of the new one is
delivered, for only then is the first one committed.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.algebra.statistics import SourceStatistics, Statistics
from penstock.connectors.seals import damaged
from penstock.errors import PenstockError
from penstock.runtime.spark.folder import Folder, Job, write_whole

#: The layout of these files.
FORMAT = 1


@dataclass(frozen=True)
class QueryRecord:
    """fingerprint: of what the query computes; birth: the epoch in which it began; sink: of where its answer goes and
    of its columns; text: as it was written, secrets left out; operators: its steps, for people; unit, calendar: of its
    time domain."""

    fingerprint: str
    birth: int
    sink: str
    text: str
    operators: list[dict[str, Any]]
    unit: str = "MICROSECOND"
    calendar: bool = True


@dataclass(frozen=True)
class SourceRecord:
    """fingerprint: of the declaration and its rows; birth: the epoch in which it was first read; static: read once."""

    fingerprint: str
    birth: int
    static: bool = False


@dataclass(frozen=True)
class Epoch:
    """base: its first batch; statistics: by birth, what was known of the sources, and the panes that were shared;
    offset: where its sources go on, None for the beginning; backfill: queries that read their past first; frames:
    sources that Spark reads."""

    number: int
    base: int
    queries: dict[str, QueryRecord]
    sources: dict[str, SourceRecord]
    stages: int
    shards: int
    strategy: str
    drain: bool
    state_store: str
    statistics: dict[str, Any]
    offset: dict[str, Any] | None = None
    backfill: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)

    def statistics_of(self, birth: int) -> Statistics:
        """What was known when the queries of `birth` were planned."""
        given = self.statistics[str(birth)]
        return Statistics({n: SourceStatistics(**s) for n, s in given["sources"].items()}, given["shards"])

    def grains_of(self, birth: int) -> dict[str, int]:
        """The panes that the queries of `birth` were planned to share."""
        found: dict[str, int] = self.statistics[str(birth)]["grains"]
        return found

    @property
    def births(self) -> dict[str, int]:
        """The sources that did not begin with the run."""
        return {name: record.birth for name, record in self.sources.items() if record.birth}


def statistics_as_json(statistics: Statistics, grains: Mapping[str, int]) -> dict[str, Any]:
    sources = {n: {"rate": s.rate, "distinct": dict(s.distinct)} for n, s in statistics.sources.items()}
    return {"sources": sources, "shards": statistics.shards, "grains": dict(grains)}


def write_epoch(folder: Folder, epoch: Epoch) -> None:
    told = asdict(epoch)
    text = json.dumps({"format": FORMAT, "checksum": _checksum(told), "epoch": told}, indent=1)
    write_whole(_path(folder, epoch.number), text.encode() + b"\n")


def read_epoch(folder: Folder, number: int) -> Epoch:
    """Raises PenstockError P0605 for one that is damaged or of another format."""
    path = _path(folder, number)
    try:
        given = json.loads(path.read_text())
        if given["format"] == FORMAT and given["checksum"] != _checksum(given["epoch"]):
            raise ValueError("it is not what was written")
        version, told = given["format"], given["epoch"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    if version != FORMAT:
        raise other_version(folder, f"its epochs have format {version}, this version reads format {FORMAT}")
    queries = {n: QueryRecord(**q) for n, q in told.pop("queries").items()}
    sources = {n: SourceRecord(**s) for n, s in told.pop("sources").items()}
    return Epoch(queries=queries, sources=sources, **told)


def other_version(folder: Folder, what: str) -> PenstockError:
    return PenstockError(
        "P0605", f"the checkpoint {folder.root.parent} was written by another version: {what}",
        hint="go on with the version that wrote it, or start afresh with a new --checkpoint",
    )  # fmt: skip


def epoch_numbers(folder: Folder) -> list[int]:
    """Oldest first."""
    return sorted(int(p.stem) for p in (folder.root / "epochs").glob("*.json") if p.stem.isdigit())


def latest_epoch(folder: Folder) -> Epoch | None:
    """The epoch that began last. Raises PenstockError P0605 for a checkpoint that this version cannot read."""
    numbers = epoch_numbers(folder)
    if numbers:
        return read_epoch(folder, numbers[-1])
    if (folder.root / "identity.json").exists() or (folder.root / "state").exists():
        raise other_version(folder, "it does not tell its queries")
    return None


def delivered(folder: Folder) -> dict[str, int]:
    """The round and the batch whose answers came last to the sinks; round 0 and batch -1 before the first."""
    found: dict[str, int] = folder.read_mark("delivered") or {"round": 0, "batch": -1}
    return found


def is_committed(folder: Folder, epoch: Epoch) -> bool:
    """Whether any batch of `epoch` has come to the sinks."""
    if epoch.frames:
        # Batches of what Spark reads may have no round.
        return folder.read_mark("totals") is not None
    return delivered(folder)["batch"] >= epoch.base


def spark_place(checkpoint: Path, epoch: int) -> Path:
    """Spark's own checkpoint of an epoch: its log fits one set of inputs."""
    return checkpoint / ("spark" if not epoch else f"spark-{epoch}")


def check_log(folder: Folder, log: Path, base: int) -> None:
    """Raises PenstockError P0605 where Spark's `log` of an epoch that begins with batch `base` does not tell the batch
    that was delivered last: Spark would begin anew."""
    due = delivered(folder)["batch"] - base
    told = max((int(p.name) for p in (log / "offsets").glob("*") if p.name.isdigit()), default=-1)
    if told < due:
        raise damaged(log, FileNotFoundError(f"it does not tell of batch {base + due}, which was delivered"))


def offset_mark(epoch: int) -> str:
    return f"offset-{epoch}"


def rounds_place(folder: Folder, epoch: int) -> Path:
    return folder.root / "rounds" / f"{epoch:04d}"


def source_file(name: str, births: Mapping[str, int]) -> str:
    """What the splits of a source are kept under: one that was declared anew begins anew."""
    birth = births.get(name, 0)
    return f"{name}@{birth}" if birth else name


def forget_older(folder: Folder, checkpoint: Path, job: Job, sources: Collection[str]) -> None:
    """Remove what the epochs before that of `job` have left, once its first batch is committed."""
    for number in (n for n in epoch_numbers(folder) if n < job.epoch):
        shutil.rmtree(spark_place(checkpoint, number), ignore_errors=True)
        shutil.rmtree(rounds_place(folder, number), ignore_errors=True)
        (folder.root / f"{offset_mark(number)}.json").unlink(missing_ok=True)
        _path(folder, number).unlink(missing_ok=True)
    shutil.rmtree(folder.root / "backfill", ignore_errors=True)
    kept = {source_file(name, job.intake.births) for name in sources}
    for path in (folder.root / "splits").glob("*.json"):
        if path.stem not in kept:
            path.unlink()
    for path in (folder.root / "tables").glob("*"):
        if path.stem not in job.plan.statics:
            path.unlink()
    for path in (folder.root / "state").glob("*"):
        if int(path.name) > job.plan.stages:
            shutil.rmtree(path, ignore_errors=True)


def forget_all(folder: Folder, checkpoint: Path) -> None:
    """Begin anew: nothing of the run has come to its sinks yet."""
    for number in epoch_numbers(folder) or [0]:
        shutil.rmtree(spark_place(checkpoint, number), ignore_errors=True)
    shutil.rmtree(folder.root, ignore_errors=True)


def _path(folder: Folder, number: int) -> Path:
    return folder.root / "epochs" / f"{number:04d}.json"


def _checksum(told: Any) -> str:
    return f"{zlib.crc32(json.dumps(told, sort_keys=True).encode()):08x}"
