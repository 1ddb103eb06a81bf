"""Prints the contacts of a CSV file, sorted by name."""

import sys


def read(path):
    contacts = []
    with open(path) as file:
        header = file.readline().strip().split(",")
        for line in file:
            fields = dict(zip(header, line.strip().split(",")))
            contacts.append((fields["name"].strip('"'), fields.get("mail", "")))
    return contacts


def main():
    for name, mail in sorted(read(sys.argv[1])):
        if mail:
            print(f"{name} <{mail}>")


if __name__ == "__main__":
    main()
