"""How much of the answers of queries may be computed and not delivered, in memory and on disk (`result_limit`).

Most answers are emitted in portions (`physical/execution/portions.py`) and never come near these limits. What cannot be
divided, as the pairs of a join at one instant, would fill memory and disk: such a query fails alone with P0634. What an
operator emits to others waits in the memory of its worker, so it has a limit by this memory too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import PenstockError

#: The parts of the free disk that one query and all queries may take.
_ONE, _ALL = 10, 4
#: The part of a machine's memory that the rows may take which one operator emits to others in a round, in all shards.
_IN_MEMORY = 10


@dataclass(frozen=True)
class ResultLimits:
    """Limits in bytes; None for none.

    Args:
        each: of a query that has no limit of its own.
        together: of all queries.
        own: by query.
    """

    each: int | None = None
    together: int | None = None
    own: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(setting: int, free: int, own: Mapping[str, int]) -> ResultLimits:
        """Return the limits of a run. setting: `result_limit`; free: bytes of the disk that are free."""
        return ResultLimits(setting or free // _ONE, free // _ALL, own)

    def of_query(self, query: str) -> int | None:
        """Return the limit of a query."""
        return self.own.get(query, self.each)

    def between_operators(self, shards: int, memory: int | None = None) -> tuple[int | None, str]:
        """Return how many bytes an operator may emit to others in a round in one of `shards` shards, None for any
        number, and the name of the limit. memory: of the machine; None for that of this one."""
        if self.each is None:
            return None, ""
        at_once = min(shards, os.cpu_count() or 1)
        kept, fitting = self.each // shards, (memory or memory_of_machine()) // _IN_MEMORY // at_once
        return (kept, "result_limit") if kept <= fitting else (fitting, "what fits in memory")

    def exceeded(self, waiting: Mapping[str, int], shards: int = 1) -> str | None:
        """Return the query that has to fail, None for none. waiting: bytes by query, in one of `shards` shards."""
        for query, size in waiting.items():
            limit = self.of_query(query)
            if limit is not None and size * shards > limit:
                return query
        if self.together is not None and sum(waiting.values()) * shards > self.together:
            return max(waiting, key=lambda query: waiting[query])
        return None

    def error(self, query: str, size: int) -> PenstockError:
        """Return the error of a query of whose answers `size` bytes wait."""
        limit = self.of_query(query)
        allowed = self.together if limit is None or size <= limit else limit
        whose = "all queries together" if allowed == self.together and allowed != limit else "the query"
        return PenstockError(
            "P0634",
            f"{size:,} bytes of its answers were computed and not delivered, and {whose} may have"
            f" {allowed or 0:,} (result_limit)",
            hint="a narrower join, a shorter window or a longer SLIDE; or ALTER QUERY .. SET (result_limit '..')",
        )


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, or of the nearest one above that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def memory_of_machine() -> int:
    """Return the bytes of memory of this machine, or of the container in which this process runs."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        # A container without a limit has a word there, or a number beyond all memory.
        with suppress(OSError, ValueError):
            found.append(int(Path(place).read_text(encoding="ascii")))
    return min(found)
