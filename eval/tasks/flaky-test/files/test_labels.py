import subprocess
import sys
import unittest

from labels import colour, table, unique

ISSUES = [["Bug", "parser", "urgent"], ["docs", "bug"], ["parser", "Docs", "docs"], ["ui"]]


class LabelsTest(unittest.TestCase):
    def test_unique(self):
        self.assertEqual(unique(["Bug", "docs", "bug", "ui", "DOCS", "api"]), ["Bug", "docs", "ui", "api"])

    def test_order(self):
        wanted = [("bug", 0, 2), ("docs", 3, 2), ("parser", 1, 2), ("ui", 4, 1), ("urgent", 2, 1)]
        self.assertEqual(table(ISSUES), wanted)

    def test_another_list(self):
        self.assertEqual(table([["ui"], ["ui", "api"]]), [("ui", 0, 2), ("api", 1, 1)])

    def test_colour(self):
        code = "from labels import colour; print(colour('bug'), colour('docs'))"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertEqual(shown.split(), [str(colour("Bug")), str(colour("docs"))])


if __name__ == "__main__":
    unittest.main()
