"""Commands of which a running server executes the statements: `--connect URL`."""
