"""The HTTP door: routes, formats of bodies, limits of requests, problem documents."""
