"""Shows: `TITLE|DURATION`. A show has a duration in hours and minutes, or it is left out."""

import re


def to_seconds(text):
    seconds, rest = 0, text
    for unit, factor in (("h", 3600), ("m", 60)):
        found = re.match(rf"(\d+){unit}", rest)
        if found:
            seconds += int(found.group(1)) * factor
            rest = rest[found.end():]
    if rest or not text:
        raise ValueError(f"bad duration: {text}")
    return seconds


def load(text):
    shows = []
    for line in text.splitlines():
        title, _, length = line.partition("|")
        try:
            shows.append((title, to_seconds(length)))
        except ValueError:
            continue
    return shows
