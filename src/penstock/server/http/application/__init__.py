"""The application of all routes, and the server that has its connections."""
