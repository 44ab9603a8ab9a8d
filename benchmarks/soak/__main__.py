"""Soak: python -m benchmarks.soak --minutes 30 [--rate N] [--seed S] [--kills-every SECONDS]

A Kafka broker, a producer of numbered records at a steady rate (out of order within ORDER WITHIN; some late, some
malformed), and `penstock run --checkpoint` with five queries, to files and to a topic. At random moments SIGKILL takes
the driver with all below it, a single Python worker, or the broker, which stays away for up to a minute. At the end
the answers must be those of a recomputation in one go, every record must be in a result or, with its reason, among the
dead letters, exactly once, and memory and state must be flat. Exits 1 where anything is not so.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.soak import records, watch
from benchmarks.soak.course import KINDS, ROOT, Course, Report, Settings, schedule
from benchmarks.soak_options import SoakOptions, end_with_what_was_started


def main() -> None:
    parser = SoakOptions.parser(__doc__, minutes=30, rate=500, rows="records", kills_every=75)
    given = SoakOptions.of(parser.parse_args())
    seconds, seed = 60 * given.minutes, given.seed
    settings = Settings(seconds, given.rate, seed, schedule(seconds, given.kills_every, seed))
    planned = Counter(kill.kind for kill in settings.kills)
    print(
        f"soak: {given.minutes:g} minutes, {given.rate} records a second, seed {seed}; kills: "
        + ", ".join(f"{planned[kind]} of a {kind}" for kind in KINDS),
        flush=True,
    )
    end_with_what_was_started()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with _broker() as broker, Course(settings, folder, broker) as course:
        report = course.go()
    print("\n".join(shown(report)))
    given.leave(folder, bool(report.wrong))


def _broker() -> Any:
    """The broker of the tests, which is not copied here."""
    sys.path.insert(0, str(ROOT / "tests" / "servers"))
    from kafka_broker import Broker, Unavailable

    try:
        return Broker()
    except Unavailable as why:
        sys.exit(f"no Kafka broker can be had: {why}")


def shown(report: Report) -> list[str]:
    """The report as lines."""
    kinds = {records.GOOD: "good", records.LATE: "late", records.MALFORMED: "malformed"}
    counts = ", ".join(f"{report.shares.get(kind, 0):,} {word}" for kind, word in kinds.items())
    lines = [f"{report.seconds:.0f} s, {report.records:,} records: {counts}; {report.starts} starts of the run"]
    lines += ["rows of results: " + ", ".join(f"{name} {count:,}" for name, count in report.rows.items())]
    for kind in KINDS:
        took = [s.seconds for s in report.survived if s.kill.kind == kind]
        if took:
            middle = f"on again after {statistics.median(took):.1f} s, at the most {max(took):.1f} s"
            lines.append(f"{kind} killed {len(took)} times: {middle}")
    if report.batches:
        ordered = sorted(report.batches)
        lines.append(
            f"{len(ordered)} batches: {statistics.median(ordered):.2f} s, of 100 the slowest "
            f"{ordered[len(ordered) * 99 // 100]:.2f} s; the rest was read in {report.drained:.1f} s"
        )
    used = (f"{who} {seconds / report.seconds:.2f}" for who, seconds in report.processor.items())
    lines.append(f"processors in use: {', '.join(used)}")
    if report.samples:
        lines += _table("whole soak", report.samples)
        lines += _table("longest life of a driver", watch.longest_life(report.samples))
    lines += [f"WRONG: {what}" for what in report.wrong]
    if report.wrong and report.tail:
        lines += ["the end of the run's log:", report.tail]
    return lines if report.wrong else [*lines, "all answers right, every record accounted for, nothing grows"]


def _table(title: str, samples: list[watch.Sample]) -> list[str]:
    """Medians of the quarters."""
    quarters = watch.quarters(samples)
    lines = [f"{title}, {samples[-1].at - samples[0].at:.0f} s: medians of its quarters"]
    rows = {f"{part} MB": [[s.memory[part] / 2**20 for s in q] for q in quarters] for part in watch.PARTS}
    rows["state MB"] = [[s.state_bytes / 2**20 for s in q] for q in quarters]
    rows["state rows"] = [[float(s.state_rows) for s in q] for q in quarters]
    rows["files"] = [[float(s.files) for s in q] for q in quarters]
    for name, values in rows.items():
        cells = (f"{statistics.median(v):10,.1f}" if v else f"{'-':>10}" for v in values)
        lines.append(f"  {name:<12}{''.join(cells)}")
    return lines


if __name__ == "__main__":
    main()
