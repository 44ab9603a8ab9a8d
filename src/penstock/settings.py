"""Settings as a typed table: the names and values that `SET key = value` and `--set key=value` accept.

One row per setting: name, default, how a text becomes a value, and one line of help. Beside the table, a name that
begins with `spark.` is a setting of Spark: it is passed unchanged to the session that Penstock starts.
`python -m penstock.settings > docs/settings.md` renews the page that is printed from the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError, nearest
from penstock.quantities import (
    LARGEST_BIGINT,
    budget_text,
    cores_text,
    none_or,
    share_of,
    size_in_bytes,
)
from penstock.shedding.policies import DEFAULT, POLICIES
from penstock.time_zones import known_zone


def _boolean(text: str) -> bool:
    folded = text.strip().lower()
    if folded in ("true", "on", "1", "yes"):
        return True
    if folded in ("false", "off", "0", "no"):
        return False
    raise ValueError("true or false")


#: Each shard costs every round a task and its own files: this is far more than any cluster has cores for one job.
MOST_SHARDS = 10_000
#: The maximum of a duration in seconds: about 30 years.
_LONGEST = 10**9


def _count(minimum: int, most: int = LARGEST_BIGINT) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= most:
            limited = most < LARGEST_BIGINT or value > most
            raise ValueError(f"a whole number from {minimum:,} to {most:,}" if limited else _at_least(minimum))
        return value

    return parse


def _at_least(minimum: int) -> str:
    return f"a whole number, {minimum} or more"


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        folded = text.strip().lower()
        if folded not in words:
            raise ValueError(f"one of {', '.join(words)}" if len(words) > 1 else words[0])
        return folded

    return parse


def _isolation(text: str) -> str:
    if text.strip().lower() == "latest":
        hint = "'window', the default, answers as of the batch that was delivered last"
        raise PenstockError("P0901", "isolation 'latest' is not supported yet", hint=hint)
    return _one_of("window")(text)


def _no_bytes_or(text: str) -> int:
    return 0 if text.strip() == "0" else size_in_bytes(text)


def _port(text: str) -> int | None:
    folded = text.strip().lower()
    if folded == "none":
        return None
    if not folded.isdecimal() or int(folded) > 65535:
        raise ValueError("a port, 0 for any that is free, or none")
    return int(folded)


_LENGTHS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "milliseconds": 0.001,
    "s": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
}
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def _length(text: str) -> float:
    """Return the seconds of wall clock; 0 for none."""
    if text.strip() == "0":
        return 0.0
    match = _LENGTH.fullmatch(text.lower())
    if match is None or match[2] not in _LENGTHS or float(match[1]) <= 0:
        raise ValueError("a length of time such as '500 ms' or '2 seconds', or 0")
    seconds = float(match[1]) * _LENGTHS[match[2]]
    if seconds > _LONGEST:
        raise ValueError(f"a length of at most {_LONGEST:,} seconds")
    return seconds


def _time_zone(text: str) -> str:
    """Return the name of a zone as the data have it. Raises PenstockError P0212."""
    return known_zone(text).name


def _share(text: str) -> float:
    """Return a part of a whole, above 0 and up to 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ValueError("a number above 0 and up to 1")
    return value


#: The statistics of a source in a hint: its name, tuples per second (None: unknown), and (column, distinct values).
SourceHint = tuple[str, float | None, tuple[tuple[str, float], ...]]

_HINT = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*(?:,|$)")
_FACT = re.compile(r"\s*(\w+)\s+([0-9]+(?:\.[0-9]+)?)\s*$")


def _statistics(text: str) -> tuple[SourceHint, ...]:
    hints: list[SourceHint] = []
    place = 0
    while place < len(text.rstrip()):
        match = _HINT.match(text, place)
        facts = [_FACT.match(fact) for fact in match[2].split(",")] if match else [None]
        if match is None or not all(fact and float(fact[2]) > 0 for fact in facts):
            raise ValueError("sources with their facts: S(rate 10, column 50), T(rate 0.5)")
        found = [(fact[1], float(fact[2])) for fact in facts if fact]
        rate = next((value for name, value in found if name.lower() == "rate"), None)
        hints.append((match[1], rate, tuple(fact for fact in found if fact[0].lower() != "rate")))
        place = match.end()
    return tuple(hints)


#: The error that approximate aggregates may have in place of exact ones: of COUNT(DISTINCT), and of quantiles.
_ERRORS = {"rsd": (0.0021, 0.3), "accuracy": (1e-6, 0.5)}
_ERROR = re.compile(r"\s*(rsd|accuracy)\s+([0-9.]+(?:e-?[0-9]+)?)\s*", re.IGNORECASE)


def _approximations(text: str) -> tuple[tuple[str, float], ...]:
    """Return (kind of error, its size) of such as `rsd 0.02, accuracy 0.01`; none of them for `none`."""
    if text.strip().lower() in ("", "none"):
        return ()
    found: dict[str, float] = {}
    for part in text.split(","):
        match = _ERROR.fullmatch(part)
        kind = match[1].lower() if match else ""
        if match is None or kind in found:
            raise ValueError(
                "'rsd 0.02' for COUNT(DISTINCT), 'accuracy 0.01' for quantiles, both with a comma, or none"
            )
        least, most = _ERRORS[kind]
        if not least <= (size := float(match[2])) <= most:
            raise ValueError(f"{kind} from {least:g} to {most:g}")
        found[kind] = size
    return tuple(found.items())


#: Beginnings of settings that hold from the start of a server to its end.
FIXED = ("spark.", "metrics_")
#: What is chosen by a command of the shell, and is no setting -> the hint.
_ELSEWHERE = {
    **dict.fromkeys(
        ("timezone", "zone"), "SET time_zone = 'Europe/Berlin' is the zone in which times are read and shown"
    ),
    "format": "in the shell \\format csv chooses how rows are written",
    "timing": "in the shell \\timing on shows how long each statement took",
    "expanded": "in the shell \\x on writes a line for each value",
}


@dataclass(frozen=True)
class Setting:
    """One setting.

    `parse` turns a text into a value; the text of the ValueError that it raises describes the values that are accepted.
    `shown` is the default as it is written in a script. hint: for a value that is refused.
    """

    name: str
    default: object
    parse: Callable[[str], object]
    help: str
    hint: str | None = None

    @property
    def is_fixed(self) -> bool:
        """Return whether it holds from the start of a server to its end."""
        return self.name.startswith(FIXED)

    @property
    def shown(self) -> str:
        """Return the default as it is written in a script."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, int) and self.default and self.default % 2**20 == 0:
            return f"{self.default // 2**30} GB" if self.default % 2**30 == 0 else f"{self.default // 2**20} MB"
        if self.default is None:
            return "none"
        if isinstance(self.default, float):
            return f"{self.default:g} s" if self.parse is _length and self.default else f"{self.default:g}"
        return str(self.default) if self.default != () else ""

    @property
    def values(self) -> str:
        """Return the values that are accepted, in words."""
        try:
            self.parse("\0")
        except ValueError as error:
            return str(error)
        except PenstockError as error:
            return f"a time zone, {error.hint}"
        return "any text"


TABLE: tuple[Setting, ...] = (
    Setting("integer_division", False, _boolean, "`/` between integers truncates, as in STREAM"),
    Setting(
        "time_zone",
        "UTC",
        _time_zone,
        "the zone of what is written without one and of what clocks show: casts between times, dates and texts, HOUR, "
        "DATE_TRUNC, months; rows of answers stay in UTC",
    ),
    Setting(
        "approximate_aggregates",
        (),
        _approximations,
        "errors such as `rsd 0.02, accuracy 0.01` that replace COUNT(DISTINCT) by APPROX_COUNT_DISTINCT and QUANTILE,"
        " MEDIAN by APPROX_QUANTILE, with a warning for each; none: nothing is replaced",
        hint="as in SET approximate_aggregates = 'rsd 0.02, accuracy 0.01'",
    ),
    Setting("seed", 0, _count(0), "seed of all random choices, such as `SAMPLE`"),
    Setting(
        "preference_queue",
        1_000_000,
        _count(1),
        "entries of a query WITH PREFERENCE that may wait in a shard; beyond it those that come last are dropped",
    ),
    Setting(
        "frequent_bound",
        "sharper",
        _one_of("sharper", "thesis"),
        "the count of a pane that `FREQUENT` may miss: that of its (k+1)-th item, or of its k-th as in `[golab 6]`",
    ),
    Setting(
        "punctuations",
        1_000_000,
        _count(1, 100_000_000),
        "punctuations that a stream keeps at most: one beyond is refused, or of a record a dead letter",
    ),
    Setting(
        "shards",
        0,
        _count(0, MOST_SHARDS),
        f"shards of a keyed stage, at most {MOST_SHARDS:,}; 0: as many as Spark's default parallelism",
    ),
    Setting(
        "sink_retry",
        10.0,
        _length,
        "time for which a batch is tried again whose sink fails, before its query alone is left out; 0: not again",
    ),
    Setting(
        "state_store",
        "files",
        _one_of("files", "spark"),
        "where a run keeps its state: memory-mapped files under the checkpoint, or Spark's state store",
    ),
    Setting(
        "state_strategy",
        "pattern",
        _one_of("pattern", "direct", "negative"),
        "how state handles expirations: by update pattern, or as one of the baselines of `[golab 3]`",
    ),
    Setting(
        "state_cache_bytes",
        2**30,
        size_in_bytes,
        "bytes of state that a worker process keeps in memory between batches; the rest is read from its files",
    ),
    Setting(
        "statistics",
        (),
        _statistics,
        "statistics of sources, for choices by cost: 'S(rate 10, k 50), T(rate 0.5)' (tuples a second, distinct "
        "values of columns)",
    ),
    Setting(
        "max_batch_bytes", 256 * 2**20, size_in_bytes, "bytes of input, as stored, that one micro-batch reads at most"
    ),
    Setting(
        "max_batch_answers",
        2 * 2**30,
        size_in_bytes,
        "bytes of answers that one micro-batch should emit at most, over all queries, each having an equal "
        "part: answers at instants that exceed it continue in the next batch; after a batch that emitted more, batches "
        "read less",
    ),
    Setting("max_batch_rows", 0, _count(0), "rows of input that one micro-batch reads at most; 0: no limit"),
    Setting(
        "trigger", 0.0, _length, "minimum time between the starts of two micro-batches, such as '2 seconds'; 0: none"
    ),
    Setting(
        "target_latency",
        0.0,
        _length,
        "how long a micro-batch should take, such as '500 ms': batches are made smaller or larger towards it; 0: off",
    ),
    Setting(
        "hydrate_share",
        0.3,
        _share,
        "share of the time that queries which begin in a live run take to read their past, while batches are running",
    ),
    Setting(
        "results_max_bytes",
        0,
        _no_bytes_or,
        "bytes of rows that a run keeps of all queries INTO RESULTS together; the oldest are removed first; 0: a tenth "
        "of the disk that is free at the start, and at least 4 GB",
    ),
    Setting(
        "snapshot_memory",
        256 * 2**20,
        size_in_bytes,
        "bytes that a one-time query at a server may take, for the rows that it reads and for its computation; on "
        "Spark one that needs more is a job of its own",
    ),
    Setting(
        "snapshot_weight",
        1,
        _count(1, 1000),
        "share of Spark's cores that these jobs get together, where the rounds of the run want them too, which get 1",
    ),
    Setting(
        "isolation",
        "window",
        _isolation,
        "of a one-time query: `window` answers as of one state, at a server that of the batch delivered last, however "
        "long it reads; `latest`, the state at its end, is refused (`P0901`)",
    ),
    Setting("statement_timeout", 60.0, _length, "how long a one-time query at a server may take; 0: no limit"),
    Setting(
        "function_timeout",
        10.0,
        _length,
        "how long a call of a user-defined function may take at a server, and a second more for each 100 rows, before"
        " its query fails alone; 0: no limit",
    ),
    Setting(
        "result_limit",
        0,
        _no_bytes_or,
        "bytes of answers of a query that may be computed and not delivered, such as '4 GB'; beyond them the query "
        "fails alone; 0: a tenth of the free disk at the start; all queries together may have a quarter of it",
    ),
    Setting("state_limit", 0, _no_bytes_or, "bytes of state that a run may hold, such as '1 GB'; 0: no limit"),
    Setting(
        "state_limit_action",
        "warn",
        _one_of("warn", "fail", "shed"),
        "what a run does above `state_limit`: log a warning, fail, or divide it by weight over the queries that "
        "coalesce, which shed what is beyond",
    ),
    Setting(
        "shed_memory",
        "none",
        none_or(budget_text),
        "default of `memory` of the queries that coalesce: the most that they hold, as '10000 TUPLES' or '64 MB'; "
        "none: nothing is shed",
    ),
    Setting("shed_cpu", "none", none_or(cores_text), "default of `cpu`: the cores that the query may use; none: any"),
    Setting("shed", DEFAULT, _one_of(*POLICIES), "default of `shed`: which tuple goes first"),
    Setting("shed_buckets", 1, _count(1, 2**20), "default of `buckets`: parts of a budget, by hash of the value"),
    Setting("shed_compact", True, _boolean, "default of `compact`: whether equal tuples of one life count once"),
    Setting(
        "shed_error_sample",
        0.05,
        share_of,
        "default of `error_sample`: share of the values also held unshed, to estimate accuracy; '0' for none",
    ),
    Setting("shed_accuracy_at_least", 0.0, share_of, "default of `accuracy_at_least`; 0: any accuracy will do"),
    Setting("shed_on_inaccuracy", "warn", _one_of("warn", "fail"), "default of `on_inaccuracy`"),
    Setting(
        "metrics_file",
        "",
        str,
        "a file to which the metrics of every micro-batch are appended as a line of JSON; empty: none",
    ),
    Setting("metrics_port", None, _port, "the port of the Prometheus endpoint; 0: any free port; none: no endpoint"),
    Setting(
        "metrics_address", "127.0.0.1", str, "the address that the endpoint listens on; default: this machine only"
    ),
    Setting("max_statement_bytes", 2**20, size_in_bytes, "bytes of a script that the server accepts"),
    Setting("max_statement_items", 120_000, _count(1), "words, numbers and signs of a script that the server accepts"),
    Setting(
        "max_body_bytes",
        64 * 2**20,
        size_in_bytes,
        "bytes of posted rows that the server accepts in one request, both compressed and decompressed",
    ),
    Setting(
        "max_unread_bytes",
        2**30,
        _no_bytes_or,
        "bytes of posted rows, of all sources, that may wait to be read at a server: further ones are refused until "
        "some have been read; 0: no limit",
    ),
    Setting(
        "max_scripts_per_minute", 0, _count(0), "scripts that a token may send to a server in a minute; 0: no limit"
    ),
    Setting("max_connections", 100, _count(1), "requests that the server processes at once, subscriptions not counted"),
    Setting("max_subscriptions", 200, _count(1), "readers of results and events that the server serves at once"),
    Setting(
        "control_retention",
        7 * 86400.0,
        _length,
        "how long a server keeps the outcomes of commands and idempotency keys, such as '24 hours'",
    ),
    Setting(
        "relation_retention",
        86400.0,
        _length,
        "how long a server keeps the single updates of a relation whose rows are posted, for START and AS OF, in the "
        "time of the relation; older ones may be folded into its content",
    ),
    Setting("max_result_rows", 1_000_000, _count(1), "rows that the server returns of one statement"),
    Setting(
        "stall_timeout",
        60.0,
        _length,
        "time without a batch after which the server reports that it is not ready; 0: never",
    ),
)
_BY_NAME = {s.name: s for s in TABLE}
_SPARK = "spark."


class Settings:
    """The values in force. Immutable: `with_value` returns changed settings."""

    def __init__(self, values: Mapping[str, object] | None = None, texts: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})
        self._texts = dict(texts or {})

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name, _BY_NAME[name].default)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((s.name, self[s.name]) for s in TABLE)

    def written(self) -> Iterator[tuple[str, str]]:
        """Yield each setting and its value as SET takes it."""
        for setting in TABLE:
            text = self._texts.get(setting.name, setting.shown)
            is_plain = text in ("true", "false") or text.replace(".", "", 1).isdigit()
            yield setting.name, text if is_plain else "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"

    def with_value(self, name: str, text: str) -> Settings:
        """Return these settings with `name` set from `text`. Raises PenstockError P0104, P0901."""
        setting = _BY_NAME.get(name.lower())
        if setting is None and name.startswith(_SPARK):
            return Settings({**self._values, name: text}, self._texts)
        if setting is None:
            raise PenstockError(
                "P0104", f"unknown setting {name}", hint=_ELSEWHERE.get(name.lower()) or nearest(name, _BY_NAME)
            )
        try:
            value = setting.parse(text)
        except ValueError as error:
            message = f"setting {setting.name} cannot be {text!r}: it is {error}"
            raise PenstockError("P0104", message, hint=setting.hint) from None
        return Settings({**self._values, setting.name: value}, {**self._texts, setting.name: text})

    @property
    def spark(self) -> dict[str, str]:
        """Return Spark's own settings, for a session that Penstock starts."""
        return {name: str(value) for name, value in self._values.items() if name.startswith(_SPARK)}

    def get_int(self, name: str) -> int:
        return int(self[name])

    def get_bool(self, name: str) -> bool:
        return bool(self[name])


_HEAD = """# Settings

Printed from the table in `src/penstock/settings.py` by `python -m penstock.settings`; a test keeps it current.

A script sets them by `SET name = value`, the command line by `--set name=value`, a Python session by
`session.execute("SET name = value")`. An unknown name or a value that is not accepted is refused with `P0104`. A name
that begins with `spark.` is a setting of Spark and is passed to the session that Penstock starts. Settings that must
stay the same over restarts are described in [operations.md](operations.md).

| setting | default | values | meaning |
|---|---|---|---|
"""


def settings_page() -> str:
    """Return the page docs/settings.md, Markdown."""
    return _HEAD + "".join(f"| {' | '.join(_cells(setting))} |\n" for setting in TABLE)


def _cells(setting: Setting) -> tuple[str, ...]:
    default = f"`{setting.shown}`" if setting.shown else ""
    return f"`{setting.name}`", default, setting.values, setting.help.replace("|", r"\|")


if __name__ == "__main__":
    sys.stdout.write(settings_page())
