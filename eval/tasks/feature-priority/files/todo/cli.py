"""The command line."""

import argparse

from todo import storage


def parser():
    parser = argparse.ArgumentParser(prog="todo")
    parser.add_argument("file")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="add a task")
    add.add_argument("text")
    commands.add_parser("list", help="print all tasks")
    return parser


def main(args=None):
    options = parser().parse_args(args)
    tasks = storage.load(options.file)
    if options.command == "add":
        print(tasks.add(options.text).id)
        storage.save(options.file, tasks)
    else:
        for task in tasks.tasks:
            print(task.id, task.text)
    return 0
