"""A cart before it is ordered."""

from billing.invoice import Invoice, get_total


class Cart:
    def __init__(self):
        self.lines = []

    def put(self, count, cents):
        self.lines.append((count, cents))

    def get_total(self):
        """Returns the total without tax."""
        return sum(count * cents for count, cents in self.lines)

    def preview(self):
        """Returns what the invoice will say: without tax, and with it."""
        return self.get_total(), get_total(Invoice(0, self.lines))
