"""State that promises of streams end: Orders and Fulfilments of `[cidr 4.1]`, and Nexmark's winning bids.

python -m benchmarks.constraints [--orders 10000] [--waiting 1000] [--ks 0,10,50,100] [--sizes 5000,10000,20000]
    [--pairs 5] [--auctions 1000] [--parts k,size,open,window,late,auctions] [--write]

Rows are drawn so that streams keep their promises with a k and no less (`constraints.data`); every run's answer is that
of the definition there, which is first compared with the oracle over small streams. Figures are rows and bytes of all
operators after each round, and CPU time of this process. `--sizes 1430000` is 10 million rows.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.constraints import figures
from benchmarks.constraints.figures import Part
from benchmarks.local_harness import markdown, write_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks" / "results" / "constraints.md"
PICTURES = ROOT / "docs" / "pictures"
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=10_000, help="of all parts without sizes of their own")
    parser.add_argument("--waiting", type=int, default=1000, help="orders that are open at a time")
    parser.add_argument("--ks", type=_numbers, default=[0, 10, 50, 100])
    parser.add_argument("--sizes", type=_numbers, default=[5_000, 10_000, 20_000], help="orders of part size")
    parser.add_argument("--unbounded", type=int, default=100_000, help="part size: most orders without a promise")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--auctions", type=int, default=1000)
    parser.add_argument("--parts", default="k,size,open,window,late,auctions")
    parser.add_argument("--write", action="store_true", help=f"put tables and pictures into {PAGE.name}")
    chosen = parser.parse_args(given)
    pa.set_cpu_count(1)
    count, waiting = chosen.orders, chosen.waiting
    parts: Mapping[str, Callable[[], Part]] = {
        "k": lambda: figures.by_k(count, waiting, chosen.ks),
        "size": lambda: figures.by_size(chosen.sizes, waiting, chosen.unbounded),
        "open": lambda: figures.by_open(count, [max(1, waiting // n) for n in (100, 10, 1)]),
        "window": lambda: figures.beside_windows(count, waiting, chosen.pairs),
        "late": lambda: figures.by_late(count, waiting, SHARES),
        "auctions": lambda: figures.of_auctions(chosen.auctions, min(50, max(1, chosen.auctions // 20))),
    }
    print(f"{figures.by_oracle(1)} small runs are those of the oracle; load {os.getloadavg()[0]:.1f}\n", flush=True)
    for name in chosen.parts.split(","):
        part = parts[name]()
        table = markdown(part.header, part.rows)
        print(f"{part.heading}: {part.condition}\n\n{table}\n\nload {os.getloadavg()[0]:.1f}\n", flush=True)
        if chosen.write:
            from benchmarks import pictures

            write_table(PAGE, f"## {part.heading}", table)
            if part.panels:
                pictures.panels(part.panels, PICTURES / f"constraints-{name}.svg")


if __name__ == "__main__":
    main()
