"""Features of other systems that CQL writes differently or lacks: functions, clauses and words, each with a hint."""

from __future__ import annotations

_RANKS = (
    "sums over time are a window on the stream and GROUP BY, the last rows of every key [PARTITION BY key ROWS n],"
    " the first rows ORDER BY .. LIMIT n"
)
_NOW = "an answer depends only on its inputs: use a window such as [RANGE 1 HOUR], or compare the times in the rows"
_DRAWN = "S SAMPLE(10) keeps 10 percent of a stream S; a function of your own may draw (CREATE FUNCTION .. VOLATILE)"
_ARRAYS = "columns have single values: use one row per value, or keep the text and split it with SPLIT_PART"
_MOVED = "at + INTERVAL 1 HOUR moves a time, at + INTERVAL 1 MONTH goes by the calendar"
#: For DATEDIFF with a unit.
_APART = "TIMESTAMPDIFF(HOUR, a, b) is the difference of two times in whole units, DATEDIFF(b, a) that in days"
_WRITTEN = "DATE_FORMAT(time, 'yyyy-MM-dd HH:mm:ss') writes a time as text, CAST(number AS STRING) a number"
_NO_WAITING = "no function waits: SUBSCRIBE TO query follows a result, \\watch 2 in the shell or psql repeats a SELECT"
_LISTED = "ARRAY_AGG(DISTINCT value) gives each value once, STRING_AGG(value, ', ') all of them as one text"
_TRUNCATED = "TRUNC(date, 'month') is of dates; FLOOR(x), ROUND(x, 2) and CAST(x AS BIGINT) are of numbers"
_LATEST = "MAX_BY(value, by) is the value of the row with the greatest `by`, LAST(value) that of the latest row"
_OFFSETS = "LAST(value) is that of the latest row of the group by its timestamp, FIRST(value) that of the earliest"
_READ = "TO_TIMESTAMP(text, 'yyyy-MM-dd HH:mm:ss') reads a time from a text"
_COUNTED = "TIMESTAMP_MILLIS(number), TIMESTAMP_SECONDS(number) and TIMESTAMP_MICROS(number) make a time of a number"
_SLOTS = (
    "DATE_TRUNC('minute', at) is the beginning of a minute; a window has boundaries by SLIDE: [RANGE 5 MINUTES SLIDE 5"
    " MINUTES]"
)
_JSON = "GET_JSON_OBJECT(json, '$.a.b') gives the value at a path, json -> 'a' and json ->> 'a' a member; CAST it"
_ANY = "BOOL_OR(condition) is whether some row satisfies it, COUNT_IF(condition) how many rows do"

_SESSION = (
    "RSTREAM over a window with SLIDE emits the whole answer at each boundary, whose time is ts; of a session,"
    " [PARTITION BY k SESSION 5 MINUTES] AS c, BEGIN(VALID(c)) and END(VALID(c)) are the bounds"
)
_BOUNDS = "BEGIN(VALID(s)) and END(VALID(s)) are the bounds of the period of s, LENGTH(VALID(s)) is its length in ticks"
_VALID = "VALID(s) is the period of the rows of s, BEGIN(VALID(s)) and END(VALID(s)) are its bounds"

_PATTERN = (
    "rows that follow each other are a stream joined with itself over a window, with conditions on both, or"
    " FIRST(value) and LAST(value) over [PARTITION BY key ROWS 2]"
)
_AS_OF = (
    "declare it CREATE NON RETROACTIVE RELATION and join it: an element is joined with the rows valid when it arrives"
)
_LATEST_OF_KEY = (
    "the latest element of each key is [PARTITION BY key ROWS 1] behind the stream; a table as of each element is a"
    " NON RETROACTIVE RELATION"
)

_APPROX_COUNT = (
    "COUNT(*) FILTER (WHERE condition) is exact; COUNT_MIN_SKETCH(value, 0.001, 0.99) counts values that are looked up"
    " later"
)
_HLL = "APPROX_COUNT_DISTINCT(value) is HyperLogLog"
_HLL_IMAGE = (
    "HLL_SKETCH_AGG(value) makes a sketch of each group, HLL_UNION_AGG(sketch) puts the sketches of several rows"
    " together, HLL_SKETCH_ESTIMATE(sketch) is the number of different values"
)
_TOP = "APPROX_TOP_K(value, k) or TOP_K(value, k) is an array of values with counts, GROUP BY value FREQUENT k has rows"
_NO_SETS = (
    "HLL_SKETCH_AGG(value) and HLL_UNION_AGG(sketch) count unions; of an intersection COUNT(DISTINCT value) of a join"
    " is exact"
)
_NO_DIGEST = (
    "a sketch of quantiles is no value here: APPROX_QUANTILE(number, 0.5) is one quantile, calls share their state"
)
_ERROR_BOUNDS = (
    "LOWER_BOUND, UPPER_BOUND and ERROR_BOUND take an approximate aggregate, or one under ESTIMATE or FREQUENT"
)
_HISTOGRAM = "COUNT(*) with GROUP BY FLOOR(number / 10) counts ranges, APPROX_QUANTILE(number, 0.5) is one quantile"
_COUNT_MIN = "COUNT_MIN_SKETCH(value, 0.001, 0.99) and COUNT_MIN_ESTIMATE(sketch, value)"
_DDSKETCH = "APPROX_QUANTILE(number, 0.5) is within 1 % of the value, APPROX_PERCENTILE(value, 0.5) near it in rank"

#: Functions that exist here with other arguments, in capitals: with how many arguments other systems call them, whether
#: the first is a unit of time without quotes, and what to write instead.
OTHER_CALLS: dict[str, tuple[tuple[int, bool, str], ...]] = {
    **dict.fromkeys(("DATEDIFF", "DATE_DIFF"), ((3, True, _APART),)),
    "TRUNC": ((1, False, _TRUNCATED),),
    "ISNULL": ((2, False, "COALESCE(value, other) is the other one where the value is NULL"),),
}
#: Functions of Spark, Flink and others, in capitals -> what to write instead.
FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"), _RANKS),
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP", "GETDATE", "CURDATE", "SYSDATE",
         "PROCTIME", "CURRENT_WATERMARK"), _NOW,
    ),
    **dict.fromkeys(("RAND", "RANDOM", "RANDN", "UUID"), _DRAWN),
    **dict.fromkeys(
        ("EXPLODE", "POSEXPLODE", "UNNEST", "ARRAY", "SPLIT", "MAP", "STRUCT", "NAMED_STRUCT", "ARRAY_CONTAINS",
         "SIZE"), _ARRAYS,
    ),
    "DATEADD": _MOVED,
    **dict.fromkeys(
        ("JSON_EXTRACT", "JSON_EXTRACT_STRING", "JSON_EXTRACT_SCALAR", "JSON_QUERY", "JSON_TUPLE", "FROM_JSON",
         "JSON_EXTRACT_PATH", "JSON_EXTRACT_PATH_TEXT", "JSON_EXISTS", "PARSE_JSON"), _JSON,
    ),
    **dict.fromkeys(("TO_CHAR", "TO_VARCHAR", "STRFTIME", "TIME_FORMAT"), _WRITTEN),
    **dict.fromkeys(("PG_SLEEP", "SLEEP"), _NO_WAITING),
    "FREQUENT": "FREQUENT follows the columns of GROUP BY: GROUP BY c FREQUENT 10",
    **dict.fromkeys(("COLLECT_SET", "GROUP_CONCAT"), _LISTED),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _LATEST),
    **dict.fromkeys(("LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"), _OFFSETS),
    **dict.fromkeys(("TIMESTAMPTOSTRING", "FORMAT_TIMESTAMP", "FORMATDATETIME"), _WRITTEN),
    **dict.fromkeys(("STRINGTOTIMESTAMP", "PARSE_TIMESTAMP", "STR_TO_DATE"), _READ),
    **dict.fromkeys(("TO_TIMESTAMP_LTZ", "EPOCH_MS", "FROM_UNIXTIME_MILLIS"), _COUNTED),
    **dict.fromkeys(
        ("TIME_BUCKET", "TIME_SLICE", "TOSTARTOFMINUTE", "TOSTARTOFHOUR", "TOSTARTOFDAY",
         "TOSTARTOFINTERVAL"), _SLOTS,
    ),
    "EXTRACTJSONFIELD": _JSON,
    "COUNT_DISTINCT": "COUNT(DISTINCT value) is exact, APPROX_COUNT_DISTINCT(value) is HyperLogLog",
    **dict.fromkeys(("IIF", "DECODE"), "CASE WHEN a > 0 THEN 1 ELSE 0 END, or IF(a > 0, 1, 0)"),
    "STRPOS": "INSTR(text, part) is the position of a part, from 1 on, and 0 where it is not there",
    **dict.fromkeys(("IDSTREAM", "ESTREAM"), "streams of a relation are ISTREAM, DSTREAM and RSTREAM"),
    **dict.fromkeys(("ANY", "SOME"), _ANY),
    "APPROX_COUNT": _APPROX_COUNT,
    **dict.fromkeys(("FM", "FLAJOLET_MARTIN", "HLL", "HYPERLOGLOG", "UNIQ", "NDV", "APPROX_COUNT_DISTINCT_AGG",
         "APPROX_COUNT_DISTINCT_BUILTIN", "APPROX_COUNT_DISTINCT_DS_HLL", "APPROX_COUNT_DISTINCT_DS_THETA",
         "UNIQCOMBINED", "UNIQCOMBINED64", "UNIQHLL12"), _HLL),
    "APPROXIMATE COUNT": _HLL,
    "APPROXIMATE PERCENTILE_DISC": "APPROX_PERCENTILE(value, 0.5) is a value that occurs",
    "UNIQEXACT": "COUNT(DISTINCT value) is exact",
    **dict.fromkeys(
        ("HLL_UNION", "HLL_ACCUMULATE", "HLL_COMBINE", "HLL_ESTIMATE", "HLL_EXPORT", "HLL_IMPORT", "HLL_CARDINALITY",
         "HLL_ADD_AGG", "DS_HLL", "APPROX_SET", "EMPTY_APPROX_SET", "APPROX_COUNT_DISTINCT_ESTIMATE",
         "HLL_COUNT_INIT", "HLL_COUNT_MERGE", "HLL_COUNT_MERGE_PARTIAL", "HLL_COUNT_EXTRACT"), _HLL_IMAGE,
    ),
    **dict.fromkeys(
        ("THETA_SKETCH_AGG", "THETA_SKETCH_ESTIMATE", "THETA_UNION", "THETA_UNION_AGG", "THETA_INTERSECTION",
         "THETA_INTERSECTION_AGG", "THETA_DIFFERENCE", "DS_THETA", "MINHASH", "APPROXIMATE_JACCARD_INDEX",
         "APPROXIMATE_SIMILARITY"), _NO_SETS,
    ),
    **dict.fromkeys(
        ("TDIGEST_AGG", "QDIGEST_AGG", "DS_QUANTILES_SKETCH", "KLL_SKETCH_AGG", "KLL_SKETCH_AGG_BIGINT",
         "KLL_SKETCH_AGG_DOUBLE", "KLL_SKETCH_AGG_FLOAT", "APPROX_PERCENTILE_ACCUMULATE",
         "APPROX_PERCENTILE_COMBINE", "APPROX_PERCENTILE_ESTIMATE", "VALUE_AT_QUANTILE",
         "VALUES_AT_QUANTILES"), _NO_DIGEST,
    ),
    **dict.fromkeys(
        ("APPROX_TOP_COUNT", "APPROX_TOP_SUM", "APPROX_MOST_FREQUENT", "APPROX_TOP_K_ACCUMULATE",
         "APPROX_TOP_K_COMBINE", "APPROX_TOP_K_ESTIMATE", "APPROX_MODE", "TOP", "TOPN", "TOPK", "TOPKWEIGHTED"), _TOP,
    ),
    **dict.fromkeys(("HISTOGRAM_NUMERIC", "NUMERIC_HISTOGRAM", "APPROX_HISTOGRAM", "HISTOGRAM"), _HISTOGRAM),
    **dict.fromkeys(("CM", "COUNT_MIN"), _COUNT_MIN),
    **dict.fromkeys(
        ("APPROX_MEDIAN", "QUANTILE_APPROX", "TDIGEST", "KLL", "APPROX_QUANTILES", "APPROX_PERCENTILE_CONT",
         "APPROX_PERCENTILE_CONT_WITH_WEIGHT", "APPROX_QUANTILE_DS", "APPROX_QUANTILE_FIXED_BUCKETS",
         "RESERVOIR_QUANTILE", "QUANTILE_TDIGEST", "QUANTILETDIGEST"), _DDSKETCH,
    ),
    **dict.fromkeys(
        ("WINDOW_START", "WINDOW_END", "WINDOW_TIME", "WINDOWSTART", "WINDOWEND", "SESSION_START", "SESSION_END"),
        _SESSION,
    ),
    **dict.fromkeys(("DURATION", "START", "FINISH", "PERIOD_BEGIN", "PERIOD_END"), _BOUNDS),
    "VALIDTIME": _VALID,
    **dict.fromkeys(("LOWERBOUND", "UPPERBOUND", "ERRORBOUND"), _ERROR_BOUNDS),
    "MZ_NOW": (
        "rows that leave after a time are a window, s [RANGE 1 HOUR]; rows with periods of their own are"
        " s VALID FROM a TO b [VALID]"
    ),
}  # fmt: skip

#: Words that parse as columns -> what to do about them.
NAMES: dict[str, str] = {
    **FUNCTIONS,
    **dict.fromkeys(("ROWTIME", "EVENT_TIME"), "the time of a row is the column of TIMESTAMP BY in its declaration"),
    "STREAM": "leave it out: the query determines the kind of its answer",
    **dict.fromkeys(("VALID", "VALID_FROM", "VALID_TO", "VALID_TIME"), _VALID),
}

#: Clauses and forms of expressions that are rejected by name -> what to write instead.
CLAUSES: dict[str, str] = {
    "a window function (OVER)": _RANKS,
    "a name of more than two parts": "a column has its source before it, and no schema: s.a",
    "a second argument of CAST": "TO_DATE(text, 'yyyy-MM-dd') and TO_TIMESTAMP read a text by a format;"
    " time AT TIME ZONE 'Europe/Berlin' is what clocks there show",
    "LATERAL VIEW": _ARRAYS,
    "PIVOT": "COUNT(*) FILTER (WHERE place = 'a') AS a, and so on for every column of the answer",
    "QUALIFY": _RANKS,
    "MATCH_RECOGNIZE": _PATTERN,
    "FOR SYSTEM_TIME": _AS_OF,
    **dict.fromkeys(("ASOF JOIN", "ASOF LEFT"), _LATEST_OF_KEY),
    **dict.fromkeys(("SORT BY", "CLUSTER BY", "DISTRIBUTE BY"), "the first rows are ORDER BY column LIMIT 10"),
}

_TABLE = "events are a STREAM, a table is a RELATION: CREATE RELATION name (...) FROM MEMORY ()"
_INDEX = "leave it out: queries keep what they look up by the keys of their joins and groups"
_SCHEMA = "leave it out: there is one catalog, and its names have no schema"
_CONNECTION = "addresses and secrets are options of a connector: FROM KAFKA (topic 't', bootstrap 'host:9092')"
_MATERIALIZED = "what is kept up to date is a query, CREATE QUERY name AS SELECT ..., or a view that a query reads"
_ROLES = "roles are those of tokens: penstock token add NAME --role read"

#: Statements of other systems, by their first two words -> what to write instead.
STATEMENTS: dict[tuple[str, str], str] = {
    **{("CREATE", kind): _TABLE for kind in ("TABLE", "UNLOGGED", "FOREIGN")},
    ("DROP", "TABLE"): "a table is a RELATION, events are a STREAM: DROP RELATION name",
    ("ALTER", "TABLE"): (
        "say ALTER RELATION name SET (...) or ALTER STREAM name SET (...); columns change with DROP and CREATE"
    ),
    **{(first, kind): _INDEX for first in ("CREATE", "DROP", "ALTER") for kind in ("INDEX", "UNIQUE")},
    **{(first, kind): _SCHEMA for first in ("CREATE", "DROP", "ALTER") for kind in ("SCHEMA", "DATABASE", "CATALOG")},
    **{(first, kind): _ROLES for first in ("CREATE", "DROP", "ALTER") for kind in ("USER", "ROLE")},
    ("CREATE", "MATERIALIZED"): _MATERIALIZED,
    ("CREATE", "SOURCE"): "rows that come are a STREAM: CREATE STREAM name (...) FROM KAFKA (...) TIMESTAMP BY at",
    ("CREATE", "SINK"): "a sink belongs to a query: CREATE QUERY name INTO KAFKA (...) AS SELECT ...",
    **{("CREATE", kind): _CONNECTION for kind in ("CONNECTION", "SECRET", "CONNECTOR")},
}

#: The same by the first word alone.
FIRST_WORDS: dict[str, str] = {
    "USE": _SCHEMA,
    "TAIL": "the rows of a query as they come are SUBSCRIBE TO name",
    "PRINT": "the rows of a query as they come are SUBSCRIBE TO name, at a server",
    **dict.fromkeys(("STOP", "TERMINATE"), "a query is paused by ALTER QUERY name PAUSE, and ended by DROP QUERY name"),
    "START": "a query begins when it is created, and again after a pause by ALTER QUERY name RESUME",
    "HELP": "in penstock shell help alone, or \\?, lists its commands",
    "KILL": "CANCEL 17 ends a one-time query or subscription, by its number in SHOW STATEMENTS",
    "UNSUBSCRIBE": "CANCEL 17 ends a subscription, by its number in SHOW SUBSCRIPTIONS",
    "REGISTER": "a query is registered by CREATE QUERY name AS SELECT ...",
    "RENAME": "a query is renamed by ALTER QUERY name RENAME TO other",
    "HEARTBEAT": "a heartbeat is ADVANCE stream TO TIMESTAMP '2020-01-31 12:00:00'",
    "MOVE": "a cursor goes forward by FETCH 10 FROM name",
    "VACUUM": "leave it out: what is no longer needed is removed by itself",
    "ANALYZE": "leave it out: statistics are kept by themselves; EXPLAIN ANALYZE SELECT .. measures a query",
    **dict.fromkeys(("GRANT", "REVOKE"), _ROLES),
    "LOCK": "leave it out: a SELECT reads one state, and nothing is locked",
    "\\": (
        "commands with a backslash are those of `penstock shell` and psql; as statements SHOW STREAMS, RELATIONS, VIEWS"
        " or QUERIES lists names, DESCRIBE name has columns"
    ),
}
