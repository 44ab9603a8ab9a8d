"""The soak of a server: queries that come and go, subscribers, kills, and every answer compared."""
