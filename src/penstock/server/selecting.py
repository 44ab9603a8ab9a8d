"""One-time queries over relations and inputs that end.

Rows posted to a relation are its content. Those posted to a stream are read once and not kept, so a query over them is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.sources import open_source
from penstock.control.posted_rows import POSTED, PostedRows
from penstock.errors import PenstockError
from penstock.language.commands import SelectOnce
from penstock.runtime.local.one_time import answer_over, sources_of
from penstock.runtime.local.statics import read_relation

#: Seconds for which idempotency keys of posted rows are kept.
RETENTION = 7 * 86400.0


def select_over(
    command: SelectOnce, sources: Mapping[str, tuple[int, Source]], posted: PostedRows
) -> tuple[pa.Table, int | None]:
    """Return the rows of a one-time query, and their instant.

    Args:
        sources: by name in lower case, number and declaration of each.
        posted: the rows that were posted.

    Raises:
        PenstockError: P0711 for a stream whose rows are not kept, P0622 for an input without an end.
    """
    inputs: dict[str, pa.Table] = {}
    for name, source in sources_of(command.query).items():
        known = sources.get(name.lower())
        if source.connector in POSTED and known is not None:
            if source.is_stream:
                hint = "subscribe to a query over it, or read a relation"
                raise PenstockError("P0711", f"the rows of stream {name} are not kept", hint=hint)
            inputs[name] = posted.table(source, known[0])
            continue
        if not open_source(source).bounded:
            hint = "subscribe to a query over it"
            raise PenstockError("P0622", f"{name} has no end, so its rows cannot be had all at once", hint=hint)
        inputs[name] = read_relation(source)[0]
    answer = answer_over(command.query, inputs)
    return answer.table, answer.tick
