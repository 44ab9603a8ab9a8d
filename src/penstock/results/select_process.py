"""The process that computes one-time queries; `select_workers.py` starts it.

It reads requests from its standard input and answers on its standard output until that ends. What a query prints goes
to standard error.
"""

from __future__ import annotations

import errno
import os
import pickle
import resource
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock import lazy_pandas
from penstock.errors import PenstockError
from penstock.language import SelectOnce, bind_script
from penstock.results.select_workers import (
    SelectRequest,
    no_room,
    read_message,
    too_large,
    write_message,
    write_rows,
)
from penstock.runtime.allocation import arrow_by_malloc, freed, keep_freed, release
from penstock.runtime.local.one_time import OneTimeAnswer, answer_once, answer_over

#: Seconds without a query after which memory that is kept for the next one is returned.
_IDLE = 10.0


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lazy_pandas.postpone()
    arrow_by_malloc()
    keep_freed()
    load_operators()
    while True:
        if not select.select([sys.stdin], [], [], _IDLE)[0]:
            release()
        try:
            request = pickle.loads(read_message(sys.stdin.buffer))
            write_message(answers, pickle.dumps(answered(request)))
        except (EOFError, BrokenPipeError):
            # The process that asked has ended.
            return


def load_operators() -> None:
    """Load what most queries use, which then takes neither the time nor the memory of the first one."""
    rows = "(" + "), (".join(f"{tick}, 'k', {tick}" for tick in range(4)) + ")"
    script = bind_script(f"""
        CREATE STREAM s (ts INT, k STRING, x INT) FROM MEMORY () TIMESTAMP BY ts; INSERT INTO s VALUES {rows};
        SELECT k, SUM(x), MAX(x) FROM s [RANGE 2 SECONDS] GROUP BY k;
        SELECT DISTINCT a.k FROM s [ROWS 2] AS a, s AS b WHERE a.k = b.k ORDER BY k LIMIT 1""")
    for action in script.actions:
        if isinstance(action, SelectOnce):
            answer_once(action.query, action.memory, {})


def answered(request: SelectRequest) -> OneTimeAnswer | PenstockError:
    """Return the answer of a request, its rows in a file, or the error that it ends with."""
    try:
        with limited(request.memory):
            query, inputs = pickle.loads(request.work)
            tables = {name: rows.table() for name, rows in inputs.items()}
            answer = answer_over(query, tables, request.strategy)
            write_rows(answer.table, Path(request.output))
    except MemoryError:
        return too_large(request.memory)
    except PenstockError as error:
        return error
    except Exception as error:
        # So the system says it to what is not Python's own: an import that lists a folder, a file that is mapped.
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return too_large(request.memory)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return no_room(error)
        return PenstockError("P0601", f"the query failed: {type(error).__name__}: {error}", cause=error)
    # The query may hold code that only the other process can load.
    return replace(answer, query=None, table=pa.table({}))  # type: ignore[arg-type]


@contextmanager
def limited(memory: int) -> Iterator[None]:
    """Let this process take `memory` bytes more than it uses. Mapped files do not count."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (max(0, _data() - freed()) + memory, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data() -> int:
    """Return the bytes of private memory that this process may write."""
    with Path("/proc/self/status").open(encoding="ascii") as status:
        sizes = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("VmData")}
    return int(sizes["VmData"]) * 1024


if __name__ == "__main__":
    main()
