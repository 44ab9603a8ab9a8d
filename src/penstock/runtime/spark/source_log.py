"""Keeps short what Spark's file source remembers of the files of a run's rounds.

Spark notes every file it has read for good: in a log (`sources/0/<batch>.compact`) that it writes anew every ten
batches, and in memory. A round is read once and its files are removed (`rounds.py`), so all but the newest entries are
of no use.

Contract: the log keeps the entries of the last batches, which Spark asks for when it runs a batch again; a log of
another form than known here is left alone. Files of rounds are stamped with their round's number in seconds, not with
the clock, so `MOST_AGE` counts rounds and a clock that is set back hides none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

#: How far behind the newest file Spark remembers one, in its terms: of the last 3,600 rounds.
MOST_AGE = "1h"
#: The stamp of round 0, in seconds since 1970: later than a clock stamped files before, so they are not newer.
_FIRST_STAMP = 1_893_456_000
_FORM = "v1"
#: Batches of which entries are kept. Spark runs none again but the last.
_KEPT = 50
#: A log of fewer entries is not worth the writing.
_LEAST = 200


def stamp(path: Path, round_: int) -> None:
    """Give a file of round `round_` its time."""
    time = _FIRST_STAMP + round_
    os.utime(path, (time, time))


def shorten(place: Path) -> bool:
    """Drop old entries of the log in the folder `place`. Returns whether there was something to drop. Only between two
    batches: Spark reads the file when it writes the next."""
    found = [path for path in place.glob("*.compact") if path.stem.isdigit()]
    newest = max(found, key=lambda path: int(path.stem), default=None)
    if newest is None:
        return False
    form, *entries = newest.read_text().splitlines() or [""]
    if form != _FORM or len(entries) < _LEAST:
        return False
    try:
        kept = [entry for entry in entries if int(json.loads(entry)["batchId"]) > int(newest.stem) - _KEPT]
    except (ValueError, KeyError, TypeError):
        return False
    if len(kept) == len(entries):
        return False
    made = place / f".{newest.name}.{os.getpid()}.tmp"
    made.write_text("\n".join([_FORM, *kept]))
    # Hadoop keeps a checksum beside the file, and does not ask for one that is missing.
    (place / f".{newest.name}.crc").unlink(missing_ok=True)
    made.replace(newest)
    return True
