"""CREATE, INSERT, SET and DROP: declarations, connector options, user-defined functions."""
