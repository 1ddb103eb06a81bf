"""The messages of the program."""

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "messages"


def message(key, **values):
    """Returns the text of a message with its values."""
    text = json.loads((FOLDER / "en.json").read_text())[key]
    if isinstance(text, dict):
        text = text["one" if values["count"] == 1 else "other"]
    return text.format(**values)
