import unittest

from loaders import alarms, jobs, shows


class LoadersTest(unittest.TestCase):
    def test_jobs(self):
        self.assertEqual(jobs.load(["build 1h30m", "clean"]), {"build": 5400, "clean": None})

    def test_alarms(self):
        self.assertEqual(alarms.load([{"name": "a", "after": "1d1s"}]), [("a", 86401)])

    def test_shows(self):
        self.assertEqual(shows.load("News|15m\nNoise|1s"), [("News", 900)])


if __name__ == "__main__":
    unittest.main()
