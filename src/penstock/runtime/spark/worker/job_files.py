"""The job as it travels from the driver to the workers of a start: `job.pickle`, and the parts of its plan beside it.

Each part of the plan (`plan_parts.py`) is a file `plans/<digest>.pickle`, written once; `job.pickle` names those of its
job. So a change writes the parts of the queries that it adds, and a worker reads these alone: it keeps the others, as
the same objects. Where queries leave a part, what is written of it is what differs from a file with all that it had
(`PartRest`), until less than half of those are left: then it is written whole. Spark passes the digest of `job.pickle`
to the workers, which accept no file of other content. All of this is written again at each start, so none of it needs
to survive a loss of power.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import ReferenceType, WeakValueDictionary, ref

from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError
from penstock.expressions.nodes import Call, Expression
from penstock.runtime.spark.checkpoint.folder import Folder, Job, write_whole
from penstock.runtime.spark.worker.pickling import pickled, pickled_beside, unpickled_beside
from penstock.storage import storage
from penstock.tree import derived

if TYPE_CHECKING:
    # Only processes that compute load the compiled operators: importing them takes most of a second.
    from penstock.physical.elements import Elements
    from penstock.physical.plan.plan import Plan

_JOB = "job.pickle"


@dataclass(frozen=True)
class _PartFile:
    """The file of a part of a plan. base: the part that was written whole to which it refers."""

    digest: bytes
    base: Plan | None

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return _name(self.digest)


class _PartFiles:
    """The files of the parts that this process has written or read, as long as it uses these."""

    def __init__(self) -> None:
        self._files: dict[int, tuple[ReferenceType[Plan], _PartFile]] = {}

    def get(self, part: Plan) -> _PartFile | None:
        """Return the file of a part; None where it has been neither written nor read."""
        known = self._files.get(id(part))
        return None if known is None else known[1]

    def note(self, part: Plan, file: _PartFile) -> None:
        """Note the file of a part. A part has one only: it would be pickled again otherwise."""
        files, number = self._files, id(part)
        files[number] = ref(part, lambda _: files.pop(number, None)), file


_FILES = _PartFiles()


@dataclass(frozen=True)
class _Outline:
    """A job without the parts of its plan.

    Args:
        job: with an empty plan.
        parts: the digests of the parts, in their order; None where the plan has none and is in `job`.
        sources: of the whole plan, also those that no part reads. Their declarations may be later ones.
    """

    job: Job
    parts: tuple[bytes, ...] | None
    sources: dict[str, Source]


def write_job(folder: Folder, job: Job) -> str:
    """Write `job` for the workers of this start, with those parts of its plan that are new; return the digest by which
    they verify it. Raises PenstockError P0601.
    """
    from penstock.physical.plan.plan import Plan

    outline = _Outline(job, None, {})
    if job.plan.parts is not None:
        there = set(storage().list(folder.root / "plans"))
        digests = tuple(_written(folder, part, there) for part in job.plan.parts)
        outline = _Outline(replace(job, plan=Plan((), {}, {}, keys=job.plan.keys)), digests, job.plan.sources)
    data = pickled(outline)
    write_whole(folder.root / _JOB, data, durable=False)
    return hashlib.sha256(data).hexdigest()


def _written(folder: Folder, part: Plan, there: set[str]) -> bytes:
    """Return the digest of a part of a plan, and write it unless it is there."""
    from penstock.physical.planning.plan_parts import rest_of

    known = _FILES.get(part)
    if known is not None and known.name in there:
        return known.digest
    place = str(folder.root), part.births
    base = _WHOLE.get(place)
    whole = None if base is None else _FILES.get(base)
    rest = None if base is None or whole is None or whole.name not in there else rest_of(part, base)
    if base is not None and whole is not None and rest is not None:
        data = pickle.dumps((whole.digest, pickled_beside(rest, _conditions_in(base))))
    else:
        base = None
        data = pickle.dumps((None, pickled(part)))
        _WHOLE[place] = part
    file = _PartFile(hashlib.sha256(data).digest(), base)
    _FILES.note(part, file)
    write_whole(folder.root / "plans" / file.name, data, durable=False)
    return file.digest


#: By the folder of a job and the births of a part, the one that was written whole last. Those that refer to it keep it.
_WHOLE: WeakValueDictionary[tuple[str, frozenset[int]], Plan] = WeakValueDictionary()


@derived
def _conditions_in(part: Plan) -> dict[int, object]:
    """Return, by `id`, the places of the conditions of a part: that of another part has most of them."""
    return {id(one): place for place, one in _placed_conditions(part).items()}


def _placed_conditions(part: Plan) -> dict[tuple[str, int], Expression]:
    """Return the conditions of a part, those within others included."""
    return {
        (source, place): one
        for source, condition in part.source_predicates.items()
        for place, one in enumerate(_within(condition))
    }


def _within(condition: Expression) -> Iterator[Expression]:
    """Return a condition, and those that it is put together of, in an order that follows from it."""
    waiting: list[Expression] = [condition]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, Call) and one.function == "OR":
            waiting += one.arguments


def _name(digest: bytes) -> str:
    return f"{digest.hex()}.pickle"


def forget_parts(folder: Folder, job: Job) -> None:
    """Remove the parts of plans that `job`, which this process has written, does not have."""
    files = [file for part in job.plan.pieces if (file := _FILES.get(part)) is not None]
    files += [file for one in files if one.base is not None and (file := _FILES.get(one.base)) is not None]
    kept = {file.name for file in files}
    for name in storage().list(folder.root / "plans"):
        if name not in kept:
            storage().remove(folder.root / "plans" / name)


def forget_jobs(folder: Folder) -> None:
    """Remove what an earlier start wrote: it may not be whole."""
    storage().remove_tree(folder.root / "plans")


@contextmanager
def job_kept_on_failure(folder: Folder) -> Iterator[None]:
    """Restore the job that workers read if what would replace it fails. Its parts are still there."""
    path = folder.root / _JOB
    before = storage().read(path)
    try:
        yield
    except BaseException:
        write_whole(path, before, durable=False)
        raise


def read_job(folder: Folder, digest: str) -> Job:
    """Return the job with this digest. Raises PenstockError P0605 where it is not there."""
    outline = pickle.loads(_verified(folder.root / _JOB, bytes.fromhex(digest)))
    assert isinstance(outline, _Outline), "the digest is that of a job"
    if outline.parts is None:
        return outline.job
    from penstock.physical.planning.plan_parts import joined, with_standing

    known = _PARTS.get(str(folder.root), {})
    parts = {name: known[name] if name in known else _read_part(folder, name, known) for name in outline.parts}
    _PARTS[str(folder.root)] = parts
    plan = with_standing(joined(list(parts.values()), outline.job.plan.keys), outline.sources.values())
    return replace(outline.job, plan=replace(plan, sources=outline.sources))


#: By the folder of a job, the parts of the plan that this process has read last, by their digests.
_PARTS: dict[str, dict[bytes, Plan]] = {}


def _read_part(folder: Folder, digest: bytes, known: Mapping[bytes, Plan]) -> Plan:
    """Return a part of a plan. known: those that were read last, and what they refer to."""
    former, content = pickle.loads(_verified(folder.root / "plans" / _name(digest), digest))
    if former is None:
        part: Plan = pickle.loads(content)
    else:
        base = known.get(former) or _base_with(former, known.values()) or _read_part(folder, former, {})
        conditions: dict[tuple[str, int], Expression] = {}

        def condition_at(place: tuple[str, int]) -> Expression:
            conditions.update(conditions or _placed_conditions(base))
            return conditions[place]

        part = unpickled_beside(content, condition_at).beside(base)
    _FILES.note(part, _PartFile(digest, None if former is None else base))
    return part


def _base_with(digest: bytes, parts: Iterable[Plan]) -> Plan | None:
    """Return the part with this digest to which one of `parts` refers."""
    bases = (file.base for part in parts if (file := _FILES.get(part)) is not None and file.base is not None)
    return next((base for base in bases if (file := _FILES.get(base)) is not None and file.digest == digest), None)


def _verified(path: Path, digest: bytes) -> bytes:
    data = storage().read(path)
    if hashlib.sha256(data).digest() != digest:
        raise PenstockError(
            "P0605",
            f"{path} is not what this run wrote",
            hint="start again; only one run at a time can use a checkpoint",
        )
    return data


@lru_cache(maxsize=8)
def load_job(root: str, digest: str) -> tuple[Job, dict[str, Elements]]:
    """Return the job and its tables, loaded once per worker process. digest: of the job, passed by the driver."""
    folder = Folder(root)
    job = read_job(folder, digest)
    return job, folder.read_tables(job.plan.statics)
