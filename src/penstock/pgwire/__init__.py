"""The PostgreSQL door: a server of PostgreSQL's protocol 3.0 in front of the same service as the HTTP door."""
