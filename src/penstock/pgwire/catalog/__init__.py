"""Answer what PostgreSQL's clients read of its catalogs: tables of the server's declarations, and SELECTs over them."""
