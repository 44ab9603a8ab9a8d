"""The parts of `benchmarks.constraints`: each a table, and panels of the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.constraints import auctions
from benchmarks.constraints.data import Traffic
from benchmarks.constraints.runs import KINDS, STEP, Compared, Outcome, beside_a_window, check_by_oracle, run, step_of
from benchmarks.paired import verdict
from benchmarks.promising.figures import Panel

#: k of the parts that have one alone.
K = 20
#: At most as many points of a line along time.
_POINTS = 40


@dataclass(frozen=True)
class Part:
    """What a part shows. heading: of its table; condition: sizes; panels: of its picture."""

    heading: str
    condition: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    panels: Sequence[Panel] = field(default=())


def _own_rows(name: str, found: Outcome) -> float:
    """Return the rows of the sides that a kind of promise ends."""
    kind = KINDS[name]
    of_orders, of_fulfilments = found.mean("orders"), found.mean("fulfilments")
    if name in ("unique", "reference"):
        return of_fulfilments
    return of_orders if kind.fulfilments and name != "mixed" else of_orders + of_fulfilments


def by_oracle(seeds: int) -> int:
    """Compare the definition with the oracle, over rows that keep their promises and rows that break them; return in
    how many cases."""
    cases = [
        (kind, k, late, seed) for kind in KINDS.values() for k in (0, 3) for late in (0.0, 0.2) for seed in range(seeds)
    ]
    for kind, k, late, seed in cases:
        rows = kind.rows(25, 6, k, late, seed)
        check_by_oracle(kind, rows, k)
        run(kind, rows, k)
    return len(cases)


def by_k(count: int, waiting: int, ks: Sequence[int]) -> Part:
    """State and CPU of each kind of promise, over rows that keep it with this k and no less."""
    rows, held, sizes, cost = [], {}, {}, {}
    for name, kind in KINDS.items():
        found = [run(kind, kind.rows(count, waiting, k), k) for k in ks]
        held[kind.title] = [_own_rows(name, one) for one in found]
        sizes[kind.title] = [one.mean("bytes") / 1e6 for one in found]
        cost[kind.title] = [one.measured.micros for one in found]
        for k, one in zip(ks, found, strict=True):
            sides = (f"{one.mean(side):,.0f}" for side in ("orders", "fulfilments", "other"))
            state = f"{one.mean('bytes') / 1e6:.2f}"
            opened = f"{one.open_rows.mean():,.0f}"
            rows.append([kind.title, str(k), *sides, opened, state, f"{one.measured.micros:.2f}"])
    across = "k"
    header = ["promises", "k", "rows of O", "rows of F", "others", "rows of open orders", "MB", "CPU µs a row"]
    return Part(
        "State and cost by k",
        f"{7 * count:,} rows, {waiting:,} orders open",
        header,
        rows,
        (
            Panel("a", "rows of the sides that the promise ends", across, tuple(ks), held, True),
            Panel("b", "state, MB", across, tuple(ks), sizes),
            Panel("c", "CPU, µs a row", across, tuple(ks), cost),
        ),
    )


def by_size(counts: Sequence[int], waiting: int, unbounded: int) -> Part:
    """State and CPU of the asserted join against the number of rows. unbounded: up to so many orders also without a
    promise."""
    rows = []
    last: tuple[Traffic, Outcome] | None = None
    for name in ("mixed", "none"):
        for count in counts:
            if name == "none" and count > unbounded:
                continue
            traffic = KINDS[name].rows(count, waiting, K)
            found = run(KINDS[name], traffic, K)
            if name == "mixed":
                last = traffic, found
            held = [moment.rows for moment in found.moments]
            rows.append(
                [
                    KINDS[name].title,
                    f"{2 * len(traffic.orders):,}",
                    f"{found.open_orders.mean():,.0f}",
                    f"{found.open_rows.mean():,.0f}",
                    f"{min(held):,} to {max(held):,}",
                    f"{found.worst:.2f}",
                    f"{found.mean('bytes') / 1e6:.2f}",
                    f"{found.measured.micros:.2f}",
                ]
            )
    assert last is not None
    traffic, found = last
    chosen = np.unique(np.linspace(0, len(found.moments) - 1, _POINTS).astype(int))
    read = np.searchsorted(traffic.orders.t, [found.moments[i].at for i in chosen]) * 2 / 1e6
    lines = {
        "rows held": [float(found.moments[i].rows) for i in chosen],
        "rows of open orders": [float(found.open_rows[i]) for i in chosen],
    }
    lines["twice these"] = [2 * value for value in lines["rows of open orders"]]
    header = [
        "promises",
        "rows",
        "orders open",
        "their rows",
        "rows held",
        "rows held / rows open, most",
        "MB",
        "CPU µs a row",
    ]
    panel = Panel("d", f"all promises, k = {K}", "rows read, millions", tuple(map(float, read)), lines)
    return Part("State against the number of rows", f"k = {K}", header, rows, (panel,))


def by_open(count: int, waitings: Sequence[int]) -> Part:
    """Return the state of the asserted join against the number of open orders."""
    rows = []
    for waiting in waitings:
        found = run(KINDS["mixed"], KINDS["mixed"].rows(count, waiting, K), K)
        held = found.mean("rows")
        rows.append(
            [
                f"{found.open_orders.mean():,.0f}",
                f"{found.open_rows.mean():,.0f}",
                f"{found.mean('orders'):,.0f}",
                f"{held:,.0f}",
                f"{held / found.open_rows.mean():.2f}",
                f"{found.mean('bytes') / 1e6:.2f}",
                f"{found.measured.micros:.2f}",
            ]
        )
    header = ["orders open", "their rows", "rows of O", "rows held", "rows held / rows open", "MB", "CPU µs a row"]
    return Part("State against open orders", f"all promises, k = {K}, {7 * count:,} rows", header, rows)


def beside_windows(count: int, waiting: int, repetitions: int) -> Part:
    """CPU of the promised join beside windows that hold as many rows."""
    traffic = KINDS["mixed"].rows(count, waiting, K)
    last = int(traffic.orders.t[-1])
    found: dict[tuple[str, int], Compared] = {}
    for longest in (STEP, 10 * STEP):
        size = round(2 * len(traffic.orders) * step_of(last, longest) / last)
        for name, both in (("O [RANGE w], F [NOW]", False), ("O [RANGE w / 2], F [RANGE w / 2]", True)):
            found[name, size] = beside_a_window(traffic, K, repetitions, both, longest)
    rows = []
    for (name, size), one in found.items():
        window, promised = one.pairs.medians
        rows.append(
            [
                name,
                f"{size:,}",
                f"{one.rows[0]:,.0f}, {one.rows[1]:,.0f}",
                f"{one.bytes[0] / 1e6:.2f}, {one.bytes[1] / 1e6:.2f}",
                f"{window:.2f}, {promised:.2f}",
                f"{one.pairs.overhead.shown(0.01)} %",
                verdict(one.pairs.overhead, 0.15),
            ]
        )
    header = [
        "window",
        "rows of a round",
        "rows held",
        "MB",
        "CPU µs a row",
        "overhead of the promises",
        "15 % at most",
    ]
    return Part(
        "Promises beside a window", f"{repetitions} pairs, k = {K}, {7 * count:,} rows, {waiting:,} open", header, rows
    )


def by_late(count: int, waiting: int, shares: Sequence[float]) -> Part:
    """Completeness of the answer, and state, against the share of rows that come too late for their promise."""
    rows = []
    complete: dict[str, list[float]] = {}
    held: dict[str, list[float]] = {}
    for name in ("clustered", "ordered", "reference", "mixed"):
        kind = KINDS[name]
        found = [run(kind, kind.rows(count, waiting, K, share), K) for share in shares]
        complete[kind.title] = [100 * one.complete for one in found]
        held[kind.title] = [_own_rows(name, one) for one in found]
        rows += [
            [
                kind.title,
                f"{100 * share:g}",
                f"{100 * one.complete:.2f}",
                f"{_own_rows(name, one):,.0f}",
                f"{one.open_rows.mean():,.0f}",
            ]
            for share, one in zip(shares, found, strict=True)
        ]
    xs = tuple(100 * share for share in shares)
    across = "rows that are late, %"
    header = ["promises", "late, %", "complete, %", "rows of its sides", "rows of open orders"]
    panels = (
        Panel("e", f"answer, % (k = {K})", across, xs, complete),
        Panel("f", f"rows of the sides (k = {K})", across, xs, held, True),
    )
    return Part(
        "Completeness where promises break",
        f"k = {K}, {7 * count:,} rows, {waiting:,} orders open",
        header,
        rows,
        panels,
    )


def of_auctions(count: int, waiting: int) -> Part:
    """State of winning bids by Nexmark, without windows."""
    market = auctions.market(count, waiting)
    rows = []
    lines: dict[str, list[float]] = {}
    xs: tuple[float, ...] = ()
    for name in auctions.RUNS:
        found = auctions.run(name, market)
        chosen = np.unique(np.linspace(0, len(found.moments) - 1, _POINTS).astype(int))
        lines[name] = [float(found.moments[i].rows) for i in chosen]
        xs = tuple(found.moments[i].at / 1e3 for i in chosen)
        lines["auctions open"] = [float(found.open[i]) for i in chosen]
        last = found.moments[-1]
        rows.append(
            [
                name,
                f"{found.measured.tuples:,}",
                f"{last.orders:,}",
                f"{last.fulfilments:,}",
                f"{last.other:,}",
                f"{max(moment.rows for moment in found.moments):,}",
                f"{found.measured.micros:.1f}",
            ]
        )
    header = [
        "query",
        "rows measured",
        "rows of auctions",
        "rows of bids",
        "others at the end",
        "rows, most",
        "CPU µs a row",
    ]
    panel = Panel("g", f"winning bids: rows held ({count:,} auctions)", "seconds", xs, lines, True)
    return Part("Winning bids without windows", f"{count:,} auctions, {waiting:,} open", header, rows, (panel,))
