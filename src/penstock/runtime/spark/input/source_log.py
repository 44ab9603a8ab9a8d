"""Keep the log of Spark's file source short.

Spark remembers every file it has read for ever: in a log (`sources/0/<batch>.compact`) that it rewrites every ten
batches, and in memory. A round is read once and its files are removed (`round_log.py`), so all but the newest entries
are useless.

Contract: the log keeps the entries of the last batches, which Spark needs when it repeats a batch; a log of an unknown
form is not changed. Files of rounds are stamped with their round's number in seconds, not with the clock, so `MOST_AGE`
counts rounds, and a clock that is set back hides none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from penstock.storage import storage

#: Maximum age of a file behind the newest one that Spark remembers: here the last 3,600 rounds.
MOST_AGE = "1h"
#: The stamp of round 0, in seconds since 1970. Any date does that archives of files can hold.
_FIRST_STAMP = 1_893_456_000
_FORM = "v1"
#: Batches whose entries are kept. Spark repeats only the last one.
_KEPT = 50
#: A log with fewer entries is not rewritten.
_LEAST = 200


def stamp(path: Path, round_: int) -> None:
    """Set the modification time of a file of round `round_`."""
    time = _FIRST_STAMP + round_
    os.utime(path, (time, time))


def shorten(folder: Path) -> bool:
    """Drop old entries of the log in `folder`; return whether there were any. Call it only between two
    batches: Spark reads the file when it writes the next.
    """
    names = (Path(name) for name in storage().list(folder))
    compact_logs = [folder / name for name in names if name.suffix == ".compact" and name.stem.isdigit()]
    newest = max(compact_logs, key=lambda path: int(path.stem), default=None)
    if newest is None:
        return False
    form_version, *entries = storage().read(newest).decode().splitlines() or [""]
    if form_version != _FORM or len(entries) < _LEAST:
        return False
    try:
        kept_entries = [entry for entry in entries if int(json.loads(entry)["batchId"]) > int(newest.stem) - _KEPT]
    except (ValueError, KeyError, TypeError):
        return False
    if len(kept_entries) == len(entries):
        return False
    # Hadoop keeps a checksum beside the file, and does not require one that is missing.
    storage().remove(folder / f".{newest.name}.crc")
    storage().write(newest, "\n".join([_FORM, *kept_entries]).encode())
    return True
