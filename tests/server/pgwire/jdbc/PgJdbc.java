import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.Arrays;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;

/** What a client in Java does with the server, each thing with lines of what it has got. */
public class PgJdbc {
    interface Action {
        void run() throws Exception;
    }

    static String url, password;

    static Connection connect(String options) throws SQLException {
        return DriverManager.getConnection(url + options, "admin", password);
    }

    /** Prints what an action prints, or its error. */
    static void does(String what, Action action) {
        System.out.println("-- " + what);
        try {
            action.run();
        } catch (SQLException error) {
            System.out.println("error " + error.getSQLState());
        } catch (Exception error) {
            System.out.println("failed " + error);
        }
    }

    static void rows(ResultSet rows, int... columns) throws SQLException {
        int count = 0;
        for (; rows.next(); count++) {
            StringBuilder line = new StringBuilder();
            for (int column : columns) line.append(rows.getString(column)).append(" ");
            if (columns.length > 0) System.out.println(line.toString().trim());
        }
        if (columns.length == 0) System.out.println(count + " rows");
        rows.close();
    }

    static void metadata(DatabaseMetaData data) throws SQLException {
        String[] kinds = {"TABLE", "VIEW", "MATERIALIZED VIEW", "FOREIGN TABLE"};
        does("getTables", () -> rows(data.getTables(null, "public", "%", kinds), 2, 3, 4, 5));
        does("getColumns", () -> rows(data.getColumns(null, "public", "rooms", "%"), 4, 5, 6, 7, 9, 11, 17));
        does("getPrimaryKeys", () -> rows(data.getPrimaryKeys(null, "public", "rooms"), 3, 4, 5, 6));
        does("getIndexInfo", () -> rows(data.getIndexInfo(null, "public", "rooms", true, false), 3, 4, 6, 8, 9));
        does("getSchemas", () -> rows(data.getSchemas(), 1, 2));
        does("getCatalogs", () -> rows(data.getCatalogs(), 1));
        does("getTableTypes", () -> rows(data.getTableTypes()));
        does("getTypeInfo", () -> {
            boolean found = false;
            for (ResultSet rows = data.getTypeInfo(); rows.next();) found |= rows.getString(1).equals("numeric");
            System.out.println("numeric " + found);
        });
        does("getImportedKeys", () -> rows(data.getImportedKeys(null, "public", "rooms")));
        does("getExportedKeys", () -> rows(data.getExportedKeys(null, "public", "rooms")));
        does("getCrossReference", () -> rows(data.getCrossReference(null, "public", "rooms", null, "public", "notes")));
        does("getProcedures", () -> rows(data.getProcedures(null, null, "%")));
        does("getProcedureColumns", () -> rows(data.getProcedureColumns(null, null, "%", "%")));
        does("getFunctions", () -> rows(data.getFunctions(null, null, "%")));
        does("getFunctionColumns", () -> rows(data.getFunctionColumns(null, null, "%", "%")));
        does("getTablePrivileges", () -> rows(data.getTablePrivileges(null, "public", "rooms"), 3, 5, 6));
        does("getColumnPrivileges", () -> rows(data.getColumnPrivileges(null, "public", "rooms", "area")));
        does("getBestRowIdentifier", () -> rows(data.getBestRowIdentifier(null, "public", "rooms", 2, true), 2, 4));
        does("getVersionColumns", () -> rows(data.getVersionColumns(null, "public", "rooms"), 2));
        does("getUDTs", () -> rows(data.getUDTs(null, null, "%", null)));
        does("limits", () -> System.out.println(data.getMaxColumnNameLength() + " " + data.getMaxColumnsInIndex()
            + " " + data.getSQLKeywords().contains("subscribe") + " " + data.getDatabaseProductVersion()));
    }

    static void setValues(PreparedStatement statement) throws SQLException {
        statement.setObject(1, OffsetDateTime.parse("2024-02-29T12:00:00.123456Z"));
        statement.setDouble(2, 1.5e300);
        statement.setLong(3, Long.MIN_VALUE + 1);
        statement.setBigDecimal(4, new BigDecimal("-12345.67891"));
        statement.setBoolean(5, true);
        statement.setObject(6, LocalDate.of(2024, 2, 29));
        statement.setString(7, "it's \u00e4 \\ \"q\" $1 ?");
        statement.setShort(8, (short) -5);
        statement.setFloat(9, 1.25f);
    }

    static void queries(String mode) throws SQLException {
        try (Connection connection = connect("?preferQueryMode=" + mode + "&prepareThreshold=2")) {
            String select = "SELECT room, level, area, since, ? AS given FROM rooms WHERE level >= ? ORDER BY room";
            try (PreparedStatement statement = connection.prepareStatement(select)) {
                for (int turn = 0; turn < 6; turn++) {
                    statement.setString(1, "x" + turn);
                    statement.setInt(2, 0);
                    ResultSet found = statement.executeQuery();
                    if (turn == 5) rows(found, 1, 2, 3, 4, 5);
                }
            }
            String types = "SELECT CAST(? AS TIMESTAMP), CAST(? AS DOUBLE), CAST(? AS BIGINT), CAST(? AS DECIMAL(20,5)),"
                + " CAST(? AS BOOLEAN), CAST(? AS DATE), CAST(? AS STRING), CAST(? AS SMALLINT), CAST(? AS FLOAT)"
                + " FROM rooms LIMIT 1";
            try (PreparedStatement statement = connection.prepareStatement(types)) {
                for (int turn = 0; turn < 6; turn++) {
                    setValues(statement);
                    ResultSet found = statement.executeQuery();
                    found.next();
                    if (turn == 5)
                        System.out.println(found.getObject(1, OffsetDateTime.class) + " " + found.getDouble(2) + " "
                            + found.getLong(3) + " " + found.getBigDecimal(4) + " " + found.getBoolean(5) + " "
                            + found.getObject(6, LocalDate.class) + " " + found.getString(7) + " " + found.getShort(8)
                            + " " + found.getFloat(9));
                }
                int[] kinds = {Types.TIMESTAMP, Types.DOUBLE, Types.BIGINT, Types.NUMERIC, Types.BOOLEAN, Types.DATE,
                    Types.VARCHAR, Types.SMALLINT, Types.REAL};
                for (int number = 0; number < kinds.length; number++) statement.setNull(number + 1, kinds[number]);
                ResultSet found = statement.executeQuery();
                found.next();
                int nulls = 0;
                for (int number = 1; number <= kinds.length; number++) nulls += found.getObject(number) == null ? 1 : 0;
                System.out.println(nulls + " are NULL");
            }
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc_notes VALUES (?, ?)")) {
                for (int number = 0; number < 3; number++) {
                    insert.setString(1, mode);
                    insert.setString(2, "n" + number);
                    insert.addBatch();
                }
                System.out.println(Arrays.toString(insert.executeBatch()));
            }
            try (Statement batch = connection.createStatement()) {
                batch.addBatch("INSERT INTO jdbc_notes VALUES ('b', '1')");
                batch.addBatch("INSERT INTO jdbc_notes VALUES ('b', '2'), ('b', '3')");
                System.out.println(Arrays.toString(batch.executeBatch()));
            }
        }
    }

    static void fetching() throws SQLException {
        try (Connection connection = connect(""); Statement statement = connection.createStatement()) {
            connection.setAutoCommit(false);
            statement.setFetchSize(1);
            rows(statement.executeQuery("SELECT room FROM rooms ORDER BY room"), 1);
            statement.setFetchSize(100);
            rows(statement.executeQuery("SELECT i FROM generate_series(1, 1000) i"));
            connection.commit();
        }
    }

    static void ended(boolean byTime) throws SQLException {
        try (Connection connection = connect(""); Statement statement = connection.createStatement()) {
            if (byTime) {
                statement.setQueryTimeout(1);
            } else {
                new Thread(() -> {
                    try {
                        Thread.sleep(700);
                        statement.cancel();
                    } catch (Exception error) {
                        System.out.println(error);
                    }
                }).start();
            }
            try {
                rows(statement.executeQuery("SUBSCRIBE TO warm"));
            } catch (SQLException error) {
                System.out.println("error " + error.getSQLState());
            }
            statement.setQueryTimeout(0);
            rows(statement.executeQuery("SELECT 1"), 1);
        }
    }

    static void saved(String mode) throws SQLException {
        try (Connection connection = connect("?autosave=" + mode); Statement statement = connection.createStatement()) {
            connection.setAutoCommit(false);
            rows(statement.executeQuery("SELECT 1"), 1);
            try {
                statement.executeQuery("SELECT nope FROM rooms");
            } catch (PSQLException error) {
                System.out.println(error.getSQLState() + " at " + error.getServerErrorMessage().getPosition());
            }
            rows(statement.executeQuery("SELECT 2"), 1);
        }
    }

    static void others(Connection connection) {
        does("columns of an answer", () -> {
            try (PreparedStatement statement = connection.prepareStatement("SELECT room AS r, level, area, since FROM"
                    + " rooms WHERE level >= ? AND area < ?")) {
                ResultSetMetaData data = statement.getMetaData();
                for (int column = 1; column <= 4; column++)
                    System.out.println(data.getColumnLabel(column) + " " + data.getColumnTypeName(column) + " "
                        + data.getPrecision(column) + " " + data.getScale(column) + " " + data.getColumnClassName(column));
                ParameterMetaData parameters = statement.getParameterMetaData();
                System.out.println(parameters.getParameterTypeName(1) + " " + parameters.getParameterTypeName(2));
            }
        });
        does("COPY", () -> {
            var copy = ((PGConnection) connection).getCopyAPI();
            System.out.println(copy.copyIn("COPY jdbc_notes FROM STDIN", new StringReader("cp\t1\ncp\t2\n")));
            StringWriter out = new StringWriter();
            System.out.println(copy.copyOut("COPY (SELECT room FROM rooms ORDER BY room) TO STDOUT", out) + " "
                + out.toString().replace("\n", ","));
        });
        does("scrolling", () -> {
            ResultSet found = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)
                .executeQuery("SELECT room FROM rooms ORDER BY room");
            found.last();
            System.out.println(found.getRow() + " " + found.getString(1));
        });
        does("arrays", () -> {
            ResultSet found = connection.createStatement().executeQuery("SELECT array_agg(level) AS levels FROM rooms");
            found.next();
            System.out.println(Arrays.toString((Object[]) found.getArray(1).getArray()));
            PreparedStatement named = connection.prepareStatement("SELECT relname FROM pg_class WHERE relname = ANY (?)"
                + " ORDER BY 1");
            named.setArray(1, connection.createArrayOf("text", new Object[] {"rooms", "notes"}));
            rows(named.executeQuery(), 1);
        });
        does("an interval and decimals of the catalogs", () -> rows(connection.createStatement().executeQuery(
            "SELECT interval '1 mon 2 days 03:00:00', 0.1 + 0.20, 'NaN'::float8"), 1, 2, 3));
        does("casts in PostgreSQL's words", () -> rows(connection.createStatement().executeQuery(
            "SELECT 300::int8, '-1.50'::numeric, 1.5::float8, '\\x0a'::bytea FROM rooms LIMIT 1"), 1, 2, 3, 4));
        does("several statements", () -> {
            Statement statement = connection.createStatement();
            statement.execute("SELECT 1; SELECT 2 AS x");
            rows(statement.getResultSet(), 1);
            System.out.println(statement.getMoreResults());
            rows(statement.getResultSet(), 1);
        });
        does("escapes", () -> rows(connection.createStatement().executeQuery(
            "SELECT {fn upper('a')}, {d '2024-01-01'}, {ts '2024-01-01 00:00:00'}"), 1, 2, 3));
        does("client info", () -> {
            connection.setClientInfo("ApplicationName", "y");
            System.out.println(connection.getClientInfo("ApplicationName"));
        });
    }

    static void options() {
        does("options", () -> {
            try (Connection connection = connect("?currentSchema=public&ApplicationName=x&readOnly=true"
                    + "&assumeMinServerVersion=12&stringtype=unspecified&loginTimeout=20&socketTimeout=60"
                    + "&options=-c%20statement_timeout=50s&gssEncMode=prefer&channelBinding=prefer")) {
                System.out.println(connection.getSchema() + " " + connection.getCatalog() + " " + connection.isReadOnly()
                    + " " + connection.isValid(20));
                connection.createStatement().executeUpdate("INSERT INTO jdbc_notes VALUES ('x', 'y')");
            }
        });
        does("a batch as one statement", () -> {
            try (Connection connection = connect("?reWriteBatchedInserts=true");
                    PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc_notes VALUES (?, ?)")) {
                for (int number = 0; number < 5; number++) {
                    insert.setString(1, "rewritten");
                    insert.setString(2, "n" + number);
                    insert.addBatch();
                }
                System.out.println(insert.executeBatch().length);
                rows(connection.createStatement().executeQuery(
                    "SELECT count(*) AS n FROM jdbc_notes WHERE room = 'rewritten'"), 1);
            }
        });
        does("a wrong password", () -> DriverManager.getConnection(url, "admin", "wrong"));
    }

    static void encryption(String[] modes) {
        for (String mode : modes) does(mode.replaceAll("&.*", ""), () -> {
            try (Connection connection = connect("?sslmode=" + mode)) {
                rows(connection.createStatement().executeQuery("SELECT 1"), 1);
            }
        });
    }

    public static void main(String[] given) throws Exception {
        url = given[0];
        password = given[1];
        if (given.length > 2) {
            encryption(Arrays.copyOfRange(given, 2, given.length));
            return;
        }
        try (Connection connection = connect("")) {
            metadata(connection.getMetaData());
            others(connection);
        }
        for (String mode : new String[] {"extended", "simple", "extendedForPrepared", "extendedCacheEverything"})
            does("queries: " + mode, () -> queries(mode));
        does("parts of an answer", PgJdbc::fetching);
        does("a cancelled statement", () -> ended(false));
        does("a statement that takes too long", () -> ended(true));
        for (String mode : new String[] {"always", "conservative", "never"}) does("autosave " + mode, () -> saved(mode));
        options();
    }
}
