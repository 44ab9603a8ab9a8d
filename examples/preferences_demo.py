"""`make demo-preferences`: a burst of orders at four times what BUDGET allows to join. Alerts of the largest orders
come first; the share done and the delays are shown while it runs. In this process, without Spark.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import declared_sources
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.live.engine import LiveEngine
from penstock.runtime.monitoring.preference_metrics import preference_text

SCRIPT = Path(__file__).resolve().parent / "preferences.cql"
#: Begin and end of the burst in seconds, and orders a second before it and in it.
BURST = (30, 70)
CALM_ORDERS, BURST_ORDERS, NOTICES = 40, 400, 2
ACCOUNTS = 500
#: From this amount on an order is one of the largest tenth, by their distribution.
LARGE = float(np.exp(4.0 + 1.2816 * 1.2))
REASONS = ("new address", "card reported stolen", "login from abroad")


@dataclass
class Progress:
    """How many alerts have been emitted and how many there are, and of them those of large orders. delays: (amount,
    seconds) of the alerts since the last line."""

    done: int = 0
    due: int = 0
    large_done: int = 0
    large_due: int = 0
    delays: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


def orders(second: int, draw: np.random.Generator, number: int) -> pa.RecordBatch:
    count = draw.poisson(BURST_ORDERS if BURST[0] <= second < BURST[1] else CALM_ORDERS)
    return pa.record_batch(
        {
            "number": np.arange(number, number + count),
            "account": draw.integers(0, ACCOUNTS, count).astype(np.int32),
            "amount": np.round(np.exp(draw.normal(4.0, 1.2, count)), 2),
            "at": _instants(second, draw, count),
        }
    )


def notices(second: int, draw: np.random.Generator) -> pa.RecordBatch:
    count = draw.poisson(NOTICES)
    return pa.record_batch(
        {
            "account": draw.integers(0, ACCOUNTS, count).astype(np.int32),
            "reason": pa.array([REASONS[i] for i in draw.integers(0, len(REASONS), count)], pa.string()),
            "at": _instants(second, draw, count),
        }
    )


def _instants(second: int, draw: np.random.Generator, count: int) -> pa.Array:
    ms = 1_767_225_600_000 + second * 1000 + np.sort(draw.integers(0, 1000, count))
    return pa.array(ms).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def record(table: pa.Table, progress: Progress) -> None:
    """Record alerts that have been emitted. Each could be when both its order and its notice had come."""
    ts, ordered, noticed = (table[name].cast(pa.int64()).to_numpy() for name in ("ts", "ordered", "noticed"))
    progress.done += table.num_rows
    progress.large_done += large(table)
    progress.delays.append((table["amount"].to_numpy(), (ts - np.maximum(ordered, noticed)) / 1e6))


def large(table: pa.Table) -> int:
    """Return how many alerts are of large orders."""
    return int(pc.sum(pc.greater_equal(table["amount"], LARGE)).as_py() or 0)


def line(second: int, arrived: int, progress: Progress) -> str:
    """Return what the last seconds were like."""
    amounts, delays = (np.concatenate(parts) if parts else np.empty(0) for parts in zip(*progress.delays, strict=True))
    progress.delays.clear()
    big = amounts >= LARGE
    state = "burst" if BURST[0] <= second - 1 < BURST[1] else "calm"
    return (
        f"{second:4d} s  {state:5s} {arrived:6,d} orders  alerts done {progress.done:6,d} of {progress.due:6,d} "
        f"({100 * progress.done / max(1, progress.due):5.1f} %), of large orders {progress.large_done:5,d} of "
        f"{progress.large_due:5,d}  delay of large {_mean(delays[big]):>6}, of others {_mean(delays[~big]):>6}"
    )


def told(engine: LiveEngine) -> str:
    """Return what the engine tells of the preference: the share of its work that is done, and the delays, since the
    beginning."""
    figures = engine.figures()
    alerts = next(one for key, one in figures.metrics.queries.items() if figures.places.get(key) == "alerts")
    return "" if alerts.preference is None else preference_text(alerts.preference)


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.1f} s" if len(values) else "-"


def run(seconds: int, speed: float, every: int = 5) -> Progress:
    """Let so many seconds of stream pass, at `speed` times their pace; 0 as fast as can be."""
    queries = bind_script(SCRIPT.read_text(encoding="utf-8"), file=str(SCRIPT)).queries
    engine = LiveEngine(shards=1)
    for source in declared_sources(*(query.root for query in queries)).values():
        engine.declare(source, retain=0)
    for query in queries:
        engine.register(query)
    draw, progress, number, arrived = np.random.default_rng(7), Progress(), 0, 0
    began = time.monotonic()
    for second in range(seconds):
        batch = orders(second, draw, number)
        engine.insert("Orders", batch)
        engine.insert("Notices", notices(second, draw))
        number += batch.num_rows
        arrived += batch.num_rows
        answers = engine.round()
        if "alerts" in answers:
            record(answers["alerts"], progress)
        if "every_alert" in answers:
            progress.due += answers["every_alert"].num_rows
            progress.large_due += large(answers["every_alert"])
        if (second + 1) % every == 0 and progress.delays:
            print(line(second + 1, arrived, progress), flush=True)
            print(f"{'':8s}{told(engine)}", flush=True)
            arrived = 0
        if speed > 0:
            time.sleep(max(0.0, began + (second + 1) / speed - time.monotonic()))
    return progress


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=180, help="seconds of stream")
    parser.add_argument("--speed", type=float, default=10.0, help="times faster than real time; 0: as fast as can be")
    given = parser.parse_args()
    print(SCRIPT.read_text(encoding="utf-8"))
    try:
        progress = run(given.seconds, given.speed)
    except PenstockError as error:
        print(error.render(), file=sys.stderr)
        return 1
    print(f"{progress.done:,} of {progress.due:,} alerts in all; of large orders", end=" ")
    print(f"{progress.large_done:,} of {progress.large_due:,}.")
    print("What is missing waits until there is time, or the window of one of its rows has passed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
