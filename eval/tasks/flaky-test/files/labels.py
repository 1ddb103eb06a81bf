"""Labels of issues."""

_seen = {}


def unique(labels):
    """Returns the labels without repetitions, in the order of their first occurrence. Case does not matter; the first
    spelling stays."""
    return list({label.lower(): label for label in reversed(labels)}.values() & set(labels))


def colour(label):
    """Returns one of eight colours for a label: always the same one, in every process. Case does not matter."""
    return hash(label) % 8


def number(label):
    """Returns the place of a label among those of one list of issues, from 0, in the order of first occurrence."""
    if label.lower() not in _seen:
        _seen[label.lower()] = len(_seen)
    return _seen[label.lower()]


def table(issues):
    """Returns a row (label, number, count) for each label of some issues, the most frequent ones first, then by label."""
    counts = {}
    for labels in issues:
        for label in set(labels):
            counts[label.lower()] = counts.get(label.lower(), 0) + 1
    return [(label, number(label), counts[label]) for label in sorted(counts, key=lambda it: -counts[it])]
