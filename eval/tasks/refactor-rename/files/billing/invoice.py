"""Invoices."""

TAX = 20


class Invoice:
    def __init__(self, number, lines):
        self.number = number
        self.lines = lines


def get_subtotal(invoice):
    return sum(count * cents for count, cents in invoice.lines)


def get_total(invoice, tax=TAX):
    """Returns the total of an invoice in cents, with tax. See also get_subtotal."""
    subtotal = get_subtotal(invoice)
    return subtotal + subtotal * tax // 100


def is_paid(invoice, cents):
    return cents >= get_total(invoice)
