"""Start-up of the JVM, Spark's session, and the Python daemon."""
