"""The process that computes one-time queries; `select_workers.py` starts it.

It reads requests from its standard input and answers on its standard output until that ends. What a query prints goes
to standard error.
"""

from __future__ import annotations

import errno
import os
import pickle
import select
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.language.scripts import SelectOnce, bind_script
from penstock.loading import lazy_pandas
from penstock.results.select_workers import SelectRequest, no_room, write_rows
from penstock.results.worker_process import read_message, write_message
from penstock.runtime.allocation import arrow_by_malloc, keep_freed, release
from penstock.runtime.local.one_time import OneTimeAnswer, answer_once, answer_over
from penstock.runtime.memory_limit import limited

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
            # The calling process has ended.
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
    except PenstockError as error:
        return error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return no_room(error)
        return PenstockError("P0601", f"the query failed: {type(error).__name__}: {error}", cause=error)
    # The query may hold code that only the other process can load.
    return replace(answer, query=None, table=pa.table({}))  # type: ignore[arg-type]  # the caller puts its own back


if __name__ == "__main__":
    main()
