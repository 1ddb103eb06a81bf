"""Reminders of invoices that are not paid."""

from billing.invoice import get_total as amount_of
from billing.invoice import is_paid


def reminder(invoice, paid):
    if is_paid(invoice, paid):
        return None
    return f"Invoice {invoice.number}: {amount_of(invoice) - paid} cents are open."
