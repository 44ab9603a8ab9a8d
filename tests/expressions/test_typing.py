"""Overloads, implicit casts, result types and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from expression_kit import BIGINT, BOOLEAN, DATE, DOUBLE, DURATION, FLOAT, INT, STRING, TINYINT, call_type, dec, lit

from penstock.errors import PenstockError
from penstock.expressions.aggregates import build_aggregate
from penstock.expressions.calls.functions import build_call, is_aggregate, known_functions
from penstock.expressions.coercion import common_type
from penstock.expressions.nodes import Call, Cast, Column, Literal
from penstock.types import TIMESTAMP

NULL = pa.null()


@pytest.mark.parametrize(
    ("name", "types", "expected"),
    [
        ("ADD", ("TINYINT", "INT"), INT),
        ("ADD", ("BIGINT", "FLOAT"), FLOAT),
        ("ADD", ("DECIMAL(5,2)", "FLOAT"), DOUBLE),
        ("ADD", ("DECIMAL(5,2)", "DECIMAL(4,3)"), dec(7, 3)),
        ("ADD", ("DECIMAL(38,10)", "DECIMAL(38,10)"), dec(38, 9)),
        ("ADD", ("DECIMAL(5,2)", "INT"), dec(13, 2)),
        ("ADD", ("STRING", "INT"), DOUBLE),
        ("ADD", (lit(None), "INT"), INT),
        ("ADD", (lit(None), lit(None)), DOUBLE),
        ("ADD", ("DECIMAL(5,2)", lit(1)), dec(6, 2)),
        ("SUB", ("DATE", "DATE"), DURATION),
        ("SUB", ("TIMESTAMP", "DATE"), DURATION),
        ("SUB", ("DATE", lit(timedelta(days=1))), DATE),
        ("SUB", ("DATE", lit(timedelta(hours=1))), TIMESTAMP),
        ("MUL", ("DECIMAL(5,2)", "DECIMAL(4,3)"), dec(10, 5)),
        ("MUL", ("DECIMAL(38,10)", "DECIMAL(38,10)"), dec(38, 6)),
        ("MUL", ("DECIMAL(20,2)", "DECIMAL(20,2)"), dec(38, 4)),
        ("DIV", ("INT", "INT"), DOUBLE),
        ("DIV", ("FLOAT", "FLOAT"), DOUBLE),
        ("DIV", ("DECIMAL(5,2)", "DECIMAL(4,3)"), dec(13, 7)),
        ("DIV", ("DECIMAL(38,10)", "DECIMAL(38,10)"), dec(38, 6)),
        ("INT_DIV", ("INT", "TINYINT"), BIGINT),
        ("MOD", ("DECIMAL(5,2)", "DECIMAL(4,3)"), dec(4, 3)),
        ("COALESCE", ("INT", "DOUBLE"), DOUBLE),
        ("COALESCE", ("INT", "STRING"), STRING),
        ("COALESCE", ("DATE", "TIMESTAMP"), TIMESTAMP),
        ("COALESCE", ("DECIMAL(10,2)", "BIGINT"), dec(22, 2)),
        ("CASE", ("BOOLEAN", "TINYINT", lit(None)), TINYINT),
        ("ROUND", ("DECIMAL(5,3)", lit(1)), dec(4, 1)),
        ("ROUND", ("DECIMAL(5,3)", lit(5)), dec(6, 3)),
        ("ROUND", ("DECIMAL(5,3)", lit(-1)), dec(3, 0)),
        ("FLOOR", ("DECIMAL(5,3)",), dec(3, 0)),
        ("NEG", ("INT",), INT),
        ("IN", ("INT", "STRING"), BOOLEAN),
    ],
)  # fmt: skip
def test_result_types(name: str, types: tuple[object, ...], expected: pa.DataType) -> None:
    assert call_type(name, *types) == expected  # type: ignore[arg-type]


def test_integer_division_applies_to_integers_alone() -> None:
    assert call_type("DIV", "INT", "INT", integer_division=True) == BIGINT
    assert call_type("DIV", "INT", "DOUBLE", integer_division=True) == DOUBLE


def test_comparison_casts_the_narrower_side_only() -> None:
    call = build_call("GT", [Column(BIGINT, 0), lit(5)])
    assert isinstance(call, Call)
    assert call.arguments[0] == Column(BIGINT, 0)
    assert call.arguments[1] == Cast(BIGINT, lit(5))
    against_text = build_call("EQ", [Column(STRING, 0), Column(BIGINT, 1)])
    assert [a.type for a in against_text.arguments] == [DOUBLE, DOUBLE]  # type: ignore[attr-defined]
    nothing = build_call("EQ", [Column(INT, 0), lit(None)])
    assert nothing.arguments[1] == Literal(INT, None)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "types", "words"),
    [
        ("ADD", ("INT", "BOOLEAN"), "INT and BOOLEAN"),
        ("ADD", ("TIMESTAMP", "INT"), "TIMESTAMP and INT"),
        ("EQ", ("INT", "DATE"), "INT and DATE"),
        ("EQ", ("DATE", "INT"), "DATE and INT"),
        ("LT", ("INT", "BOOLEAN"), "INT and BOOLEAN"),
        ("GT", ("BOOLEAN", "DOUBLE"), "BOOLEAN and DOUBLE"),
        ("IN", ("INT", "STRING", "DATE"), "INT, STRING and DATE"),
        ("EQ", ("BOOLEAN", "DATE"), "BOOLEAN and DATE"),
        ("AND", ("BOOLEAN", "INT"), "BOOLEAN and INT"),
        ("AND", ("STRING", "BOOLEAN"), "STRING and BOOLEAN"),
        ("CASE", ("INT", "INT"), "INT"),
        ("COALESCE", ("INT", "BOOLEAN"), "INT and BOOLEAN"),
        ("SQRT", ("DATE",), "DATE"),
        ("YEAR", ("INT",), "INT"),
        ("HOUR", ("BOOLEAN",), "BOOLEAN"),
        ("BIT_AND", ("DOUBLE", "INT"), "DOUBLE and INT"),
        ("IS_NAN", ("INT",), "INT"),
        ("INT_DIV", ("DOUBLE", "INT"), "DOUBLE and INT"),
        ("NEG", ("DATE",), "DATE"),
        ("ROUND", ("DOUBLE", "INT"), "whole number literal"),
        ("DATE_TRUNC", (lit("fortnight"), "TIMESTAMP"), "fortnight"),
        ("DATE_FORMAT", ("TIMESTAMP", lit("yyyy-bb")), "letter b"),
        ("RLIKE", ("STRING", lit("(")), "malformed"),
        ("TO_DATE", ("INT",), "number"),
        ("UPPER", (lit(timedelta(1)),), "INTERVAL DAY TO SECOND"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit(name: str, types: tuple[object, ...], words: str) -> None:
    with pytest.raises(PenstockError) as error:
        call_type(name, *types)  # type: ignore[arg-type]
    assert error.value.code == "P0203"
    assert words in error.value.message
    assert error.value.position is None


def test_unknown_function_names_the_nearest() -> None:
    with pytest.raises(PenstockError) as error:
        build_call("UPPR", [lit("a")])
    assert error.value.code == "P0204"
    assert "UPPER" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("UPPER", 2, "takes 1 argument, not 2"),
        ("SUBSTRING", 1, "takes 2 or 3 arguments, not 1"),
        ("COALESCE", 0, "takes at least 1 argument, not 0"),
        ("LOG", 3, "takes 1 or 2 arguments, not 3"),
        ("PI", 1, "takes 0 arguments, not 1"),
    ],
)
def test_wrong_number_of_arguments(name: str, count: int, words: str) -> None:
    with pytest.raises(PenstockError) as error:
        build_call(name, [lit(1)] * count)
    assert error.value.code == "P0204"
    assert words in error.value.message
    assert name in (error.value.hint or "")


@pytest.mark.parametrize(
    ("name", "argument", "function", "cast", "result"),
    [
        ("COUNT", STRING, "COUNT", STRING, BIGINT),
        ("SUM", TINYINT, "SUM", BIGINT, BIGINT),
        ("SUM", FLOAT, "SUM", DOUBLE, DOUBLE),
        ("SUM", dec(10, 2), "SUM", dec(10, 2), dec(20, 2)),
        ("SUM", dec(38, 2), "SUM", dec(38, 2), dec(38, 2)),
        ("SUM", STRING, "SUM", DOUBLE, DOUBLE),
        ("avg", INT, "AVG", DOUBLE, DOUBLE),
        ("MEAN", dec(10, 2), "AVG", dec(10, 2), dec(14, 6)),
        ("AVG", dec(38, 10), "AVG", dec(38, 10), dec(38, 14)),
        ("MIN", STRING, "MIN", STRING, STRING),
        ("MAX", BOOLEAN, "MAX", BOOLEAN, BOOLEAN),
        ("STDDEV", INT, "STDDEV_SAMP", DOUBLE, DOUBLE),
        ("STD", INT, "STDDEV_SAMP", DOUBLE, DOUBLE),
        ("STDDEV_POP", dec(5, 1), "STDDEV_POP", DOUBLE, DOUBLE),
        ("VARIANCE", INT, "VAR_SAMP", DOUBLE, DOUBLE),
        ("VAR_POP", FLOAT, "VAR_POP", DOUBLE, DOUBLE),
        ("MEDIAN", INT, "QUANTILE", DOUBLE, DOUBLE),
        ("MODE", STRING, "MODE", STRING, STRING),
        ("ARRAY_AGG", DATE, "ARRAY_AGG", DATE, pa.list_(DATE)),
        ("collect_list", dec(5, 1), "ARRAY_AGG", dec(5, 1), pa.list_(dec(5, 1))),
    ],
)
def test_aggregates(name: str, argument: pa.DataType, function: str, cast: pa.DataType, result: pa.DataType) -> None:
    call = build_aggregate(name, [Column(argument, 0)])
    assert (call.function, call.arguments[0].type, call.type) == (function, cast, result)
    assert is_aggregate(name)


def test_aggregate_modifiers() -> None:
    assert build_aggregate("COUNT", []).arguments == ()
    assert build_aggregate("COUNT", [Column(INT, 0)], distinct=True).distinct
    assert not build_aggregate("MIN", [Column(INT, 0)], distinct=True).distinct
    assert build_aggregate("SUM", [Column(INT, 0)], filter=lit(None)).filter == Literal(BOOLEAN, None)
    assert len(build_aggregate("COUNT", [Column(INT, 0), Column(STRING, 1)], distinct=True).arguments) == 2


def test_aggregates_with_a_constant() -> None:
    top = build_aggregate("TOP_K", [Column(STRING, 0), lit(3)])
    assert top.type == pa.list_(pa.struct([("value", STRING), ("count", BIGINT)]))
    half = build_aggregate("percentile", [Column(INT, 0), lit(0.5)])
    assert half == build_aggregate("MEDIAN", [Column(INT, 0)])


def test_first_and_last_take_the_timestamp() -> None:
    first = build_aggregate("FIRST_VALUE", [Column(STRING, 0)], distinct=True, order=Column(BIGINT, 1))
    assert (first.function, first.type, first.distinct) == ("FIRST", STRING, False)
    assert first.arguments == (Column(STRING, 0), Column(BIGINT, 1))


@pytest.mark.parametrize(
    ("code", "name", "arguments", "distinct", "condition"),
    [
        ("P0203", "SUM", [Column(DATE, 0)], False, None),
        ("P0203", "STDDEV", [Column(BOOLEAN, 0)], False, None),
        ("P0203", "MAX", [Column(pa.list_(INT), 0)], False, None),
        ("P0203", "COUNT", [Column(pa.list_(INT), 0)], False, None),
        ("P0203", "SUM", [Column(INT, 0)], False, Column(INT, 1)),
        ("P0204", "SUM", [], False, None),
        ("P0204", "COUNT", [Column(INT, 0), Column(INT, 1)], False, None),
        ("P0204", "COUNT", [], True, None),
        ("P0204", "SUMM", [Column(INT, 0)], False, None),
        ("P0204", "percentile_cont", [Column(INT, 0)], False, None),
        ("P0901", "collect_set", [Column(INT, 0)], False, None),
        ("P0204", "percentile_approx", [Column(INT, 0)], False, None),
        ("P0203", "MEDIAN", [Column(DATE, 0)], False, None),
        ("P0203", "MODE", [Column(pa.list_(INT), 0)], False, None),
        ("P0203", "QUANTILE", [Column(INT, 0), Column(INT, 1)], False, None),
        ("P0203", "QUANTILE", [Column(INT, 0), lit(1.5)], False, None),
        ("P0203", "QUANTILE", [Column(INT, 0), lit(None)], False, None),
        ("P0203", "TOP_K", [Column(INT, 0), lit(0)], False, None),
        ("P0203", "TOP_K", [Column(INT, 0), lit(1.5)], False, None),
        ("P0204", "TOP_K", [Column(INT, 0)], False, None),
        ("P0204", "MEDIAN", [Column(INT, 0), lit(0.5)], False, None),
        ("P0304", "FIRST", [Column(INT, 0)], False, None),
    ],
)  # fmt: skip
def test_refused_aggregates(
    code: str, name: str, arguments: list[Column], distinct: bool, condition: Column | None
) -> None:
    with pytest.raises(PenstockError) as error:
        build_aggregate(name, arguments, distinct, condition)
    assert error.value.code == code


def test_names() -> None:
    assert {"UPPER", "SUM", "SUBSTR"} <= set(known_functions())
    assert not {"ADD", "CASE", "TRY_CAST"} & set(known_functions())
    assert is_aggregate("median")
    assert not is_aggregate("UPPER")


def test_common_type_of_a_union() -> None:
    assert common_type([INT, NULL, BIGINT]) == BIGINT
    assert common_type([dec(5, 2), dec(4, 3)]) == dec(6, 3)
    assert common_type([BOOLEAN, INT]) is None
    assert common_type([Literal(INT, 1).type, STRING]) == STRING
