"""Soak of a server: python -m benchmarks.live_soak --minutes 60 [--rate N] [--seed S] [--kills-every SECONDS]
[--pause SECONDS] [--in-process]

`penstock serve` on Spark in a process of its own. Rows of a stream and of a relation are posted at a steady rate;
queries are registered, replaced, paused, resumed, renamed and dropped, each with a subscriber that leaves and comes
back behind its cursor; SELECTs are answered meanwhile. At random moments and in the midst of commands SIGKILL takes the
driver with all below it, or it takes one Python worker, or SIGTERM ends the server, and it is started again. What was
received of every query over its life must be what is computed anew from the rows, without loss or repetition, and
memory must be flat. Exits 1 otherwise. With `--pause 0` commands follow each other without a pause, with
`--kills-every 0` nothing is killed, and with `--in-process` the server runs without Spark.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.live_soak.course import PAUSE, Course, Report, Settings
from benchmarks.soak_options import SoakOptions, end_with_what_was_started


def main() -> None:
    parser = SoakOptions.parser(__doc__, minutes=60, rate=100, rows="rows", kills_every=60)
    parser.add_argument("--pause", type=float, default=PAUSE, help=f"seconds between two commands at most; {PAUSE:g}")
    parser.add_argument("--in-process", action="store_true", help="a server without Spark")
    options = parser.parse_args()
    given = SoakOptions.of(options)
    settings = Settings(
        60 * given.minutes,
        given.rate,
        given.seed,
        given.kills_every,
        pause=options.pause,
        in_process=options.in_process,
    )
    print(f"soak of a server: {given.minutes:g} minutes, {given.rate} rows a second, seed {given.seed}", flush=True)
    end_with_what_was_started()
    folder = Path(tempfile.mkdtemp(prefix="live-soak-"))
    with Course(settings, folder) as course:
        report = course.go()
    print("\n".join(shown(report)))
    given.leave(folder, bool(report.wrong))


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
