"""The page docs/control-relations.md, printed from the registry.

`python -m penstock.control.entities.page > docs/control-relations.md` updates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from penstock.control.entities.attributes import Attribute, ControlRelation, Origin
from penstock.control.entities.relations import CONTROL_RELATIONS
from penstock.types import type_name

_HEAD = """# Control relations

Printed from the registry in `src/penstock/control/entities` by `python -m penstock.control.entities.page`; a test
keeps it current.

The state of a server is in relations of the schema `penstock`. A one-time SELECT reads them as any other
relation, and joins them with each other and with data:

```sql
SELECT q.name, q.state_bytes, q.lag FROM penstock.queries q WHERE q.state = 'RUNNING' ORDER BY q.state_bytes DESC;
SELECT o.kind, s.shard, s.rows_in FROM penstock.operators o JOIN penstock.operator_shards s ON s.operator = o.id;
SELECT operator, COUNT(*) AS readers FROM penstock.query_operators GROUP BY operator HAVING COUNT(*) > 1;
```

All that a SELECT reads of them is of one moment, and figures are those of the last batch. Counts and seconds of
operators are since the start of the process. A value that is not known is NULL. Continuous queries do not read
control relations (`P0751`): their rows are no function of the input. They read the stream
[`penstock.batch_log`](#penstockbatch_log), which has a row for each batch, so an alert on the system is a query:

```sql
CREATE QUERY slow AS ISTREAM(SELECT number, seconds FROM penstock.batch_log [NOW] WHERE seconds > 5);
CREATE QUERY falling_behind AS SELECT MIN(backlog_bytes) AS bytes FROM penstock.batch_log [RANGE 10 MINUTES];
```

Its time is the server's clock when a batch ended, so it meets streams whose time is that of the present.

Columns with `*` are settable. An UPDATE is a command: it is executed once, at the boundary of a round, and what it
has set stays over restarts. It stands for the statements that set the same, whose errors it has, and for the role
that they need. One that changes all rows of a relation where that matters is confirmed with their number (`P0753`);
what cannot be set is `P0752`.

```sql
UPDATE penstock.queries SET comment = 'for the board', on_failure = 'pause' WHERE name LIKE 'report%';
UPDATE penstock.queries SET state = 'PAUSED' CONFIRM 3 ROWS;
UPDATE penstock.streams SET retain = '10 MINUTES' WHERE name = 'readings';
UPDATE penstock.settings SET value = '2 s' WHERE name = 'target_latency';
UPDATE penstock.attributes SET value = 'a note' WHERE entity = 'query:12' AND attribute = 'comment';
```

An *entity* is whatever works or holds something: a query, an operator, a synopsis, a shard. Its id, `kind:key`, is
never used for another one; that of an operator stays as long as it computes the same, also when the plan changes
around it.
"""


def control_relations_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for relation in CONTROL_RELATIONS:
        yield from _section(relation)


def _section(relation: ControlRelation[Any]) -> Iterator[str]:
    yield f"## `{relation.qualified}`\n"
    entities = f" Entities: `{relation.kind}:...`." if relation.kind else ""
    yield f"{relation.help}{entities}\n"
    if all(one.origin is Origin.NOWHERE for one in relation.attributes):
        yield f"Columns: {', '.join(f'`{one.name}` {type_name(one.type)}' for one in relation.attributes)}.\n"
        return
    yield "| column | type | unit | what it is | where it is read |\n|---|---|---|---|---|"
    yield from map(_row, relation.attributes)
    yield ""
    for one in relation.attributes:
        if one.setting is not None:
            default = f"; default `{one.setting.default}`" if one.setting.default else ""
            yield f"- `{one.name}` is set by {one.setting.applied}{default}."
    if any(one.setting is not None for one in relation.attributes):
        yield ""


def _row(one: Attribute[Any]) -> str:
    star = "" if one.setting is None else " *"
    cells = (f"`{one.name}`{star}", type_name(one.type), one.unit, one.help, one.origin.value)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(control_relations_page())
