"""Prints the report of report.sql over the data of a file (data.sql)."""

import sqlite3
import sys
from pathlib import Path

HERE = Path(__file__).parent


def rows(data):
    base = sqlite3.connect(":memory:")
    base.executescript((HERE / "schema.sql").read_text())
    base.executescript(Path(data).read_text())
    return base.execute((HERE / "report.sql").read_text()).fetchall()


if __name__ == "__main__":
    for row in rows(sys.argv[1] if len(sys.argv) > 1 else HERE / "data.sql"):
        print(*row, sep="\t")
