"""The command line: `penstock run`, `check` and `explain`. The session does the work; this package formats it."""
