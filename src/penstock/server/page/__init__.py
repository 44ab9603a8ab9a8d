"""The page: its files, which are static, and the sessions of browsers."""
