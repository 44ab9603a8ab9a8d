"""Answer queries in this process, from their declared sources into their sinks, without Spark.

For tests and tiny jobs over bounded inputs: the connectors are those of a Spark run, and the answer is one batch. No
state is kept for a restart.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import OnError, Source, declared_sources
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import as_error, fails_of_values, reason_kind
from penstock.connectors.sinks import open_sink
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError
from penstock.events import log_event
from penstock.runtime.local.one_time import unit_warnings
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.runtime.local.statics import read_relation
from penstock.runtime.reporting import LOG


def answer_here(queries: Sequence[Query], drain: bool = False, overwrite: bool = False) -> LocalResult:
    """Answer `queries` whose sources name connectors, and write the answers to their sinks.

    Raises:
        PenstockError: P0622 for a source without an end, and any error of the connectors.
    """
    sources = declared_sources(*(query.root for query in queries))
    for source in sources.values():
        _check(source)
    sinks = {query.name: open_sink(query) for query in queries}
    refused: dict[str, Counter[str]] = {}
    for query in queries:
        sink = sinks[query.name]
        if not fails_of_values(query):
            sink.refuse = partial(_count, refused.setdefault(query.name, Counter()))
        sink.open(resume=False, overwrite=overwrite)
    relations = {name: read_relation(source) for name, source in sources.items()}
    for name, (_, rejected, _) in relations.items():
        if rejected and sources[name].on_error is OnError.FAIL:
            raise as_error(rejected[0], name)
    inputs = {name: rows for name, (rows, _, _) in relations.items()}
    for warning in unit_warnings(sources.values(), inputs):
        log_event(LOG, logging.WARNING, "unit", warning)
    result = run_local(queries, inputs, drain=drain)
    for name, (_, rejected, _) in relations.items():
        if rejected:
            result.rejected.setdefault(name, Counter()).update(reason_kind(r.reason) for r in rejected)
    for name, table in result.tables.items():
        sinks[name].write(0, table)
        sinks[name].close()
        if refused.get(name):
            result.rejected.setdefault(name, Counter()).update(refused[name])
    return result


def _count(counts: Counter[str], batch: int, rows: Sequence[Rejected]) -> None:
    counts.clear()
    counts.update(reason_kind(row.reason) for row in rows)


def _check(source: Source) -> None:
    connector = open_source(source)
    if not connector.bounded:
        hint = "run it on Spark, or declare it over a copy that ends"
        raise PenstockError("P0622", f"{source.name} has no end, so there is no whole answer", hint=hint)
    connector.check()
