"""Jobs: a line is `NAME DURATION`. Without a duration a job has no limit."""

import re


def _parse_duration(text):
    if not text:
        return None
    seconds, rest = 0, text
    for unit, factor in (("h", 3600), ("m", 60), ("s", 1)):
        found = re.match(rf"(\d+){unit}", rest)
        if found:
            seconds += int(found.group(1)) * factor
            rest = rest[found.end():]
    if rest:
        raise ValueError(f"bad duration: {text}")
    return seconds


def load(lines):
    jobs = {}
    for line in lines:
        name, _, limit = line.strip().partition(" ")
        jobs[name] = _parse_duration(limit.strip())
    return jobs
