"""`penstock shell`: statements one after the other, from a person or a pipe, answered here or by a server."""
