"""Alarms: a list of objects with `name` and `after`. Days are known; an alarm without a time is at once."""

import re


class AlarmError(Exception):
    pass


def _duration(text):
    if text == "":
        return 0
    seconds, rest = 0, text
    for unit, factor in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        found = re.match(rf"(\d+){unit}", rest)
        if found:
            seconds += int(found.group(1)) * factor
            rest = rest[found.end():]
    if rest:
        raise AlarmError(f"bad duration: {text}")
    return seconds


def load(entries):
    return [(it["name"], _duration(it.get("after", "").strip().lower())) for it in entries]
