"""What the tables of the catalogs are, and what is declared at the server."""
