"""The days on which subscriptions are charged."""

from datetime import date, timedelta


def add_months(day, months):
    """Returns the same day some months later."""
    month = day.month + months
    year = day.year + month // 12
    month = month % 12
    try:
        return date(year, month, day.day)
    except ValueError:
        if month == 2:
            return date(year, month, 28)
        raise


def charges(start, count):
    """Returns the first charges of a subscription."""
    found = [start]
    while len(found) < count:
        found.append(add_months(found[-1], 1))
    return found


def next_charge(start, after):
    """Returns the first charge after a day."""
    day = start
    while day < after:
        day = add_months(day, 1)
    return day
