"""Ranges of page numbers, as in a print dialog: `1-3,7,10-`."""


def parse(text, last):
    """Returns the pages of a text, sorted, each once.

    Parts are separated by commas, spaces around numbers and parts have no meaning, and empty parts are skipped. `3` is
    one page, `2-4` are three, `5-` goes up to the last page and `-2` begins at page 1. Pages beyond the last one are left
    out. Raises ValueError for a part that is no range, for page 0, and for a range whose end is before its begin.
    """
    pages = set()
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        begin, dash, end = (word.strip() for word in part.partition("-"))
        if not dash:
            end = begin
        if not begin and not end:
            raise ValueError(f"not a range: {part}")
        first = int(begin) if begin else 1
        final = int(end) if end else max(last, first)
        if first < 1 or final < first:
            raise ValueError(f"not a range: {part}")
        pages.update(range(first, min(final, last) + 1))
    return sorted(pages)


def shown(pages):
    """Returns the shortest text for some pages: ascending, neighbours as ranges (`1-3`), two neighbours as `1,2`."""
    groups = []
    for page in sorted(set(pages)):
        if groups and groups[-1][1] == page - 1:
            groups[-1][1] = page
        else:
            groups.append([page, page])
    words = []
    for first, final in groups:
        if final - first >= 2:
            words.append(f"{first}-{final}")
        else:
            words += [str(page) for page in range(first, final + 1)]
    return ",".join(words)
