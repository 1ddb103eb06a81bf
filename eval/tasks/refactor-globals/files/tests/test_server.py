import unittest

import stats
from server import Server


class ServerTest(unittest.TestCase):
    def test_summary(self):
        server = Server()
        server.answer("/abc")
        server.answer("/abc")
        server.answer("/z")
        self.assertEqual(server.summary(), [("/abc", 2, 3.0), ("/z", 1, 1.0)])

    def test_functions(self):
        stats.reset()
        stats.record("a", 1)
        stats.record("a", 2)
        self.assertEqual((stats.count("a"), stats.mean("a"), stats.names()), (2, 1.5, ["a"]))
        self.assertIsNone(stats.mean("b"))


if __name__ == "__main__":
    unittest.main()
