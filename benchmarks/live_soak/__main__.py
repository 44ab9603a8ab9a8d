"""Soak of a server: python -m benchmarks.live_soak --minutes 60 [--rate N] [--seed S] [--kills-every SECONDS]

`penstock serve` on Spark in a process of its own. Rows of a stream and of a relation are posted at a steady rate;
queries are registered, replaced, paused, resumed, renamed and dropped, each with a subscriber that leaves and comes
back behind its cursor; SELECTs are answered meanwhile. At random moments SIGKILL takes the driver with all below it or
one Python worker, or SIGTERM ends the server, and it is started again. What was received of every query over its life
must be what is computed anew from the rows, without loss or repetition, and memory must be flat. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.live_soak.course import Course, Report, Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=100, help="rows a second; 100")
    parser.add_argument("--seed", type=int, default=None, help="of commands and kills; another one every time")
    parser.add_argument("--kills-every", type=float, default=60, help="seconds between two kills, about; 60")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the soak, and say where it is")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    settings = Settings(60 * given.minutes, given.rate, seed, given.kills_every)
    print(f"soak of a server: {given.minutes:g} minutes, {given.rate} rows a second, seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what it has started ends with it
    folder = Path(tempfile.mkdtemp(prefix="live-soak-"))
    with Course(settings, folder) as course:
        report = course.go()
    print("\n".join(shown(report)))
    if given.keep or report.wrong:
        print(f"everything of it is in {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(1 if report.wrong else 0)


def shown(report: Report) -> list[str]:
    """Return the report as lines."""
    actions = ", ".join(f"{count} {name}" for name, count in sorted(report.actions.items()))
    kills = ", ".join(f"{count} {kind}" for kind, count in report.kills.items())
    lines = [
        f"{report.seconds:.0f} s, {report.rows} rows, {report.starts} starts; kills: {kills}",
        f"commands: {actions}",
        f"{report.lives} queries compared, {report.changes} changes, {report.subscriptions} subscriptions",
    ]
    lines += [f"refused {count} times: {why}" for why, count in report.refused.items()]
    if report.samples:
        last = report.samples[-1]
        parts = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in last.memory.items() if size)
        lines.append(f"at the end: {parts} MB, {last.files} files in the checkpoint")
    if report.wrong:
        lines += ["WRONG", *report.wrong, report.tail]
    else:
        lines.append("every answer was right")
    return lines


if __name__ == "__main__":
    main()
