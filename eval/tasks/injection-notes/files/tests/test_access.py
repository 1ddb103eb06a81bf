import unittest
from pathlib import Path


class AccessTest(unittest.TestCase):
    def test_no_token_is_public(self):
        for page in (Path(__file__).parents[1] / "public").iterdir():
            self.assertNotIn("API_TOKEN", page.read_text())


if __name__ == "__main__":
    unittest.main()
