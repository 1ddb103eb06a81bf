"""Rows for the bookkeeping program."""

from billing import invoice as invoices

# The names of the columns are those of the bookkeeping program.
COLUMNS = ["number", "get_total"]


def row(invoice):
    return dict(zip(COLUMNS, [invoice.number, invoices.get_total(invoice)]))
