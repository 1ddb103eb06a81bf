import unittest
from unittest import mock

from billing import cart, export, hooks, reminders
from billing.invoice import Invoice, get_total


class BillingTest(unittest.TestCase):
    def setUp(self):
        self.invoice = Invoice(7, [(2, 100), (1, 50)])

    def test_total(self):
        self.assertEqual(get_total(self.invoice), 300)
        self.assertEqual(get_total(self.invoice, tax=0), 250)

    def test_cart(self):
        one = cart.Cart()
        one.put(2, 100)
        self.assertEqual(one.get_total(), 200)
        self.assertEqual(one.preview(), (200, 240))

    def test_preview_asks_the_invoice(self):
        with mock.patch("billing.cart.get_total", return_value=1):
            self.assertEqual(cart.Cart().preview(), (0, 1))

    def test_export(self):
        self.assertEqual(export.row(self.invoice), {"number": 7, "get_total": 300})

    def test_reminder(self):
        self.assertEqual(reminders.reminder(self.invoice, 100), "Invoice 7: 200 cents are open.")

    def test_hooks(self):
        self.assertEqual(hooks.call("invoice_sent", self.invoice), 300)
        self.assertEqual(hooks.call("parcel_sent", [1, 2]), 203)


if __name__ == "__main__":
    unittest.main()
