"""What PostgreSQL's clients ask of its catalogs: tables of the server's declarations, and SELECTs over them."""
