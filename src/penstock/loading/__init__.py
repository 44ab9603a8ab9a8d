"""When pandas is loaded, and where modules of users' functions are looked for."""
