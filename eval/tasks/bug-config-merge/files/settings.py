"""The settings of the service: defaults, and JSON files over them."""

import json

DEFAULTS = {
    "debug": False,
    "database": {"host": "localhost", "port": 5432, "pool": {"min": 1, "max": 8}},
    "allowed": ["127.0.0.1"],
}


def merge(base, over):
    """Returns the settings of `base` with those of `over` over them."""
    for key, value in over.items():
        base[key] = value
    return base


def load(paths):
    """Returns the defaults with the settings of these files over them, in their order."""
    settings = DEFAULTS
    for path in paths:
        with open(path) as file:
            settings = merge(settings, json.load(file))
    return settings
