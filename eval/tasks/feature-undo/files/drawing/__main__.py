"""Reads commands from standard input."""

import sys

from drawing.canvas import Canvas
from drawing.commands import execute


def main():
    canvas = Canvas()
    for line in sys.stdin:
        if line.strip():
            for text in execute(canvas, line):
                print(text)


if __name__ == "__main__":
    main()
