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
    found = report(checkpoint)
    if as_json:
        return json.dumps(found.as_json(per_shard), indent=1, ensure_ascii=False) + "\n"
    return "".join(line.rstrip() + "\n" for line in _lines(found, per_shard))


def _lines(found: StateReport, per_shard: bool) -> Iterator[str]:
    batch = f"batch {found.batch} delivered" if found.batch >= 0 else "no batch delivered yet"
    changed = f", script changed {counted(found.epoch, 'time')}, last at batch {found.base}" if found.epoch else ""
    yield f"{found.checkpoint}: {batch}, {counted(found.shards, 'shard')}{changed}"
    for query, operators in found.queries.items():
        total = found.total(query)
        since = f", since epoch {found.births[query]}" if found.births[query] else ""
        yield ""
        yield f"query {query}: {counted(total.rows, 'row')}, {counted(total.bytes, 'byte')}{since}"
        rows = [_HEAD] if operators else []
        for one in operators:
            shared = f" (also of {', '.join(q for q in one.queries if q != query)})" if len(one.queries) > 1 else ""
            rows.append((str(one.step), one.operator + shared, one.state, *_cells(found, query, one.total)))
            for shard, held in sorted(one.shards.items()) if per_shard else ():
                rows.append(("", f"  shard {shard}", "", *_cells(found, query, held)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))] if rows else []
        for row in rows:
            cells = [
                c.rjust(w) if 3 <= i <= 5 or i == 0 else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            ]
            yield "  " + "  ".join(cells)


def _cells(found: StateReport, query: str, held: StoredState) -> tuple[str, str, str, str, str]:
    due = "due " if held.kind == "due" and held.oldest is not None else ""
    oldest, newest = (f"{due}{found.shown(query, tick)}" for tick in (held.oldest, held.newest))
    return f"{held.rows:,}", f"{held.bytes:,}", str(held.chunks), oldest, newest
