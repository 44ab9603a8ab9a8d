"""The small state of a stage in one shard, beside its synopses, and its form as JSON.

Contract: `as_json` and `from_json` alone know the form; `StageMarks.from_json(x.as_json()) == x`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.physical.execution.progress import SourceProgress
from penstock.physical.synopses.contract import SynopsisSnapshot
from penstock.storage.documents import Document, as_array, as_document, nested, optional_integer


@dataclass(frozen=True)
class StageMarks:
    """The small state of a stage.

    Args:
        progress: by source, what has been seen of it.
        firsts: by epoch in which steps were added, the first timestamp of each source since then.
        operators: by key of a step, the marks of its operator, where it has any.
    """

    progress: Mapping[str, SourceProgress]
    firsts: Mapping[int, Mapping[str, int | None]]
    operators: Mapping[str, Document]

    def as_json(self) -> Document:
        """Return the marks as JSON."""
        return {
            "progress": {name: p.as_list() for name, p in self.progress.items()},
            "firsts": {str(birth): dict(firsts) for birth, firsts in self.firsts.items()},
            "operators": dict(self.operators),
        }

    @staticmethod
    def from_json(fields: Document) -> StageMarks:
        """Return the marks that `as_json` wrote."""
        births = {int(birth): as_document(firsts, "firsts") for birth, firsts in nested(fields, "firsts").items()}
        return StageMarks(
            {n: SourceProgress.from_list(as_array(p, "progress")) for n, p in nested(fields, "progress").items()},
            {birth: {n: optional_integer(firsts, n) for n in firsts} for birth, firsts in births.items()},
            {key: as_document(marks, "operators") for key, marks in nested(fields, "operators").items()},
        )


@dataclass(frozen=True)
class ExecutorSnapshot:
    """The state of a stage in a shard. marks: the small state; synopses: by name. Nothing changes it."""

    marks: StageMarks
    synopses: Mapping[str, SynopsisSnapshot]
