"""The functions of PostgreSQL that statements over the catalogs call, as texts for DuckDB.

Nothing else of DuckDB's can be called. Values of the connection are parameters of the statement: `$user` and others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from penstock import __version__
from penstock.pgwire.catalog.declarations.declared import DATABASE, DATABASE_OID, OWNER_OID, PUBLIC
from penstock.pgwire.catalog.translation.scopes import text_literal

#: The version of PostgreSQL whose catalogs these are.
SERVER_VERSION, SERVER_VERSION_NUMBER = "15.0", 150_000
VERSION = f"PostgreSQL {SERVER_VERSION} (Penstock {__version__})"
_STARTED = time.time()


class SessionFacts(Protocol):
    """What functions report of the connection: its user, its number, and whether it may change anything."""

    @property
    def user(self) -> str: ...

    @property
    def backend(self) -> int: ...

    @property
    def can_write(self) -> bool: ...

    def setting(self, name: str) -> str | None:
        """Return the value of a setting, None for one that is unknown."""

    def settings(self) -> Mapping[str, str]:
        """Return all settings."""

    def set(self, name: str, value: str) -> str:
        """Set a setting; return its value. Raises WireError."""


@dataclass(frozen=True)
class CatalogFunction:
    """A function.

    Args:
        result: the name of its type.
        text: for DuckDB: `{}` stands for all arguments, `{0}` for the first.
        given: the types of the arguments; `?` behind one that may be left out, `*` behind one that is repeated; `any`
            takes a value as it is, `shown` as a text.
        fields: of a function that returns rows, which is a list for DuckDB: the fields of each row, with their types;
            empty where a row is one value.
        is_set: whether it returns rows.
    """

    result: str
    text: str
    given: str = ""
    is_set: bool = False
    fields: Mapping[str, str] | None = None


#: By type of the result, functions that DuckDB has under the same name, with the types of their arguments.
_SAME = {
    "text": "lower(text) upper(text) replace(text,text,text) ltrim(text,text?) rtrim(text,text?) left(text,int4)"
    " right(text,int4) reverse(text) split_part(text,text,int4) translate(text,text,text) md5(text) chr(int4)"
    " repeat(text,int4) concat(shown*) concat_ws(text,shown*) regexp_replace(text,text,text,text?)",
    "int4": "length(text) ascii(text) bit_length(text) strpos(text,text)",
    "bool": "starts_with(text,text)",
    "float8": "sqrt(float8) cbrt(float8) exp(float8) ln(float8) power(float8,float8) pow(float8,float8) sin(float8)"
    " cos(float8) tan(float8) cot(float8) asin(float8) acos(float8) atan(float8) atan2(float8,float8) degrees(float8)"
    " radians(float8) pi() random()",
    "int8": "gcd(int8,int8) lcm(int8,int8) factorial(int8)",
    "date": "make_date(int4,int4,int4)",
    "timestamp": "make_timestamp(int8,int8,int8,int8,int8,float8)",
    "uuid": "gen_random_uuid()",
}
_BEGIN = "greatest({1}, 1)"
#: By name: the type of the result, the text, and the types of the arguments.
_WRITTEN = {
    "btrim": ("text", "trim({})", "text text?"),
    "char_length": ("int4", "length({})", "text"), "character_length": ("int4", "length({})", "text"),
    "octet_length": ("int4", "strlen({})", "text"),
    "substr": ("text", f"substring({{0}}, {_BEGIN})", "text int4"),
    "substr 3": ("text", f"substring({{0}}, {_BEGIN}, greatest({{2}} + least({{1}}, 1) - 1, 0))", "text int4 int4"),
    "lpad": ("text", "lpad({0}, greatest({1}, 0), ' ')", "text int4"),
    "lpad 3": ("text", "lpad({0}, greatest({1}, 0), {2})", "text int4 text"),
    "rpad": ("text", "rpad({0}, greatest({1}, 0), ' ')", "text int4"),
    "rpad 3": ("text", "rpad({0}, greatest({1}, 0), {2})", "text int4 text"),
    "to_hex": ("text", "lower(to_hex({}))", "int8"),
    "initcap": ("text", "px_capitalized({})", "text"),
    "bpchar": ("bpchar", "{}", "text"),
    "log": ("float8", "log10({})", "float8"), "log10": ("float8", "log10({})", "float8"),
    "sign": ("float8", "sign({})::DOUBLE", "float8"),
    "format": ("text", "px_format({})", "text shown*"), "quote_ident": ("text", "px_quote_ident({})", "text"),
    "quote_literal": ("text", "px_quote_literal({})", "shown"),
    "quote_nullable": ("text", "coalesce(px_quote_literal({}), 'NULL')", "shown"),
    "encode": ("text", "px_encode({})", "text text"), "parse_ident": ("_text", "px_parse_ident({0})", "text bool?"),
    "regexp_split_to_array": ("_text", "regexp_split_to_array({})", "text text"),
    "regexp_match": ("_text", "CASE WHEN regexp_matches({0}, {1}, 's') THEN [regexp_extract({0}, {1}, 0, 's')] END",
                     "text text"),
    "array_length": ("int4", "nullif(len({0}), 0)::INTEGER", "any int4"),
    "array_upper": ("int4", "nullif(len({0}), 0)::INTEGER", "any int4"),
    "array_lower": ("int4", "CASE WHEN len({0}) > 0 THEN 1 END", "any int4"),
    "array_ndims": ("int4", "CASE WHEN len({0}) > 0 THEN 1 END", "any"),
    "cardinality": ("int4", "len({})::INTEGER", "any"),
    "string_to_array": ("_text", "px_split({})", "text text text?"),
    "array_to_string": ("text", "px_joined({})", "texts text text?"),
    "oidvectortypes": ("text", "px_types({})", "oidvector"),
    # What depends on the time.
    **dict.fromkeys(("now", "current_timestamp", "statement_timestamp", "transaction_timestamp"),
                    ("timestamptz", "$now::TIMESTAMPTZ", "")),
    "clock_timestamp": ("timestamptz", "get_current_timestamp()", ""),
    "current_date": ("date", "$now::TIMESTAMPTZ::DATE", ""),
    "localtimestamp": ("timestamp", "$now::TIMESTAMPTZ::TIMESTAMP", ""),
    "to_timestamp": ("timestamptz", "to_timestamp({})", "float8"),
    **{name: ("interval", f"px_justified({{0}}::VARCHAR, '{name}')::INTERVAL", "interval")
       for name in ("justify_hours", "justify_days", "justify_interval")},
    "pg_postmaster_start_time": ("timestamptz", f"to_timestamp({_STARTED})", ""),
    # The connection.
    **dict.fromkeys(("current_user", "session_user", "user", "current_role"), ("name", "$user", "")),
    "pg_backend_pid": ("int4", "$backend::INTEGER", ""),
    "current_setting": ("text", "px_setting({})", "text bool?"),
    "set_config": ("text", "px_set({})", "text shown bool"),
    "current_schemas": ("_name", f"CASE WHEN {{0}} THEN ['pg_catalog', '{PUBLIC}'] ELSE ['{PUBLIC}'] END", "bool"),
    "pg_get_userbyid": ("name", f"CASE WHEN {{0}} = {OWNER_OID} THEN $user ELSE 'unknown (OID=' || {{0}} || ')' END",
                        "oid"),
    **dict.fromkeys(("has_table_privilege", "has_column_privilege", "has_any_column_privilege",
                     "has_sequence_privilege"), ("bool", "px_may({})", "shown*")),
    # What is declared.
    "to_regclass": ("regclass", "px_to_regclass({})", "text"), "to_regtype": ("regtype", "px_regtype({})", "text"),
    "to_regnamespace": ("regnamespace", "px_regnamespace({})", "text"),
    "format_type": ("text", "px_format_type({0}, coalesce({1}, -1))", "oid int4"),
    "pg_get_viewdef": ("text", "px_viewdef({0})", "regclass any?"),
    "obj_description": ("text", "px_description({0})", "oid text?"),
    "pg_get_constraintdef": ("text", "px_constraint({0})", "oid any?"),
    "pg_get_indexdef": ("text", "px_index({0}, 0)", "oid"),
    "pg_get_indexdef 3": ("text", "px_index({0}, {1})", "oid int4 any"),
    "pg_table_is_visible": ("bool", "px_visible({})", "oid"),
    "pg_current_database_oid": ("oid", str(DATABASE_OID), ""),
    "pg_encoding_to_char": ("name", "CASE WHEN {} = 6 THEN 'UTF8' ELSE '' END", "int4"),
    "pg_char_to_encoding": ("int4", "CASE WHEN replace(upper({}), '-', '') = 'UTF8' THEN 6 ELSE -1 END", "text"),
    "pg_size_pretty": ("text", "({}::VARCHAR || ' bytes')", "int8"),
    # JSON.
    **{f"{kind}_array_length": ("int4", "px_json_length({})", kind) for kind in ("json", "jsonb")},
    **{f"{kind}_typeof": ("text", "px_json_typeof({})", kind) for kind in ("json", "jsonb")},
    # Windows.
    **dict.fromkeys(("row_number", "rank", "dense_rank"), ("int8", "", "")),
    **dict.fromkeys(("percent_rank", "cume_dist"), ("float8", "", "")),
}  # fmt: skip

#: Functions with a constant result, whatever their arguments: this server has nothing of the kind.
_CONSTANT: dict[str, dict[str, str | int | None]] = {
    "text": {
        **dict.fromkeys((
            "pg_get_expr", "pg_get_partkeydef", "pg_get_ruledef", "pg_get_triggerdef", "pg_get_functiondef",
            "pg_get_function_result", "pg_get_function_arguments", "pg_get_function_identity_arguments",
            "pg_get_function_sqlbody", "pg_get_serial_sequence", "pg_get_statisticsobjdef_columns",
            "pg_get_statisticsobjdef", "shobj_description", "inet_server_addr", "inet_client_addr", "col_description",
            "pg_last_wal_receive_lsn", "pg_backup_start_time", "pg_conf_load_time")),
        "pg_advisory_unlock_all": "", "pg_tablespace_location": "", "version": VERSION,
    },
    "name": {"pg_client_encoding": "UTF8", "getdatabaseencoding": "UTF8", "current_database": DATABASE,
             "current_catalog": DATABASE, "current_schema": PUBLIC},
    "bool": {
        **dict.fromkeys((
            "pg_relation_is_publishable", "pg_is_in_recovery", "pg_is_wal_replay_paused", "pg_is_other_temp_schema",
            "pg_column_is_updatable", "pg_jit_available"), 0),
        **dict.fromkeys((
            "has_schema_privilege", "has_database_privilege", "pg_has_role", "has_function_privilege",
            "has_type_privilege", "has_tablespace_privilege", "has_language_privilege",
            *(f"pg_{kind}_is_visible" for kind in (
                "type", "function", "operator", "opclass", "opfamily", "conversion", "collation", "statistics_obj",
                "ts_dict", "ts_config", "ts_parser", "ts_template"))), 1),
    },
    "int8": {
        "pg_stat_get_live_tuples": None,
        **dict.fromkeys((
            "pg_stat_get_numscans", "pg_relation_size", "pg_total_relation_size", "pg_table_size", "pg_indexes_size",
            "pg_database_size", "pg_tablespace_size", "txid_current"), 0),
    },
    "int4": {"inet_server_port": None, "pg_relation_is_updatable": 0},
    "oid": {"pg_my_temp_schema": 0, "pg_get_replica_identity_index": 0},
    "_text": {"acldefault": None}, "_int4": {"pg_blocking_pids": "[]"},
}  # fmt: skip

_NUMBER = {"x": "anyelement", "n": "int4"}
_KEYWORDS = ", ".join(
    f"{{'word': '{word}', 'catcode': 'U', 'catdesc': 'unreserved'}}"
    for word in ("dstream", "istream", "relation", "retain", "rstream", "slide", "stream", "subscribe", "wstream")
)
#: Functions that return rows: the text of their list, the types of the arguments, and the fields of a row.
_SETS: dict[str, tuple[str, str, str, Mapping[str, str] | None]] = {
    "unnest": ("", "{}", "any", None),
    "generate_subscripts": ("int4", "range(1, len({0}) + 1)", "any int4 bool?", None),
    "_pg_expandarray": (
        "record", "list_transform({0}, lambda e, n: struct_pack(x := e, n := n::INTEGER))", "any", _NUMBER),
    "pg_options_to_table": (
        "record", "list_transform({0}, lambda e: struct_pack(option_name := split_part(e, '=', 1),"
        " option_value := e[strpos(e, '=') + 1:]))", "_text", {"option_name": "text", "option_value": "text"}),
    "pg_get_keywords": ("record", f"[{_KEYWORDS}]", "", {"word": "text", "catcode": "char", "catdesc": "text"}),
    "regexp_split_to_table": ("text", "regexp_split_to_array({})", "text text", None),
    "string_to_table": ("text", "px_split({})", "text text text?", None),
    **{f"{kind}_array_elements": (kind, "px_json_elements({}, false)", kind, None) for kind in ("json", "jsonb")},
    **{f"{kind}_array_elements_text": ("text", "px_json_elements({}, true)", kind, None) for kind in ("json", "jsonb")},
    **{f"{kind}_object_keys": ("text", "px_json_keys({})", kind, None) for kind in ("json", "jsonb")},
    **{f"{kind}_each": ("record", "px_json_each({}, false)", kind, {"key": "text", "value": kind})
       for kind in ("json", "jsonb")},
    **{f"{kind}_each_text": ("record", "px_json_each({}, true)", kind, {"key": "text", "value": "text"})
       for kind in ("json", "jsonb")},
}  # fmt: skip
#: Functions whose rows this server has none of, with their fields.
_EMPTY: dict[str, Mapping[str, str]] = {
    "aclexplode": {"grantor": "oid", "grantee": "oid", "privilege_type": "text", "is_grantable": "bool"},
    "pg_partition_ancestors": {"relid": "regclass"},
    "pg_partition_tree": {"relid": "regclass", "parentrelid": "regclass", "isleaf": "bool", "level": "int4"},
    "pg_available_extensions": {"name": "name", "default_version": "text", "comment": "text"},
}


@cache
def functions() -> Mapping[str, CatalogFunction]:
    """Return the functions by name; one that has another text with so many arguments under its name and their number
    too."""
    found = dict(_same())
    found |= {name: CatalogFunction(*written) for name, written in _WRITTEN.items()}
    for type_, constants in _CONSTANT.items():
        for name, value in constants.items():
            found[name] = CatalogFunction(type_, _constant(type_, value), "any*")
    for name, (result, text, given, fields) in _SETS.items():
        found[name] = CatalogFunction(result, text, given, True, fields)
    for name, fields in _EMPTY.items():
        found[name] = CatalogFunction("record", "", "any*", True, fields)
    return found


def _same() -> Iterator[tuple[str, CatalogFunction]]:
    for type_, words in _SAME.items():
        for word in words.split():
            name, _, given = word.rstrip(")").partition("(")
            yield name, CatalogFunction(type_, f"{name}({{}})", given.replace(",", " "))


def _constant(type_: str, value: str | int | None) -> str:
    if value is None:
        return "NULL::VARCHAR[]" if type_ == "_text" else f"NULL::{'VARCHAR' if type_ == 'text' else 'BIGINT'}"
    if type_ == "bool":
        return "true" if value else "false"
    return str(value) if isinstance(value, int) or type_.startswith("_") else text_literal(value)


#: Aggregates of DuckDB's that have the meaning of PostgreSQL's: the type of the result, empty for that of the argument,
#: and the type of the arguments, empty for any.
AGGREGATES: dict[str, tuple[str, str]] = {
    "count": ("int8", ""), "min": ("", ""), "max": ("", ""), "bool_or": ("bool", "bool"), "bool_and": ("bool", "bool"),
    "every": ("bool", "bool"), "bit_and": ("", "int8"), "bit_or": ("", "int8"),
    **dict.fromkeys(("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "corr", "covar_pop",
                     "covar_samp", "regr_slope", "regr_intercept", "regr_r2"), ("float8", "float8")),
}  # fmt: skip
#: Functions of windows alone that return one of their arguments.
OF_WINDOWS = frozenset({"lag", "lead", "first_value", "last_value", "nth_value"})
