"""DuckDB in a process of its own, and the processes that the server starts."""
