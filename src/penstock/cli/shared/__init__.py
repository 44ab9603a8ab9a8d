"""What commands and the shell share: options, scripts, the client of a server, and how answers are shown."""
