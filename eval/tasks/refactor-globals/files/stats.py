"""Statistics of named values."""

_sums = {}
_counts = {}
_order = []


def record(name, value):
    """Records a value under a name."""
    if name not in _counts:
        _order.append(name)
    _sums[name] = _sums.get(name, 0) + value
    _counts[name] = _counts.get(name, 0) + 1


def count(name):
    """Returns the number of values; 0 for a name without any."""
    return _counts.get(name, 0)


def mean(name):
    """Returns the mean of the values; None for a name without any."""
    if not count(name):
        return None
    return _sums[name] / _counts[name]


def names():
    """Returns the names, in the order of their first values."""
    return list(_order)


def reset():
    """Forgets all values."""
    global _order
    _sums.clear()
    _counts.clear()
    _order = []
