"""Limits of memory: of one-time queries, in a process beside the run and in the tasks of a job on Spark; of workers."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import PenstockError
from penstock.runtime.allocation import freed
from penstock.runtime.result_limits import memory_of_machine


@contextmanager
def limited(memory: int) -> Iterator[None]:
    """Let this process take `memory` bytes more than it uses. Mapped files do not count. Raises PenstockError P0724
    where what is done meanwhile needs more."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (max(0, _data() - freed()) + memory, before[1]))
    try:
        yield
    except MemoryError:
        raise too_large(memory) from None
    except OSError as error:
        # The system reports it so to code outside Python's allocator: an import that lists a folder, a mapped file.
        if error.errno == errno.ENOMEM:
            raise too_large(memory) from None
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def limit_worker() -> None:
    """Let this process, and each that it forks, take no more than its part of the machine's memory. What needs more in
    a worker fails, and ends its query alone; otherwise the system would end the worker, and with it the run."""
    part = memory_of_machine() * 4 // 5 // min(2, os.cpu_count() or 1)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    known = [one for one in before if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([part, *known]), before[1]))


def too_large(memory: int) -> PenstockError:
    """Return the error for a query that needs more than `memory` bytes."""
    return PenstockError(
        "P0724",
        f"the query needs more than {memory:,} bytes of memory",
        hint="read a shorter window, fewer sources, or raise snapshot_memory",
    )


def _data() -> int:
    """Return the bytes of private memory that this process may write."""
    with Path("/proc/self/status").open(encoding="ascii") as status:
        sizes = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("VmData")}
    return int(sizes["VmData"]) * 1024
