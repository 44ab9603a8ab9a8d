"""`penstock state`: the state of a checkpoint as a table or as JSON, on standard output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import counted
from penstock.runtime.spark.checkpoint.state_report import StateReport, StoredState, report

_HEAD = ("step", "operator", "state", "rows", "bytes", "chunks", "oldest", "newest")


def state_text(checkpoint: Path, as_json: bool, per_shard: bool) -> str:
    """Return a report of what the checkpoint holds. Raises PenstockError P0605, P0608."""
    state = report(checkpoint)
    if as_json:
        return json.dumps(state.as_json(per_shard), indent=1, ensure_ascii=False) + "\n"
    return "".join(line.rstrip() + "\n" for line in _lines(state, per_shard))


def _lines(state: StateReport, per_shard: bool) -> Iterator[str]:
    batch = f"batch {state.batch} delivered" if state.batch >= 0 else "no batch delivered yet"
    changed = f", script changed {counted(state.epoch, 'time')}, last at batch {state.base}" if state.epoch else ""
    yield f"{state.checkpoint}: {batch}, {counted(state.shards, 'shard')}{changed}"
    for query, operators in state.queries.items():
        total = state.total(query)
        since = f", since epoch {state.births[query]}" if state.births[query] else ""
        yield ""
        yield f"query {query}: {counted(total.rows, 'row')}, {counted(total.bytes, 'byte')}{since}"
        rows = [_HEAD] if operators else []
        for operator in operators:
            shared = (
                f" (also of {', '.join(q for q in operator.queries if q != query)})"
                if len(operator.queries) > 1
                else ""
            )
            rows.append(
                (str(operator.step), operator.operator + shared, operator.state, *_cells(state, query, operator.total))
            )
            for shard, stored in sorted(operator.shards.items()) if per_shard else ():
                rows.append(("", f"  shard {shard}", "", *_cells(state, query, stored)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))] if rows else []
        for row in rows:
            cells = [
                c.rjust(w) if 3 <= i <= 5 or i == 0 else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            ]
            yield "  " + "  ".join(cells)


def _cells(state: StateReport, query: str, stored: StoredState) -> tuple[str, str, str, str, str]:
    due = "due " if stored.kind == "due" and stored.oldest is not None else ""
    oldest, newest = (f"{due}{state.shown(query, tick)}" for tick in (stored.oldest, stored.newest))
    return f"{stored.rows:,}", f"{stored.bytes:,}", str(stored.chunks), oldest, newest
