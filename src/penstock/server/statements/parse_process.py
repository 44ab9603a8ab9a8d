"""The process that parses large scripts; `parsing.py` starts it.

It reads texts from its standard input and answers on its standard output, with the statements of a script or the errors
that it has, until that ends.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Iterator

from penstock.deep_trees import on_deep_stack
from penstock.errors import PenstockError
from penstock.language.scripts.parse import parse_script
from penstock.language.statements import Statement
from penstock.language.statements.script import Script
from penstock.loading import lazy_pandas
from penstock.results.worker_process import read_message, write_message

#: Characters of the statements that are loaded at once, where they are not one: some milliseconds.
_PART = 2_000


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lazy_pandas.postpone()
    # A tree that grows has no garbage to look for; what is left of a script is freed behind it.
    gc.disable()
    while True:
        try:
            text, parameters = pickle.loads(read_message(sys.stdin.buffer))
            write_message(answers, answered(text, parameters))
        except (EOFError, BrokenPipeError):
            # The calling process has ended.
            return
        gc.collect()


def answered(text: str, parameters: bool = False) -> bytes:
    """Return the statements of a script, or the error that it has, pickled. parameters: as of `parse_script`.
    Statements come in parts, each pickled by itself: who loads a part lets no other thread run meanwhile."""
    found: list[bytes] | PenstockError
    try:
        found = on_deep_stack(lambda: list(_parts(parse_script(text, parameters=parameters))))
    except PenstockError as error:
        found = error
    return pickle.dumps(found)


def _parts(script: Script) -> Iterator[bytes]:
    part: list[Statement] = []
    for statement in script.statements:
        part.append(statement)
        if statement.span.end - part[0].span.start >= _PART:
            yield pickle.dumps(part)
            part = []
    yield pickle.dumps(part)


if __name__ == "__main__":
    main()
