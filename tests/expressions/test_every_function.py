"""One table with at least one case for each function of the registry, its expected values written by hand.

Each case runs over whole columns, slices, single rows, no rows and literals, folded and not (`expression_kit.run`).
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from expression_kit import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    INF,
    INT,
    NAN,
    STRING,
    TINYINT,
    Values,
    all_same,
    at,
    bind,
    call,
    checked,
    clock,
    col,
    day,
    dec,
    lit,
)

from penstock.expressions.calls.functions import build_call, known_functions
from penstock.expressions.library import TABLE
from penstock.expressions.nodes import Literal
from penstock.types import TIMESTAMP, WALL_CLOCK

T, F, N = True, False, None
D = Decimal

CASES: list[tuple[str, tuple[Any, ...], list[Any]]] = [
    # arithmetic
    ("ADD", (col(INT, 1, N, 2**31 - 1), lit(1)), [2, N, -(2**31)]),
    ("ADD", (col(TINYINT, 127, -1), col(TINYINT, 1, 1)), [-128, 0]),
    ("ADD", (col(INT, 1), lit(0.5)), [1.5]),
    ("ADD", (col(STRING, "1", "x", " 2 "), lit(1)), [2.0, N, 3.0]),
    ("ADD", (col(dec(4, 2), D("99.99"), N), col(dec(3, 1), D("0.1"), D("1.0"))), [D("100.09"), N]),
    ("ADD", (col(dec(38, 0), D(10**38 - 1), D(1)), lit(D(1))), [N, D(2)]),
    ("ADD", (col(TIMESTAMP, at("2013-01-01"), N), lit(timedelta(hours=1))), [at("2013-01-01T01:00"), N]),
    ("ADD", (lit(timedelta(days=1)), col(DATE, day("2013-01-01"))), [day("2013-01-02")]),
    ("ADD", (col(DATE, day("2013-01-01")), lit(timedelta(hours=1))), [at("2013-01-01T01:00")]),
    ("ADD", (col(DATE, day("2013-01-01"), N), lit(31)), [day("2013-02-01"), N]),
    ("SUB", (col(BIGINT, -(2**63), 5), lit(1)), [2**63 - 1, 4]),
    ("SUB", (col(dec(5, 2), D("1.00"), N), lit(D("0.05"))), [D("0.95"), N]),
    ("SUB", (col(TIMESTAMP, at("2013-01-02"), N), lit(timedelta(seconds=1))), [at("2013-01-01T23:59:59"), N]),
    ("SUB", (col(TIMESTAMP, at("2013-01-02")), col(TIMESTAMP, at("2013-01-01"))), [timedelta(days=1)]),
    ("SUB", (col(DATE, day("2013-03-01")), col(DATE, day("2013-02-01"))), [timedelta(days=28)]),
    ("MUL", (col(INT, 2**30, 3, N), lit(4)), [0, 12, N]),
    ("MUL", (col(dec(3, 2), D("1.25"), N), lit(D("0.5"))), [D("0.625"), N]),
    ("MUL", (col(dec(38, 10), D("1.5"), D(10**27)), col(dec(38, 10), D("2"), D(10**27))), [D("3.000000"), N]),
    ("MUL", (lit(timedelta(seconds=2)), col(INT, 3, N)), [timedelta(seconds=6), N]),
    ("DIV", (col(INT, 5, 1, -1, N), col(INT, 2, 0, 4, 1)), [2.5, N, -0.25, N]),
    ("DIV", (col(DOUBLE, 1.0, NAN, -1.0), col(DOUBLE, 0.0, 1.0, -0.0)), [N, NAN, N]),
    ("DIV", (col(dec(4, 2), D("1.00"), D(2), D(1), N), col(dec(4, 2), D("3.00"), D(-3), D(0), D(1))),
     [D("0.3333333"), D("-0.6666667"), N, N]),
    ("INT_DIV", (col(INT, 7, -7, 7, 1, N), col(INT, 2, 2, -2, 0, 1)), [3, -3, -3, N, N]),
    ("INT_DIV", (col(BIGINT, -(2**63), 9), lit(-1)), [-(2**63), -9]),
    ("INT_DIV", (col(dec(3, 1), D("1.5"), D(1)), col(dec(3, 1), D("0.4"), D(0))), [3, N]),
    ("MOD", (col(INT, 7, -7, 7, 1, N), col(INT, 3, 3, -3, 0, 1)), [1, -1, 1, N, N]),
    ("MOD", (col(BIGINT, -(2**63)), lit(-1)), [0]),
    ("MOD", (col(DOUBLE, 7.5, -7.5, 1.0, NAN), lit(2.0)), [1.5, -1.5, 1.0, NAN]),
    ("MOD", (col(dec(4, 2), D("7.50"), D("-7.50"), N), lit(D(2))), [D("1.50"), D("-1.50"), N]),
    ("MOD", (col(dec(38, 0), D(10**37 + 3), D(1)), col(dec(38, 0), D(10), D(0))), [D(3), N]),
    ("PMOD", (col(INT, -7, 7, 1, N), col(INT, 3, 3, 0, 1)), [2, 1, N, N]),
    ("PMOD", (col(dec(4, 2), D("-7.50"), D(1)), lit(D(2))), [D("0.50"), D("1.00")]),
    ("PMOD", (col(DOUBLE, -7.5, 7.5), lit(2.0)), [0.5, 1.5]),
    ("NEG", (col(INT, 1, N, -(2**31)),), [-1, N, -(2**31)]),
    ("NEG", (col(DOUBLE, 0.0, -1.5),), [-0.0, 1.5]),
    ("NEG", (col(dec(3, 1), D("1.5"), N),), [D("-1.5"), N]),
    # comparison
    ("EQ", (col(INT, 1, 2, N), lit(1)), [T, F, N]),
    ("EQ", (col(DOUBLE, NAN, 0.0, 1.0), col(DOUBLE, NAN, -0.0, NAN)), [T, T, F]),
    ("EQ", (col(STRING, "1", "1.0", "x", N), lit(1)), [T, T, N, N]),
    ("EQ", (col(DATE, day("2013-01-01"), N), lit("2013-01-01")), [T, N]),
    ("EQ", (col(BOOLEAN, T, F, N), lit(T)), [T, F, N]),
    ("EQ", (col(BOOLEAN, T, F, N), lit(1)), [T, F, N]),
    ("EQ", (col(dec(5, 2), D("1.50"), N), col(dec(3, 1), D("1.5"), D(1))), [T, N]),
    ("EQ", (col(STRING, "tcp", "udp", "tcpx", "tc", "", N, "tcp"), lit("tcp")), [T, F, F, F, F, N, T]),
    ("EQ", (col(STRING, "", "x", N), lit("")), [T, F, N]),
    ("EQ", (col(STRING, "ü", "u", N), lit("ü")), [T, F, N]),
    ("EQ", (col(STRING, "longer than 8", "longer than 9", N), lit("longer than 8")), [T, F, N]),
    ("NE", (col(STRING, "tcp", "udp", N), lit("tcp")), [F, T, N]),
    ("NE", (col(DOUBLE, NAN, NAN, 1.0, N), col(DOUBLE, NAN, 1.0, 1.0, 1.0)), [F, T, F, N]),
    ("LT", (col(DOUBLE, NAN, 1.0, 1.0, N), col(DOUBLE, 1.0, NAN, 2.0, 1.0)), [F, T, T, N]),
    ("LE", (col(DOUBLE, NAN, 1.0, NAN, INF), col(DOUBLE, NAN, NAN, 1.0, NAN)), [T, T, F, T]),
    ("GT", (col(DOUBLE, NAN, 1.0, NAN, N, 3.0), lit(2.0)), [T, F, T, N, T]),
    ("GT", (col(INT, 1, 2), lit(D("1.5"))), [F, T]),
    ("GT", (col(TIMESTAMP, at("2013-01-02"), at("2012-01-01")), lit("2013-01-01")), [T, F]),
    ("GE", (col(DOUBLE, NAN, 1.0, NAN), col(DOUBLE, NAN, NAN, 1.0)), [T, F, T]),
    ("GE", (col(DATE, day("2013-01-02")), col(TIMESTAMP, at("2013-01-02T01:00"))), [F]),
    ("EQ_NULL_SAFE", (col(INT, 1, N, N, 1), col(INT, 1, N, 1, 2)), [T, T, F, F]),
    ("EQ_NULL_SAFE", (col(INT, 1, N), lit(N)), [F, T]),
    ("IN", (col(INT, 1, 2, N), lit(1), lit(3)), [T, F, N]),
    ("IN", (col(INT, 1, 2, N), lit(1), lit(N)), [T, N, N]),
    ("IN", (col(DOUBLE, NAN, -0.0, 1.0), lit(NAN), lit(0.0)), [T, T, F]),
    ("IN", (col(STRING, "a", "b", N), lit("a"), lit("c")), [T, F, N]),
    ("IN", (col(INT, 1, 2, 3), col(INT, 1, 1, N), lit(5)), [T, F, N]),
    ("IS_NAN", (col(DOUBLE, NAN, 1.0, N),), [T, F, F]),
    # logic
    ("AND", (col(BOOLEAN, T, T, T, F, F, N), col(BOOLEAN, T, F, N, F, N, N)), [T, F, N, F, F, N]),
    ("OR", (col(BOOLEAN, T, T, T, F, F, N), col(BOOLEAN, T, F, N, F, N, N)), [T, T, T, F, N, N]),
    ("NOT", (col(BOOLEAN, T, F, N),), [F, T, N]),
    ("IS_NULL", (col(STRING, "a", N),), [F, T]),
    ("IS_NOT_NULL", (col(STRING, "a", N),), [T, F]),
    # conditions
    ("CASE", (col(BOOLEAN, T, F, N), lit("yes"), lit("no")), ["yes", "no", "no"]),
    ("CASE", (col(BOOLEAN, T, F, F), lit(1), col(BOOLEAN, T, T, N), lit(2)), [1, 2, N]),
    ("CASE", (col(BOOLEAN, T, F), col(INT, 1, 1), lit(2.5)), [1.0, 2.5]),
    ("CASE", (lit(N), lit(1), col(INT, 2, N)), [2, N]),
    ("IF", (col(BOOLEAN, T, F, N), lit(1), lit(2)), [1, 2, 2]),
    ("COALESCE", (col(INT, 1, N, N), col(INT, 9, 2, N), lit(3)), [1, 2, 3]),
    ("COALESCE", (lit(N), col(STRING, N, "x"), lit("y")), ["y", "x"]),
    ("NVL", (col(INT, 1, N), lit(2.5)), [1.0, 2.5]),
    ("NVL2", (col(INT, 1, N), lit("set"), lit("not")), ["set", "not"]),
    ("NULLIF", (col(INT, 1, 2, N), lit(1)), [N, 2, N]),
    ("NULLIF", (col(STRING, "1", "x"), lit(1)), [N, "x"]),
    ("GREATEST", (col(DOUBLE, 1.0, NAN, N, N), col(DOUBLE, 2.0, 1.0, 3.0, N)), [2.0, NAN, 3.0, N]),
    ("GREATEST", (col(STRING, "a", N), lit("b")), ["b", "b"]),
    ("GREATEST", (col(BOOLEAN, F, N), lit(T)), [T, T]),
    ("LEAST", (col(DOUBLE, 1.0, NAN, N), col(DOUBLE, 2.0, 1.0, 3.0)), [1.0, 1.0, 3.0]),
    ("LEAST", (col(INT, 1, N), lit(D("0.5"))), [D("0.5"), D("0.5")]),
    # mathematics
    ("ABS", (col(INT, -1, N, -(2**31)),), [1, N, -(2**31)]),
    ("ABS", (col(dec(3, 1), D("-1.5"), N),), [D("1.5"), N]),
    ("ROUND", (col(DOUBLE, 2.675, -0.5, 0.5, 1.005, NAN, INF, N, 2.5), lit(2)),
     [2.68, -0.5, 0.5, 1.01, NAN, INF, N, 2.5]),
    ("ROUND", (col(DOUBLE, 2.5, -2.5, -0.4, 1e300, 0.49999999999999994),), [3.0, -3.0, -0.0, 1e300, 0.0]),
    ("ROUND", (col(DOUBLE, 155.0, -155.0), lit(-1)), [160.0, -160.0]),
    ("ROUND", (col(INT, 155, -155, 149, N), lit(-1)), [160, -160, 150, N]),
    ("ROUND", (col(dec(5, 3), D("1.235"), D("-1.235"), D("99.999"), N), lit(2)),
     [D("1.24"), D("-1.24"), D("100.00"), N]),
    ("BROUND", (col(DOUBLE, 2.5, 3.5, -2.5, N),), [2.0, 4.0, -2.0, N]),
    ("BROUND", (col(INT, 25, 35, -25), lit(-1)), [20, 40, -20]),
    ("BROUND", (col(dec(2, 1), D("2.5"), D("3.5")),), [D(2), D(4)]),
    ("FLOOR", (col(DOUBLE, 1.5, -1.5, N, INF, NAN),), [1, -2, N, 2**63 - 1, 0]),
    ("FLOOR", (col(dec(3, 1), D("1.5"), D("-1.5"), N),), [D(1), D(-2), N]),
    ("CEIL", (col(DOUBLE, 1.5, -1.5, N),), [2, -1, N]),
    ("CEIL", (col(dec(2, 1), D("9.5")),), [D(10)]),
    ("SQRT", (col(DOUBLE, 4.0, -1.0, N),), [2.0, NAN, N]),
    ("CBRT", (col(INT, 27, N),), [3.0, N]),
    ("POWER", (col(INT, 2, N), lit(10)), [1024.0, N]),
    ("EXP", (col(INT, 0, N),), [1.0, N]),
    ("EXPM1", (col(INT, 0, N),), [0.0, N]),
    ("LN", (col(INT, 1, 0, -1, N),), [0.0, N, N, N]),
    ("LOG", (col(INT, 1, 0, N),), [0.0, N, N]),
    ("LOG", (lit(2), col(INT, 8, 0)), [3.0, N]),
    ("LOG10", (col(INT, 1000, 0),), [3.0, N]),
    ("LOG2", (col(INT, 8, 0),), [3.0, N]),
    ("LOG1P", (col(INT, 0, -1),), [0.0, N]),
    ("SIGN", (col(INT, -5, 0, 5, N),), [-1.0, 0.0, 1.0, N]),
    ("FACTORIAL", (col(INT, 0, 5, 20, 21, -1, N),), [1, 120, 2432902008176640000, N, N, N]),
    ("HYPOT", (col(INT, 3, N), lit(4)), [5.0, N]),
    ("SIN", (col(INT, 0, N),), [0.0, N]),
    ("COS", (col(INT, 0),), [1.0]),
    ("TAN", (col(INT, 0),), [0.0]),
    ("COT", (col(INT, 0),), [INF]),
    ("ASIN", (col(INT, 0, 2),), [0.0, NAN]),
    ("ACOS", (col(INT, 1, 2),), [0.0, NAN]),
    ("ATAN", (col(INT, 0),), [0.0]),
    ("ATAN2", (col(INT, 0), lit(1)), [0.0]),
    ("SINH", (col(INT, 0),), [0.0]),
    ("COSH", (col(INT, 0),), [1.0]),
    ("TANH", (col(INT, 0),), [0.0]),
    ("DEGREES", (col(DOUBLE, 3.141592653589793),), [180.0]),
    ("RADIANS", (col(INT, 180),), [3.141592653589793]),
    ("PI", (), [3.141592653589793]),
    ("E", (), [2.718281828459045]),
    # bits and digests
    ("BIT_AND", (col(INT, 6, N), lit(3)), [2, N]),
    ("BIT_OR", (col(INT, 6, N), lit(1)), [7, N]),
    ("BIT_XOR", (col(BIGINT, 6, N), lit(3)), [5, N]),
    ("BIT_NOT", (col(INT, 0, N),), [-1, N]),
    ("BIT_COUNT", (col(INT, 7, -1, N),), [3, 64, N]),
    ("SHIFTLEFT", (col(INT, 1, 1, N), col(INT, 31, 33, 1)), [-(2**31), 2, N]),
    ("SHIFTRIGHT", (col(INT, -8, N), lit(1)), [-4, N]),
    ("SHIFTRIGHTUNSIGNED", (col(INT, -1, N), lit(28)), [15, N]),
    ("HEX", (col(BIGINT, 255, -1, N),), ["FF", "F" * 16, N]),
    ("HEX", (col(STRING, "Az", N),), ["417A", N]),
    ("UNHEX", (col(STRING, "417A", "F", "zz", N),), [b"Az", b"\x0f", N, N]),
    ("MD5", (col(STRING, "", N),), ["d41d8cd98f00b204e9800998ecf8427e", N]),
    ("SHA1", (col(STRING, "", N),), ["da39a3ee5e6b4b0d3255bfef95601890afd80709", N]),
    ("SHA2", (col(STRING, "", N), lit(224)), ["d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f", N]),
    ("SHA2", (col(STRING, ""), lit(1)), [N]),
    ("CRC32", (col(STRING, "Spark", N),), [1557323817, N]),
    ("BASE64", (col(BINARY, b"Spark", N),), ["U3Bhcms=", N]),
    ("UNBASE64", (col(STRING, "U3Bhcms=", N),), [b"Spark", N]),
    # strings
    ("UPPER", (col(STRING, "aß", N),), ["ASS", N]),
    ("LOWER", (col(STRING, "ΟΔΟΣ", "AÄ", N),), ["οδος", "aä", N]),
    ("LOWER", (col(STRING, "AÉ", N),), ["aé", N]),
    ("LENGTH", (col(STRING, "aé😀", "", N),), [3, 0, N]),
    ("LENGTH", (col(BINARY, b"abc", N),), [3, N]),
    ("LENGTH", (col(INT, 123, N),), [3, N]),
    ("OCTET_LENGTH", (col(STRING, "é", N),), [2, N]),
    ("CONCAT", (col(STRING, "a", N), lit("b"), col(INT, 1, 2)), ["ab1", N]),
    ("CONCAT", (col(STRING, "a", N),), ["a", N]),
    ("CONCAT_WS", (lit("-"), col(STRING, "a", N, N), col(STRING, "b", "c", N)), ["a-b", "c", ""]),
    ("CONCAT_WS", (col(STRING, ",", N), lit("a"), lit("b")), ["a,b", N]),
    ("SUBSTRING", (col(STRING, "Spark", "é😀x", "", N), lit(2), lit(2)), ["pa", "😀x", "", N]),
    ("SUBSTRING", (col(STRING, "Spark", "a", N), lit(-3)), ["ark", "a", N]),
    ("SUBSTRING", (col(STRING, "Spark", "Spark"), col(INT, 0, -9), lit(5)), ["Spark", "S"]),
    ("SUBSTRING", (col(STRING, "Spark"), lit(2), lit(-1)), [""]),
    ("LEFT", (col(STRING, "Spark", N), lit(2)), ["Sp", N]),
    ("RIGHT", (col(STRING, "Spark", N), lit(2)), ["rk", N]),
    ("RIGHT", (col(STRING, "Spark"), lit(0)), [""]),
    ("TRIM", (col(STRING, "  a b ", "\ta", N),), ["a b", "\ta", N]),
    ("TRIM", (col(STRING, "xxaxx", N), lit("x")), ["a", N]),
    ("LTRIM", (col(STRING, "  a ", N),), ["a ", N]),
    ("RTRIM", (col(STRING, "  a ", N),), ["  a", N]),
    ("REPLACE", (col(STRING, "aba", N), lit("a"), lit("xy")), ["xybxy", N]),
    ("REPLACE", (col(STRING, "aba", N), lit("a")), ["b", N]),
    ("REPLACE", (col(STRING, "aba"), lit(""), lit("x")), ["aba"]),
    ("TRANSLATE", (col(STRING, "AaBbCc", N), lit("abc"), lit("12")), ["A1B2C", N]),
    ("STARTSWITH", (col(STRING, "Spark", "x", N), lit("Sp")), [T, F, N]),
    ("STARTSWITH", (col(STRING, "Spark", "x"), col(STRING, "Sp", N)), [T, N]),
    ("ENDSWITH", (col(STRING, "Spark", "x", N), lit("rk")), [T, F, N]),
    ("CONTAINS", (col(STRING, "Spark", "x", N), lit("par")), [T, F, N]),
    ("SPLIT_PART", (col(STRING, "a.b.c", "a", N), lit("."), lit(2)), ["b", "", N]),
    ("SPLIT_PART", (col(STRING, "a.b.c", "a"), lit("."), col(INT, -1, 0)), ["c", N]),
    ("SUBSTRING_INDEX", (col(STRING, "a.b.c", N), lit("."), lit(2)), ["a.b", N]),
    ("SUBSTRING_INDEX", (col(STRING, "a.b.c"), lit("."), lit(-2)), ["b.c"]),
    ("LPAD", (col(STRING, "hi", "hello", N), lit(4), lit("?!")), ["?!hi", "hell", N]),
    ("LPAD", (col(STRING, "hi", "hello", N), lit(4)), ["  hi", "hell", N]),
    ("RPAD", (col(STRING, "hi", "hello", N), lit(4), lit("x")), ["hixx", "hell", N]),
    ("REPEAT", (col(STRING, "ab", "c", N), lit(2)), ["abab", "cc", N]),
    ("REPEAT", (col(STRING, "ab"), lit(2**30)), [N]),
    ("LPAD", (col(STRING, "ab"), lit(2**30)), [N]),
    ("RPAD", (col(STRING, "ab"), lit(2**20 + 1), lit("xy")), [N]),
    ("SPACE", (lit(2**31 - 1),), [N]),
    ("SPACE", (col(INT, 2, -1, N),), ["  ", "", N]),
    ("REVERSE", (col(STRING, "abé", N),), ["éba", N]),
    ("INSTR", (col(STRING, "Spark", "x", N), lit("ar")), [3, 0, N]),
    ("LOCATE", (lit("a"), col(STRING, "banana", "x", N)), [2, 0, N]),
    ("LOCATE", (lit("a"), col(STRING, "banana"), lit(3)), [4]),
    ("INITCAP", (col(STRING, "sPark sql", N),), ["Spark Sql", N]),
    ("ASCII", (col(STRING, "a", "", N),), [97, 0, N]),
    ("CHR", (col(INT, 65, -1, 321, N),), ["A", "", "A", N]),
    ("LEVENSHTEIN", (col(STRING, "kitten", N), lit("sitting")), [3, N]),
    # patterns
    ("LIKE", (col(STRING, "abc", "xab", "ab", "a\nb", N), lit("ab%")), [T, F, T, F, N]),
    ("LIKE", (col(STRING, "abc", "xab"), lit("%ab")), [F, T]),
    ("LIKE", (col(STRING, "xabx", "ba"), lit("%ab%")), [T, F]),
    ("LIKE", (col(STRING, "a\nb", "ab", "aéb", "a.b"), lit("a_b")), [T, F, T, T]),
    ("LIKE", (col(STRING, "a%b", "axb", N), lit(r"a\%b")), [T, F, N]),
    ("LIKE", (col(STRING, "a%b", "axb"), lit("a!%b"), lit("!")), [T, F]),
    ("LIKE", (col(STRING, "abc", "abc", N, "a"), col(STRING, "a%", "b%", "%", N)), [T, F, N, N]),
    ("LIKE", (col(STRING, "", "a"), lit("")), [T, F]),
    ("LIKE", (col(STRING, "", "a", N), lit("%")), [T, T, N]),
    ("LIKE", (col(STRING, r"a\z", "az"), lit(r"a\\z")), [T, F]),
    ("ILIKE", (col(STRING, "ABC", "b", N), lit("a%c")), [T, F, N]),
    ("ILIKE", (col(STRING, "ABC", "b"), lit("abc")), [T, F]),
    ("RLIKE", (col(STRING, "abc", "b", N), lit("^a.c$")), [T, F, N]),
    ("RLIKE", (col(STRING, "aa", "ab", "ab"), col(STRING, r"(.)\1", "(?=a)", "a(?-i:B|b)")), [N, N, T]),
    ("RLIKE", (col(STRING, "aa", "ab"), col(STRING, "(", "b")), [N, T]),
    ("REGEXP_REPLACE", (col(STRING, "a1b22", N), lit(r"\d+"), lit("#")), ["a#b#", N]),
    ("REGEXP_REPLACE", (col(STRING, "100-200"), lit(r"(\d+)-(\d+)"), lit("$2/$1")), ["200/100"]),
    ("REGEXP_EXTRACT", (col(STRING, "100-200", "x", N), lit(r"(\d+)-(\d+)"), lit(2)), ["200", "", N]),
    ("REGEXP_EXTRACT", (col(STRING, "100-200"), lit(r"(\d+)-")), ["100"]),
    ("REGEXP_EXTRACT", (col(STRING, "xaabb", "b", N), lit("(a+)(b)?"), lit(0)), ["aab", "", N]),
    ("REGEXP_EXTRACT", (col(STRING, "x\na-b\ny"), lit("(?m)^(a|b)-(.)$"), lit(2)), ["b"]),
    ("REGEXP_EXTRACT", (col(STRING, "a.b", "axb"), lit(r"(\w)\Q.b")), ["a", ""]),
    ("REGEXP_EXTRACT", (col(STRING, "abc", "abc", "abc", N), col(STRING, "b(c)", "(", "(a)", "a"),
     col(INT, 1, 1, 7, 1)), ["c", N, N, N]),
    ("REGEXP_REPLACE", (col(STRING, "a.b", "a.b"), lit("(a)."), col(STRING, r"\$1$1\\", "$4")), [r"$1a\b", N]),
    ("REGEXP_REPLACE", (col(STRING, "abc"), lit("x*"), lit("-")), ["-a-b-c-"]),
    ("REGEXP_COUNT", (col(STRING, "a1b22", N), lit(r"\d")), [3, N]),
    ("GET_JSON_OBJECT", (col(STRING, '{"a": {"b": "x"}}', '{"a": 5}', "{", N), lit("$.a.b")), ["x", N, N, N]),
    ("GET_JSON_OBJECT", (col(STRING, '{"a": [1, {"b" : null}]}'), col(STRING, "$.a")), ['[1,{"b":null}]']),
    ("GET_JSON_OBJECT", (lit('{"c d": 1.50e3, "e": "é"}'), col(STRING, "$['c d']", "$.e", "$.x", "no", N)),
     ["1.50e3", "é", N, N, N]),
    ("JSON_VALUE", (col(STRING, '{"a": true}', '{"a": [1]}', '{"a": null}', "nope"), lit("$.a")), ["true", N, N, N]),
    ("JSON_GET", (col(STRING, '{"a": "x"}', '{"a": null}', '["a"]', N), lit("a")), ['"x"', "null", N, N]),
    ("JSON_GET", (col(STRING, "[1, [2]]", "[]", "{}"), lit(-1)), ["[2]", N, N]),
    ("JSON_GET_TEXT", (col(STRING, '{"a": "x"}', '{"a": null}', "[10]"), col(STRING, "a", "a", "0")), ["x", N, N]),
    ("JSON_GET_TEXT", (col(STRING, "[10]", '{"0": 1}', "[10]"), col(INT, 0, 0, 1)), ["10", N, N]),
    ("REGEXP_COUNT", (lit("a1b22"), col(STRING, r"\d", "[", N)), [3, N, N]),
    ("LIKE", (lit("a%c"), col(STRING, "a!%_", "a%!"), lit("!")), [T, F]),
    ("ILIKE", (col(STRING, "ABÉ", "abx", N), col(STRING, "_bé", "%X", "a")), [T, T, N]),
    # dates
    ("YEAR", (col(DATE, day("2013-05-06"), N),), [2013, N]),
    ("YEAR", (col(STRING, "2013-05-06", "x"),), [2013, N]),
    ("QUARTER", (col(DATE, day("2013-05-06")),), [2]),
    ("MONTH", (col(TIMESTAMP, at("2013-05-06T01:02:03")),), [5]),
    ("DAY", (col(TIMESTAMP, at("2013-05-06T01:02:03"), N),), [6, N]),
    ("DAYOFWEEK", (col(DATE, day("2013-05-05"), day("2013-05-06"), N),), [1, 2, N]),
    ("WEEKDAY", (col(DATE, day("2013-05-06"), day("2013-05-05")),), [0, 6]),
    ("DAYOFYEAR", (col(DATE, day("2013-02-01")),), [32]),
    ("WEEKOFYEAR", (col(DATE, day("2013-01-01"), day("2012-12-30")),), [1, 52]),
    ("HOUR", (col(TIMESTAMP, at("2013-05-06T01:02:03"), at("1969-12-31T23:00"), N),), [1, 23, N]),
    ("MINUTE", (col(TIMESTAMP, at("2013-05-06T01:02:03")),), [2]),
    ("SECOND", (col(TIMESTAMP, at("2013-05-06T01:02:03.999")),), [3]),
    ("HASH", (col(INT, 1, N),), [-559580957, 42]),
    ("HASH", (col(STRING, "", "a", N), lit(1)), [990749207, 532252686, -559580957]),
    ("HASH", (col(INT, 1, N), col(STRING, "a", "a")), [-936062819, 1485273170]),
    ("XXHASH64", (col(BIGINT, 1, N),), [-7001672635703045582, 42]),
    ("XXHASH64", (col(INT, 1), lit("a")), [8205864924878002737]),
    ("XXHASH64", (col(DOUBLE, 0.0, -0.0),), [-5252525462095825812, -5252525462095825812]),
    ("FORMAT_STRING", (lit("%s: %05d|%.2f"), col(STRING, "a", N), col(INT, -42, N), col(DOUBLE, 1.005, N)),
     ["a: -0042|1.01", "null:  null|nu"]),
    ("FORMAT_STRING", (col(STRING, "%d", "%x", "%q", "%2$d", N), lit(-1)), ["-1", "ffffffff", N, N, N]),
    ("FORMAT_STRING", (lit("%,d %(d %+d % d %-4d|%o"), *[col(INT, -1234567)] * 4, lit(5), lit(8)),
     ["-1,234,567 (1234567) -1234567 -1234567 5   |10"]),
    ("FORMAT_STRING", (lit("%e %.3E %g %g"), *[col(DOUBLE, 12345.678, 0.0, NAN)] * 4),
     ["1.234568e+04 1.235E+04 12345.7 12345.7", "0.000000e+00 0.000E+00 0.00000 0.00000", "NaN NAN NaN NaN"]),
    ("FORMAT_STRING", (lit("%b %B %c %S %2$s %<s%%%n"), col(BOOLEAN, T, N), lit(F), lit(65), lit("x")),
     ["true FALSE A X false false%\n", "false FALSE A X false false%\n"]),
    ("FORMAT_STRING", (lit("%.2f %s"), col(dec(10, 3), D("12.345"), D("-0.004")), col(BOOLEAN, T, N)),
     ["12.35 true", "-0.00 null"]),
    ("PARSE_URL", (col(STRING, "http://a.org/p?k=1&x=2#r", "no url", N), lit("QUERY"), lit("x")), ["2", N, N]),
    ("PARSE_URL", (lit("http://u@a.org:80/p"), col(STRING, "HOST", "USERINFO", "REF", "host")), ["a.org", "u", N, N]),
    ("URL_ENCODE", (col(STRING, "a b&ü~*", "", N),), ["a+b%26%C3%BC%7E*", "", N]),
    ("URL_DECODE", (col(STRING, "a+b%26%C3%BC", "%4", "%zz", N),), ["a b&ü", N, N, N]),
    (
        "DATE_BIN",
        (lit(timedelta(minutes=15)), col(TIMESTAMP, at("2013-05-06T01:29:59"), at("1969-12-31T23:59:59"), N)),
        [at("2013-05-06T01:15"), at("1969-12-31T23:45"), N],
    ),
    (
        "DATE_BIN",
        (col(DURATION, timedelta(days=7), timedelta(0)), lit(at("2013-05-06T01:00")), lit(at("2013-05-04T12:00"))),
        [at("2013-05-04T12:00"), N],
    ),
    ("TIMESTAMPADD", (lit("MONTH"), col(INT, 1, N), lit(at("2013-01-31T01:00"))), [at("2013-02-28T01:00"), N]),
    ("TIMESTAMPADD", (lit("hour"), col(INT, -25, N), lit(at("2013-01-01"))), [at("2012-12-30T23:00"), N]),
    ("TIMESTAMPADD", (Literal(STRING, N), col(INT, 1), lit(at("2013-01-01"))), [N]),
    (
        "TIMESTAMPDIFF",
        (lit("DAY"), lit(at("2013-01-01T12:00")), col(TIMESTAMP, at("2013-01-03T11:59"), at("2012-12-31T12:01"), N)),
        [1, 0, N],
    ),
    ("DATE_TRUNC", (lit("HOUR"), col(TIMESTAMP, at("2013-05-06T01:02:03"), N)), [at("2013-05-06T01:00"), N]),
    ("DATE_TRUNC", (col(STRING, "week", "quarter", "century"), lit(at("2013-05-08"))),
     [at("2013-05-06"), at("2013-04-01"), N]),
    ("TRUNC", (col(DATE, day("2013-05-06"), N), lit("MONTH")), [day("2013-05-01"), N]),
    ("TRUNC", (col(DATE, day("2013-05-06")), col(STRING, "HOUR")), [N]),
    ("TO_DATE", (col(STRING, "2013-05-06", "2013-5", "2013-02-30", "x", N),),
     [day("2013-05-06"), day("2013-05-01"), N, N, N]),
    ("TO_DATE", (col(STRING, "06/05/2013", "6/5/2013"), lit("dd/MM/yyyy")), [day("2013-05-06"), N]),
    ("TO_TIMESTAMP", (col(STRING, "2013-05-06 01:02:03.5", "2013-05-06T01:02:03+01:00", "x", N),),
     [at("2013-05-06T01:02:03.5"), at("2013-05-06T00:02:03"), N, N]),
    ("TO_TIMESTAMP", (col(STRING, "6 May 2013 1:02 PM", N), lit("d MMM yyyy h:mm a")), [at("2013-05-06T13:02"), N]),
    ("TO_TIMESTAMP", (col(STRING, "13", "x"), col(STRING, "yy", "yy")), [at("2013-01-01"), N]),
    ("UNIX_TIMESTAMP", (col(STRING, "1970-01-01 00:01:00", N),), [60, N]),
    ("UNIX_TIMESTAMP", (col(STRING, "1970/01/02", N), lit("yyyy/MM/dd")), [86400, N]),
    ("FROM_UNIXTIME", (col(BIGINT, 60, N),), ["1970-01-01 00:01:00", N]),
    ("FROM_UNIXTIME", (col(BIGINT, 60), lit("HH:mm")), ["00:01"]),
    ("UNIX_SECONDS", (col(TIMESTAMP, at("1969-12-31T23:59:59.5"), N),), [-1, N]),
    ("UNIX_MILLIS", (col(TIMESTAMP, at("1970-01-01T00:00:01.5")),), [1500]),
    ("UNIX_MICROS", (col(TIMESTAMP, at("1970-01-01T00:00:01.5")),), [1500000]),
    ("TIMESTAMP_SECONDS", (col(BIGINT, 60, 2**62, N),), [at("1970-01-01T00:01"), N, N]),
    ("TIMESTAMP_SECONDS", (col(DOUBLE, 1.5, N),), [at("1970-01-01T00:00:01.5"), N]),
    ("TIMESTAMP_MILLIS", (col(BIGINT, 1500),), [at("1970-01-01T00:00:01.5")]),
    ("TIMESTAMP_MICROS", (col(BIGINT, 1500000),), [at("1970-01-01T00:00:01.5")]),
    ("DATE_ADD", (col(DATE, day("2013-02-28"), N), lit(1)), [day("2013-03-01"), N]),
    ("DATE_SUB", (col(DATE, day("2013-03-01"), N), lit(1)), [day("2013-02-28"), N]),
    ("DATEDIFF", (col(DATE, day("2013-03-01"), N), lit("2013-02-28")), [1, N]),
    ("ADD_MONTHS", (col(DATE, day("2013-01-31"), N), lit(1)), [day("2013-02-28"), N]),
    ("ADD_MONTHS", (col(DATE, day("2013-03-31")), lit(-13)), [day("2012-02-29")]),
    ("PLUS_MONTHS", (col(DATE, day("2013-01-31"), N), lit(1)), [day("2013-02-28"), N]),
    ("PLUS_MONTHS", (col(TIMESTAMP, at("1969-12-31T23:59:59.5"), N), lit(-10)), [at("1969-02-28T23:59:59.5"), N]),
    ("MONTHS_BETWEEN", (col(STRING, "1997-02-28 10:30:00", "2013-03-31"), col(STRING, "1996-10-30", "2013-02-28")),
     [3.94959677, 1.0]),
    ("LAST_DAY", (col(DATE, day("2012-02-01"), N),), [day("2012-02-29"), N]),
    ("NEXT_DAY", (col(DATE, day("2013-05-06"), N), lit("Mon")), [day("2013-05-13"), N]),
    ("NEXT_DAY", (col(DATE, day("2013-05-06"), day("2013-05-06")), col(STRING, "TU", "xx")), [day("2013-05-07"), N]),
    ("MAKE_DATE", (col(INT, 2013, 2013, N), col(INT, 2, 2, 1), col(INT, 28, 29, 1)), [day("2013-02-28"), N, N]),
    ("DATE_FORMAT", (col(TIMESTAMP, at("2013-05-06T13:02:03.045"), N), lit("yyyy-MM-dd'T'HH:mm:ss.SSS")),
     ["2013-05-06T13:02:03.045", N]),
    ("DATE_FORMAT", (col(TIMESTAMP, at("2013-05-06T13:02:03")), lit("EEEE, d MMM yy h:mm a")),
     ["Monday, 6 May 13 1:02 PM"]),
    ("DATE_FORMAT", (col(TIMESTAMP, at("2013-05-06"), N), col(STRING, "D", "Q")), ["126", N]),
    # time zones
    ("FROM_UTC_TIMESTAMP", (col(TIMESTAMP, at("2024-07-01"), at("2024-01-01"), N), lit("Europe/Berlin")),
     [at("2024-07-01T02:00"), at("2024-01-01T01:00"), N]),
    ("FROM_UTC_TIMESTAMP", (lit(at("2024-07-01")), col(STRING, "asia/kolkata", "+05:30", "UTC-3", "Z", "no", N)),
     [at("2024-07-01T05:30"), at("2024-07-01T05:30"), at("2024-06-30T21:00"), at("2024-07-01"), N, N]),
    ("TO_UTC_TIMESTAMP", (col(TIMESTAMP, at("2024-03-31T02:30"), at("2024-10-27T02:30"), N), lit("Europe/Berlin")),
     [at("2024-03-31T01:30"), at("2024-10-27T00:30"), N]),
    ("TO_UTC_TIMESTAMP", (col(STRING, "2024-07-01 12:00", "x"), col(STRING, "America/New_York", "UTC")),
     [at("2024-07-01T16:00"), N]),
    ("AT_TIME_ZONE", (col(TIMESTAMP, at("2024-07-01"), N), lit("Europe/Berlin")), [clock("2024-07-01T02:00"), N]),
    ("AT_TIME_ZONE", (col(WALL_CLOCK, clock("2024-03-31T02:30"), clock("2024-10-27T02:30"), N),
     lit("Europe/Berlin")), [at("2024-03-31T01:30"), at("2024-10-27T00:30"), N]),
    ("AT_TIME_ZONE", (lit(clock("2024-07-01"), WALL_CLOCK), col(STRING, "UTC", "+01:00", "x", N)),
     [at("2024-07-01"), at("2024-06-30T23:00"), N, N]),
    ("TIMESTAMP_IN_ZONE", (col(STRING, "2024-07-01", "2024-07-01T12:00:00.5", "2024-07-01 12:00 UTC", "x", N),
     lit("Europe/Berlin")), [at("2024-06-30T22:00"), at("2024-07-01T10:00:00.5"), at("2024-07-01T12:00"), N, N]),
    ("TIMESTAMP_IN_ZONE", (lit("2024-07-01 12:00"), col(STRING, "+02:00", "UTC", "x", N)),
     [at("2024-07-01T10:00"), at("2024-07-01T12:00"), N, N]),
    ("TIMESTAMP_IN_ZONE", (col(STRING, "2024-07-01T12:00+01", "2024-07-01 12:00:00 GMT-03:30", "2024"), lit("+02:00")),
     [at("2024-07-01T11:00"), at("2024-07-01T15:30"), at("2023-12-31T22:00")]),
    ("DATE_TRUNC", (lit("hour"), col(TIMESTAMP, at("2024-10-27T00:40"), at("2024-10-27T01:40"), N),
     lit("Europe/Berlin")), [at("2024-10-27"), at("2024-10-27T01:00"), N]),
    ("DATE_TRUNC", (col(STRING, "day", "HOUR", "year", "x"), lit(at("2024-10-27T12:20")), lit("Asia/Kolkata")),
     [at("2024-10-26T18:30"), at("2024-10-27T11:30"), at("2023-12-31T18:30"), N]),
    ("CONVERT_TIMEZONE", (lit("America/New_York"), col(STRING, "Asia/Kolkata", "x"), lit("2024-07-01")),
     [clock("2024-07-01T09:30"), N]),
    ("CONVERT_TIMEZONE", (col(STRING, "UTC", N), lit("Europe/Berlin"), col(STRING, "2024-07-01 12:00", "2024-07-01")),
     [clock("2024-07-01T14:00"), N]),
    ("HOUR", (col(WALL_CLOCK, clock("2024-07-01T02:03"), N),), [2, N]),
    ("DATE_TRUNC", (lit("DAY"), col(WALL_CLOCK, clock("2024-07-01T02:03"), N)), [clock("2024-07-01"), N]),
    ("PLUS_MONTHS", (col(WALL_CLOCK, clock("2024-01-31T02:03"), N), lit(1)), [clock("2024-02-29T02:03"), N]),
    ("DATE_FORMAT", (col(WALL_CLOCK, clock("2024-07-01T02:03"), N), lit("d.M. H:mm")), ["1.7. 2:03", N]),
    ("MONTHS_BETWEEN", (col(WALL_CLOCK, clock("2024-03-31")), lit(day("2024-02-29"))), [1.0]),
    ("ADD", (col(WALL_CLOCK, clock("2024-03-31T02:30"), N), lit(timedelta(hours=1))), [clock("2024-03-31T03:30"), N]),
    ("SUB", (col(WALL_CLOCK, clock("2024-03-31T02:30"), N), lit(day("2024-03-31"))), [timedelta(minutes=150), N]),
    ("LT", (col(WALL_CLOCK, clock("2024-03-31T02:30"), N), lit("2024-04-01")), [T, N]),
    ("GREATEST", (col(WALL_CLOCK, clock("2024-03-31T02:30"), N), lit(day("2024-04-01"))), [clock("2024-04-01")] * 2),
]  # fmt: skip

#: What no text can call; tested where it is built.
ELSEWHERE = {
    "TRY_CAST",
    *("COUNT_MIN_ESTIMATE", "COUNT_MIN_ERROR", "HLL_SKETCH_ESTIMATE", "HLL_SKETCH_ERROR"),  # test_sketches.py
    *(
        "INCLUSION_CHANCE",
        "INCLUSION_OF_PAIR",
        "INCLUSION_RECORD",
        "SAMPLE_DRAW",
        "SAMPLE_PRIORITY",
    ),  # test_inclusion.py
}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"), CASES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CASES)]
)
def test_values(name: str, arguments: tuple[Any, ...], expected: list[Any]) -> None:
    got = call(name, *arguments)
    assert all_same(got, expected), got


def test_every_function_of_the_registry_has_a_case() -> None:
    tried = {TABLE[name].name for name, _, _ in CASES} | ELSEWHERE
    assert {row.name for row in TABLE.values()} - tried == set()


@pytest.mark.parametrize(
    ("name", "arguments"), [(n, a) for n, a, _ in CASES], ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CASES)]
)
def test_null_in_any_argument_is_no_error(name: str, arguments: tuple[Any, ...]) -> None:
    """All-null columns, typed NULL literals and untyped ones, one argument at a time and all together."""
    if name in ("ROUND", "BROUND"):
        arguments = arguments[:1]  # the places must be written out
    choices = (
        [range(len(arguments))]
        if len(arguments) == 1
        else [range(len(arguments)), *([i] for i in range(len(arguments)))]
    )
    for nulled in choices:
        for change in (_null_column, _null_literal, _untyped_null):
            changed = [change(a) if i in nulled else a for i, a in enumerate(arguments)]
            expressions, columns, length = bind(changed)
            checked(build_call(name, expressions), columns, length)


def _null_column(argument: Any) -> Any:
    return (
        Values(argument.type, (None,) * len(argument.values))
        if isinstance(argument, Values)
        else _null_literal(argument)
    )


def _null_literal(argument: Any) -> Any:
    return Literal(argument.type, None)


def _untyped_null(argument: Any) -> Any:
    return Literal(pa.null(), None)


def test_aliases_are_the_same_function() -> None:
    assert {"SUBSTR", "CEILING", "IFNULL", "POW", "LEN", "DAYOFMONTH"} <= set(known_functions())
    assert call("SUBSTR", col(STRING, "abc"), lit(2)) == ["bc"]
    assert call("ifnull", col(INT, None), lit(2)) == [2]
