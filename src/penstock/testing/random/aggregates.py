"""Random aggregates: a part of `worlds.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.testing.choices import Choices
from penstock.testing.random.contract import RandomColumn

_NUMERIC = ("INT", "BIGINT", "DOUBLE", "DECIMAL(6,2)")
#: HyperLogLog images of Apache DataSketches: empty, of three values with 16 registers, of two with 32; and no image.
_IMAGES = (
    "X'02010704030c0008'",
    "X'02010704030803082bf2fb06862ff90d75816607'",
    "X'0201070503080208c1e91705d2167307'",
    "X'00'",
)
_SEPARATORS = ("'-'", "''", "', '")


def plain_aggregate(
    choices: Choices, scope: Sequence[RandomColumn], loose: str | None, predicate: Callable[[], str]
) -> tuple[str, str]:
    """Return (text, type) of an aggregate of sums, or an extreme.

    Args:
        loose: type of a result that may be rounded in several ways, None where such a result may not be drawn.
        predicate: draws a condition for FILTER.
    """
    numbers = [c.name for c in scope if c.type in _NUMERIC]
    functions = ("COUNT(*)", "SUM", "COUNT", "MIN", "MAX", "AVG", "COUNT DISTINCT", *(("STDDEV",) if loose else ()))
    function = choices.pick(functions)
    exact = False
    if function == "COUNT(*)":
        text, type_ = function, "BIGINT"
    elif function in ("SUM", "AVG", "STDDEV"):
        name = choices.pick(numbers) if numbers else "1"
        kind = next((c.type for c in scope if c.name == name), "INT")
        distinct = "DISTINCT " if function == "SUM" and choices.chance(15) else ""
        text, exact = f"{function}({distinct}{name})", function != "STDDEV" and kind == "DECIMAL(6,2)"
        type_ = loose if function == "STDDEV" and loose else _summed(function, kind)
    else:
        column = choices.pick(scope)
        name, _, word = function.partition(" ")
        text = f"{name}({word + ' ' if word else ''}{column.name})"
        type_ = "BIGINT" if name == "COUNT" else column.type
    if choices.chance(15):
        text += f" FILTER (WHERE {predicate()})"
    # Sums of decimals are wider; cast back, so that the type stays one that VALUES knows.
    return (f"CAST({text} AS {type_})" if exact else text), type_


def _summed(function: str, kind: str) -> str:
    if kind == "DECIMAL(6,2)":
        return kind
    return "DOUBLE" if function == "AVG" or kind == "DOUBLE" else "BIGINT"


def ordered_aggregate(
    choices: Choices, scope: Sequence[RandomColumn], timed: bool, loose: str | None
) -> tuple[str, str]:
    """Return (text, type) of an aggregate that depends on the order of values or rows.

    Args:
        timed: the rows have timestamps, so FIRST and LAST may be drawn without ORDER BY.
        loose: type of results that no other query can read, such as arrays and quantiles; None where they may not be
            drawn.
    """
    column = choices.pick(scope)
    if choices.chance(35):
        return _by_keys(choices, scope, column, loose)
    functions = ["MODE", "COUNT DISTINCT"]
    if timed:
        functions += ["FIRST", "LAST"]
    if loose is not None:
        functions += ["TOP_K", "ARRAY_AGG"]
        functions += ["QUANTILE", "MEDIAN"] if column.type in _NUMERIC else []
    function = choices.pick(functions)
    if function == "COUNT DISTINCT":
        return f"COUNT(DISTINCT {column.name}, {choices.pick(scope).name})", "BIGINT"
    type_ = column.type if loose is None or function in ("MODE", "FIRST", "LAST") else loose
    distinct = "DISTINCT " if function not in ("FIRST", "LAST") and choices.chance(25) else ""
    constant = ""
    if function in ("TOP_K", "QUANTILE"):
        constant = ", " + choices.pick(("1", "2", "3") if function == "TOP_K" else ("0.5", "0", "1", "0.3", "0.75"))
    return f"{function}({distinct}{column.name}{constant})", type_


def _by_keys(
    choices: Choices, scope: Sequence[RandomColumn], column: RandomColumn, loose: str | None
) -> tuple[str, str]:
    """Return (text, type) of an aggregate with ORDER BY, in its parentheses or in WITHIN GROUP."""
    directions = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
    keys = ", ".join(choices.pick(scope).name + choices.pick(directions) for _ in range(choices.pick((1, 1, 2))))
    function = choices.pick(("FIRST", "LAST", "MODE", "PERCENTILE_DISC", *(("ARRAY_AGG", "DISTINCT") if loose else ())))
    if function in ("FIRST", "LAST"):
        return f"{function}({column.name} ORDER BY {keys})", column.type
    if function in ("MODE", "PERCENTILE_DISC"):
        inside = "" if function == "MODE" else choices.pick(("0", "0.3", "0.5", "1"))
        return f"{function}({inside}) WITHIN GROUP (ORDER BY {column.name}{choices.pick(directions)})", column.type
    if function == "DISTINCT":
        return f"ARRAY_AGG(DISTINCT {column.name} ORDER BY {column.name}{choices.pick(directions)})", loose or ""
    return f"ARRAY_AGG({column.name} ORDER BY {keys})", loose or ""


def combined_aggregate(
    choices: Choices, scope: Sequence[RandomColumn], loose: str | None, predicate: Callable[[], str]
) -> tuple[str, str]:
    """Return (text, type) of an aggregate of conditions, of bits, of texts or of two values.

    Args:
        loose: type of a result that may be rounded in several ways, None where such a result may not be drawn.
        predicate: draws a condition.
    """
    whole = [(c.name, c.type) for c in scope if c.type in ("INT", "BIGINT")]
    texts = [c.name for c in scope if c.type == "STRING"] + [f"CAST({name} AS STRING)" for name, _ in whole[:1]]
    numbers = [c.name for c in scope if c.type in _NUMERIC]
    functions = ["MIN_BY", "MAX_BY", "ANY_VALUE", "COUNT_IF", "BOOL_AND", "BOOL_OR"]
    functions += ["STRING_AGG"] if texts else []
    functions += ["BIT_AND", "BIT_OR", "BIT_XOR"] if whole else []
    functions += ["COVAR_POP", "COVAR_SAMP", "CORR"] if loose and numbers else []
    function = choices.pick(functions)
    distinct = "DISTINCT " if function != "COUNT_IF" and choices.chance(20) else ""
    if function in ("COUNT_IF", "BOOL_AND", "BOOL_OR"):
        return f"{function}({distinct}{predicate()})", "BIGINT" if function == "COUNT_IF" else "BOOLEAN"
    if function == "STRING_AGG":
        return f"STRING_AGG({distinct}{choices.pick(texts)}, {choices.pick(_SEPARATORS)})", "STRING"
    if function.startswith("BIT_"):
        name, type_ = choices.pick(whole)
        return f"{function}({distinct}{name})", type_
    if loose and function.startswith("CO"):
        return f"{function}({distinct}{choices.pick(numbers)}, {choices.pick(numbers)})", loose
    column = choices.pick(scope)
    by = "" if function == "ANY_VALUE" else f", {choices.pick(scope).name}"
    return f"{function}({distinct}{column.name}{by})", column.type


def approximate_aggregate(choices: Choices, scope: Sequence[RandomColumn], loose: str | None) -> tuple[str, str]:
    """Return (text, type) of an aggregate over a sketch, with few registers and coarse buckets.

    Args:
        loose: type of results that no other query can read, such as images; None where they may not be drawn.
    """
    column = choices.pick(scope)
    numbers = [c.name for c in scope if c.type in _NUMERIC]
    items = [c.name for c in scope if c.type in ("INT", "BIGINT", "STRING")]
    functions = ["APPROX_COUNT_DISTINCT", "BOTH", *(("APPROX_QUANTILE",) if numbers and loose else ())]
    functions += ["HLL_SKETCH_AGG", "HLL_UNION_AGG", *(("COUNT_MIN_SKETCH",) if items else ())] if loose else []
    function = choices.pick(functions)
    if function == "BOTH":
        return f"APPROX_COUNT_DISTINCT({column.name}, {choices.pick(scope).name}, 0.3)", "BIGINT"
    if function == "APPROX_COUNT_DISTINCT":
        return f"{function}({column.name}, {choices.pick(('0.3', '0.1'))})", "BIGINT"
    if function == "HLL_SKETCH_AGG":
        return f"{function}({column.name}, 4)", loose or ""
    if function == "HLL_UNION_AGG":
        one, other = choices.pick(_IMAGES), choices.pick(_IMAGES)
        return f"{function}(IF({column.name} IS NULL, {one}, {other}))", loose or ""
    if function == "COUNT_MIN_SKETCH":
        return f"{function}({choices.pick(items)}, 0.5, 0.7)", loose or ""
    call = f"APPROX_QUANTILE({choices.pick(numbers)}, {choices.pick(('0', '0.3', '0.5', '1'))}, 0.2)"
    return call, loose or ""


def bound_of(choices: Choices, call: str) -> str | None:
    """Return a bound of an approximate call with its FILTER, None for a call that has none."""
    if call.startswith("HLL_SKETCH_AGG("):
        call = f"HLL_SKETCH_ESTIMATE({call})"
    elif not call.startswith(("APPROX_COUNT_DISTINCT(", "APPROX_QUANTILE(")):
        return None
    return f"{choices.pick(('LOWER_BOUND', 'UPPER_BOUND', 'ERROR_BOUND'))}({call}, 0.9)"
