"""Attributes of queries and sources, `WITH (key value, ...)` and `SET (key value, ...)`, as typed tables (P0104)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.connectors.options import ANY_TEXT, DURATION, SIZE, Option, OptionTable, ValueType, one_of, refusal, whole
from penstock.errors import PenstockError, nearest
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.clauses import WrittenOption
from penstock.language.plan_choices import NO_CHOICES, normal_choices
from penstock.quantities import budget_text, cores_text, share_of
from penstock.shedding.policies import DEFAULT, POLICIES
from penstock.types import Interval

#: The value of a source's attribute that takes it away.
NONE = "none"


def _weight(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise ValueError("a number, 0 or more")
    return text


def _length(text: str) -> str:
    if text.lower() == NONE:
        return NONE
    found = Interval.parse(text)
    if found is None or found.amount < 0:
        raise ValueError(f"a length of time such as '2 seconds', or '{NONE}'")
    return str(found)


def _rate(text: str) -> str:
    try:
        return NONE if text.lower() == NONE else whole(1).normal(text)
    except ValueError:
        raise ValueError(f"a whole number of rows per second, or '{NONE}'") from None


def read_memory(text: str) -> tuple[int, bool]:
    """Return a budget in normal form: its number, and whether that is of bytes."""
    number, _, unit = text.partition(" ")
    return int(number), not unit


def _percent(text: str) -> str:
    share_of(text)
    return text


_PLAN = ValueType(f"choices of its plan as JSON, or `{NO_CHOICES}`", normal_choices, str)
_WEIGHT = ValueType("number, 0 or more", _weight, float)
_LENGTH = ValueType(f"length of time, as `2 seconds`, or `{NONE}`", _length, Interval.parse)
_RATE = ValueType(f"whole number, or `{NONE}`", _rate, str)

#: What CREATE QUERY .. WITH and ALTER QUERY .. SET accept.
QUERY_ATTRIBUTES = OptionTable(
    (
        Option("comment", ANY_TEXT, "a text for readers", ""),
        Option(
            "latency_target",
            _LENGTH,
            "duration of a batch that the tightest of all queries sets, beside the setting `target_latency`",
            NONE,
        ),
        Option(
            "on_failure",
            one_of("pause", "stop server"),
            "what happens where a step of the query or its sink fails",
            "pause",
        ),
        Option(
            "plan",
            _PLAN,
            "choices of its plan in place of the planner's, by operator ([plans.md](plans.md#choices));"
            " those that are not named stay as they are",
            NO_CHOICES,
        ),
        Option(
            "result_limit", SIZE, "bytes of its answers that may be computed and not delivered, beyond which it fails"
        ),
        Option("sink_retry", DURATION, "how long a failing sink is tried again, before its query fails"),
        Option("weight", _WEIGHT, "importance relative to other queries: sinks of heavier ones are written first", "1"),
    )
)

_BUDGET = ValueType("tuples, as `10000 TUPLES`, or a size, as `64 MB`", budget_text, str)
_CORES = ValueType("number of cores, as `0.5`", cores_text, str)
_PERCENT = ValueType("share, as `5%`", _percent, share_of)
_FLAG = one_of("true", "false")
_COMPACT = ValueType(_FLAG.name, _FLAG.normal, lambda text: text == "true", _FLAG.words)

#: What CREATE QUERY .. WITH accepts of a query that coalesces. These are part of its answer: ALTER does not set them.
SHEDDING_ATTRIBUTES = OptionTable(
    (
        Option("memory", _BUDGET, "the most that coalescing holds for its window; beyond it tuples are shed"),
        Option("cpu", _CORES, "the cores that it may use; beyond them the values with the largest hashes are shed"),
        Option("shed", one_of(*POLICIES), "which tuple goes first", DEFAULT),
        Option("buckets", whole(1), "parts of the budget, by hash of the value", "1"),
        Option("compact", _COMPACT, "whether equal tuples of one life count once", "true"),
        Option("error_sample", _PERCENT, "share of the values also held unshed, to estimate accuracy", "5%"),
        Option("accuracy_at_least", _PERCENT, "accuracy below which `on_inaccuracy` decides", "0"),
        Option("on_inaccuracy", one_of("warn", "fail"), "what happens below `accuracy_at_least`", "warn"),
    )
)

#: What CREATE QUERY .. WITH accepts.
CREATED_ATTRIBUTES = OptionTable((*QUERY_ATTRIBUTES, *SHEDDING_ATTRIBUTES))

#: What ALTER STREAM .. SET and ALTER RELATION .. SET accept.
SOURCE_ATTRIBUTES = OptionTable(
    (
        Option("idle_timeout", _LENGTH, "IDLE TIMEOUT"),
        Option(
            "observe_constraints", one_of("on", "off"), "whether it is measured how closely a stream keeps promises"
        ),
        Option("on_error", one_of("dead letter", "fail", "skip"), "ON ERROR"),
        Option("rate_limit", _RATE, "rows per second that are accepted by a source FROM HTTP"),
        Option("retain", _LENGTH, "RETAIN, of a stream"),
        Option("slack", _LENGTH, "ORDER WITHIN, of a stream"),
    )
)


#: How attributes are called in declarations and by Session.stream -> by SET.
_ALSO_CALLED = {
    "order_within": "slack",
    "lateness": "slack",
    "watermark": "slack",
}


def _of_declarations(key: str, table: OptionTable) -> str | None:
    name = _ALSO_CALLED.get(key)
    return f"what ORDER WITHIN declares is called {name} here" if name in table.names else None


def bind_attributes(
    written: Sequence[WrittenOption], table: OptionTable, owner: str, context: Context
) -> dict[str, str]:
    """Return the values by name, in normal form. owner: what has the attributes, for messages. Raises BindingFailed
    after P0104.
    """
    values: dict[str, str] = {}
    refused = False
    for attribute in written:
        key, option = attribute.key.key, table.get(attribute.key.key)
        error: PenstockError | None = None
        span = attribute.key.span
        if option is None:
            error = PenstockError(
                "P0104",
                f"{owner} has no attribute {attribute.key.text}",
                hint=_of_declarations(key, table) or nearest(key, table.names),
            )
        elif key in values:
            error = PenstockError("P0104", f"attribute {key} occurs twice", hint="leave one of them out")
        else:
            try:
                values[key] = option.type.normal(attribute.value)
            except ValueError as wrong:
                message = refusal(option, attribute.value, wrong).replace("option", "attribute", 1)
                error, span = (
                    PenstockError("P0104", message, hint=_meant(option, attribute.value)),
                    attribute.value_span,
                )
        if error is not None:
            refused = True
            context.note(error, span)
    if refused:
        raise BindingFailed
    return values


def _meant(option: Option[Any], value: str) -> str | None:
    """Return the hint for a value that an attribute does not accept: the nearest one, or of shedding what it is."""
    close = nearest(value.lower(), option.type.words) if option.type.words else None
    if close is None and option.name in SHEDDING_ATTRIBUTES.names:
        return f"{option.name}: {option.help}"
    return close
