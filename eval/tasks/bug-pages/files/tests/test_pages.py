import unittest

from shop.pages import paginate


class PagesTest(unittest.TestCase):
    def test_first_page(self):
        page = paginate(list(range(30)), 1)
        self.assertEqual(page.items, list(range(10)))
        self.assertTrue(page.has_next)
        self.assertFalse(page.has_previous)

    def test_size(self):
        self.assertEqual(paginate(list("abcd"), 2, size=2).items, ["c", "d"])


if __name__ == "__main__":
    unittest.main()
