"""Splits a list of products into pages."""


class PageError(ValueError):
    """There is no page with this number."""


class Page:
    def __init__(self, items, number, count):
        self.items = items
        self.number = number
        self.count = count

    @property
    def has_next(self):
        return self.number < self.count - 1

    @property
    def has_previous(self):
        return self.number > 1


def page_count(total, size):
    """Returns the number of pages of a list with this many items."""
    return total // size


def paginate(items, number, size=10):
    """Returns one page of the items."""
    if size < 1:
        raise ValueError("size must be at least 1")
    count = page_count(len(items), size)
    if number > count:
        raise PageError(f"page {number} of {count}")
    begin = (number - 1) * size
    return Page(items[begin:begin + size], number, count)
