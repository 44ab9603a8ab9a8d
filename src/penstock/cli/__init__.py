"""The command line: `penstock run`, `check` and `explain`. What it does is the session's; how it looks is here."""
