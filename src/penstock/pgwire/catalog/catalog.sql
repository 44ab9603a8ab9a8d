-- Tables of the catalogs, each as a query over what is declared (the schema `facts`). `-- schema.table` begins each; a
-- column that it does not return is NULL.
-- pg_catalog.pg_database
SELECT 5 AS oid, 'penstock' AS datname, 10 AS datdba, 6 AS encoding, 'c' AS datlocprovider, false AS datistemplate,
  true AS datallowconn, -1 AS datconnlimit, 0 AS datfrozenxid, 1 AS datminmxid, 1663 AS dattablespace, 'C' AS datcollate,
  'C' AS datctype
-- pg_catalog.pg_namespace
SELECT oid, name AS nspname, 10 AS nspowner FROM facts.schemas
-- pg_catalog.pg_am
SELECT * FROM (VALUES (2, 'heap', 'heap_tableam_handler', 't'), (403, 'btree', 'bthandler', 'i'))
  t(oid, amname, amhandler, amtype)
-- pg_catalog.pg_tablespace
SELECT 1663 AS oid, 'pg_default' AS spcname, 10 AS spcowner
-- pg_catalog.pg_collation
SELECT 100 AS oid, 'default' AS collname, 11 AS collnamespace, 10 AS collowner, 'd' AS collprovider,
  true AS collisdeterministic, -1 AS collencoding
-- pg_catalog.pg_language
SELECT 14 AS oid, 'sql' AS lanname, 10 AS lanowner, false AS lanispl, true AS lanpltrusted
-- pg_catalog.pg_type
SELECT oid, name AS typname, 11 AS typnamespace, 10 AS typowner, size AS typlen, by_value AS typbyval,
  kind AS typtype, category AS typcategory, is_preferred AS typispreferred, true AS typisdefined, delimiter AS typdelim,
  0 AS typrelid, CASE WHEN category = 'A' AND element > 0 THEN 'array_subscript_handler'
    WHEN name = 'name' THEN 'raw_array_subscript_handler' WHEN name = 'jsonb' THEN 'jsonb_subscript_handler' ELSE '-' END
    AS typsubscript,
  element AS typelem, array_oid AS typarray, prefix || 'in' AS typinput, prefix || 'out' AS typoutput,
  CASE WHEN name = 'aclitem' THEN '-' ELSE prefix || 'recv' END AS typreceive,
  CASE WHEN name = 'aclitem' THEN '-' ELSE prefix || 'send' END AS typsend,
  CASE WHEN is_modified THEN plain || 'typmodin' ELSE '-' END AS typmodin,
  CASE WHEN is_modified THEN plain || 'typmodout' ELSE '-' END AS typmodout,
  CASE WHEN is_array THEN 'array_typanalyze' ELSE '-' END AS typanalyze, alignment AS typalign, storage AS typstorage,
  false AS typnotnull, 0 AS typbasetype, -1 AS typtypmod, 0 AS typndims,
  CASE WHEN plain IN ('text', 'bpchar', 'varchar', 'pg_node_tree') THEN 100 WHEN plain = 'name' THEN 950 ELSE 0 END
    AS typcollation
FROM (SELECT *, plain IN ('bpchar', 'varchar', 'time', 'timestamp', 'timestamptz', 'interval', 'numeric') AS is_modified,
    CASE WHEN is_array THEN 'array_' WHEN name IN ('json', 'jsonb', 'pg_node_tree', 'date', 'time', 'timestamp',
      'timestamptz', 'interval', 'numeric', 'record', 'anyarray', 'void', 'uuid') THEN name || '_' ELSE name END AS prefix
  FROM (SELECT *, starts_with(name, '_') AS is_array, ltrim(name, '_') AS plain FROM facts.types))
-- pg_catalog.pg_class
SELECT oid, name AS relname, namespace AS relnamespace, 0 AS reltype, 0 AS reloftype, 10 AS relowner,
  CASE kind WHEN 'r' THEN 2 WHEN 'm' THEN 2 WHEN 'i' THEN 403 ELSE 0 END AS relam, 0 AS relfilenode, 0 AS reltablespace,
  0 AS relpages, -1.0 AS reltuples, 0 AS relallvisible, 0 AS reltoastrelid, kind <> 'i' AND has_key AS relhasindex,
  false AS relisshared, 'p' AS relpersistence, kind AS relkind, columns AS relnatts, 0 AS relchecks,
  is_declared AND kind IN ('v', 'm') AS relhasrules, false AS relhastriggers, false AS relhassubclass,
  false AS relrowsecurity, false AS relforcerowsecurity, true AS relispopulated, 'n' AS relreplident,
  false AS relispartition, 0 AS relrewrite, 0 AS relfrozenxid, 0 AS relminmxid
FROM (SELECT oid, name, namespace, kind, columns, has_key, is_declared FROM facts.relations
  UNION ALL SELECT index_oid, name || '_pkey', namespace, 'i', keys, false, true FROM facts.relations WHERE has_key)
-- pg_catalog.pg_attribute
SELECT relation AS attrelid, c.name AS attname, t.oid AS atttypid, -1 AS attstattarget, t.size AS attlen, number AS attnum,
  (t.category = 'A' AND t.element > 0)::INTEGER AS attndims, -1 AS attcacheoff, modifier AS atttypmod,
  t.by_value AS attbyval, t.alignment AS attalign, t.storage AS attstorage, '' AS attcompression, is_key AS attnotnull,
  false AS atthasdef, false AS atthasmissing, '' AS attidentity, '' AS attgenerated, false AS attisdropped,
  true AS attislocal, 0 AS attinhcount, CASE WHEN t.category = 'S' THEN 100 ELSE 0 END AS attcollation
FROM (SELECT relation, number, name, type, modifier, is_key FROM facts.columns
  UNION ALL SELECT index_oid, key_place, c.name, type, -1, false FROM facts.columns c JOIN facts.relations r
    ON r.oid = c.relation WHERE is_key) c JOIN facts.types t ON t.oid = c.type
-- pg_catalog.pg_index
SELECT index_oid AS indexrelid, oid AS indrelid, keys AS indnatts, keys AS indnkeyatts, true AS indisunique,
  false AS indnullsnotdistinct, true AS indisprimary, false AS indisexclusion, true AS indimmediate,
  false AS indisclustered, true AS indisvalid, false AS indcheckxmin, true AS indisready, true AS indislive,
  false AS indisreplident, key AS indkey, list_transform(key, lambda one: 0) AS indcollation,
  list_transform(key, lambda one: 0) AS indclass, list_transform(key, lambda one: 0) AS indoption
FROM facts.relations WHERE has_key
-- pg_catalog.pg_constraint
SELECT constraint_oid AS oid, name || '_pkey' AS conname, namespace AS connamespace, 'p' AS contype,
  false AS condeferrable, false AS condeferred, true AS convalidated, oid AS conrelid, 0 AS contypid,
  index_oid AS conindid, 0 AS conparentid, 0 AS confrelid, true AS conislocal, 0 AS coninhcount, true AS connoinherit,
  key AS conkey
FROM facts.relations WHERE has_key
-- pg_catalog.pg_tables
SELECT schema AS schemaname, name AS tablename, 'penstock' AS tableowner, has_key AS hasindexes, false AS hasrules,
  false AS hastriggers, false AS rowsecurity FROM facts.relations WHERE is_declared AND kind = 'r'
-- pg_catalog.pg_views
SELECT schema AS schemaname, name AS viewname, 'penstock' AS viewowner, definition
FROM facts.relations WHERE is_declared AND kind = 'v'
-- pg_catalog.pg_matviews
SELECT schema AS schemaname, name AS matviewname, 'penstock' AS matviewowner, false AS hasindexes, true AS ispopulated,
  definition FROM facts.relations WHERE is_declared AND kind = 'm'
-- pg_catalog.pg_foreign_data_wrapper
SELECT 16383 AS oid, 'penstock' AS fdwname, 10 AS fdwowner, 0 AS fdwhandler, 0 AS fdwvalidator
-- pg_catalog.pg_foreign_server
SELECT DISTINCT server_oid AS oid, lower(connector) AS srvname, 10 AS srvowner, 16383 AS srvfdw
FROM facts.relations WHERE is_declared AND kind = 'f'
-- pg_catalog.pg_foreign_table
SELECT oid AS ftrelid, server_oid AS ftserver FROM facts.relations WHERE is_declared AND kind = 'f'
-- pg_catalog.pg_description
SELECT oid AS objoid, 1259 AS classoid, 0 AS objsubid, comment AS description FROM facts.relations WHERE comment <> ''
-- pg_catalog.pg_roles
SELECT 10 AS oid, name AS rolname, false AS rolsuper, true AS rolinherit, false AS rolcreaterole, false AS rolcreatedb,
  true AS rolcanlogin, false AS rolreplication, -1 AS rolconnlimit, false AS rolbypassrls FROM facts.users
-- pg_catalog.pg_user
SELECT name AS usename, 10 AS usesysid, false AS usecreatedb, false AS usesuper, false AS userepl, false AS usebypassrls
FROM facts.users
-- pg_catalog.pg_settings
SELECT name, setting, 'Penstock' AS category, 'user' AS context, 'string' AS vartype, 'session' AS source,
  false AS pending_restart FROM facts.settings
-- information_schema.enabled_roles
SELECT name AS role_name FROM facts.users
-- information_schema.information_schema_catalog_name
SELECT 'penstock' AS catalog_name
-- information_schema.schemata
SELECT 'penstock' AS catalog_name, name AS schema_name, 'penstock' AS schema_owner FROM facts.schemas
-- information_schema.tables
SELECT 'penstock' AS table_catalog, schema AS table_schema, name AS table_name,
  CASE kind WHEN 'r' THEN 'BASE TABLE' WHEN 'f' THEN 'FOREIGN' ELSE 'VIEW' END AS table_type,
  CASE WHEN kind IN ('r', 'f') AND schema = 'public' THEN 'YES' ELSE 'NO' END AS is_insertable_into, 'NO' AS is_typed
FROM facts.relations WHERE is_declared
-- information_schema.views
SELECT 'penstock' AS table_catalog, schema AS table_schema, name AS table_name, definition AS view_definition,
  'NONE' AS check_option, 'NO' AS is_updatable, 'NO' AS is_insertable_into
FROM facts.relations WHERE is_declared AND kind IN ('v', 'm')
-- information_schema.columns
SELECT 'penstock' AS table_catalog, schema AS table_schema, r.name AS table_name, c.name AS column_name,
  number AS ordinal_position, CASE WHEN is_key THEN 'NO' ELSE 'YES' END AS is_nullable,
  CASE WHEN t.category = 'A' AND t.element > 0 THEN 'ARRAY' ELSE t.shown END AS data_type,
  CASE WHEN t.name = 'numeric' AND modifier >= 4 THEN (modifier - 4) >> 16 ELSE bits END AS numeric_precision,
  CASE WHEN t.name = 'numeric' AND modifier >= 4 THEN 10 WHEN bits > 0 THEN 2 END AS numeric_precision_radix,
  CASE WHEN t.name = 'numeric' AND modifier >= 4 THEN (modifier - 4) & 65535 WHEN t.name LIKE 'int_' THEN 0 END
    AS numeric_scale,
  CASE WHEN t.name LIKE 'timestamp%' OR t.name = 'interval' THEN 6 END AS datetime_precision,
  'penstock' AS udt_catalog, 'pg_catalog' AS udt_schema, t.name AS udt_name, number::VARCHAR AS dtd_identifier,
  'NO' AS is_self_referencing, 'NO' AS is_identity, 'NEVER' AS is_generated,
  CASE WHEN r.kind = 'r' THEN 'YES' ELSE 'NO' END AS is_updatable
FROM facts.relations r JOIN facts.columns c ON c.relation = r.oid JOIN (SELECT *, CASE name WHEN 'int2' THEN 16
  WHEN 'int4' THEN 32 WHEN 'int8' THEN 64 WHEN 'float4' THEN 24 WHEN 'float8' THEN 53 END AS bits FROM facts.types) t
  ON t.oid = c.type WHERE is_declared
-- information_schema.table_constraints
SELECT 'penstock' AS constraint_catalog, schema AS constraint_schema, name || '_pkey' AS constraint_name,
  'penstock' AS table_catalog, schema AS table_schema, name AS table_name, 'PRIMARY KEY' AS constraint_type,
  'NO' AS is_deferrable, 'NO' AS initially_deferred, 'YES' AS enforced FROM facts.relations WHERE has_key
-- information_schema.key_column_usage
SELECT 'penstock' AS constraint_catalog, schema AS constraint_schema, r.name || '_pkey' AS constraint_name,
  'penstock' AS table_catalog, schema AS table_schema, r.name AS table_name, c.name AS column_name,
  key_place AS ordinal_position FROM facts.relations r JOIN facts.columns c ON c.relation = r.oid WHERE is_key
