"""Greets a person: greet.py NAME COUNT."""

import sys

from translate import message

if __name__ == "__main__":
    name, count = sys.argv[1], int(sys.argv[2])
    print(message("greeting", name=name))
    print(message("files", name=name, count=count))
    print(message("bye"))
