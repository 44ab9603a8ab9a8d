"""Draft transactions: what commands make of the declarations, before they are accepted."""
