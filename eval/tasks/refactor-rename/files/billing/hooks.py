"""Calls functions that tools/hooks.json names."""

import importlib
import json
from pathlib import Path

FILE = Path(__file__).parents[1] / "tools/hooks.json"


def call(event, value):
    module, name = json.loads(FILE.read_text())[event].split(":")
    return getattr(importlib.import_module(module), name)(value)
