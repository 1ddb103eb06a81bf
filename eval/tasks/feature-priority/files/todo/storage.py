"""Tasks in a JSON file: {"tasks": [{"id": 1, "text": "…"}]}."""

import json
import os

from todo.model import Task, TaskList


def load(path):
    """Returns the tasks of a file; none if there is no file."""
    if not os.path.exists(path):
        return TaskList()
    with open(path) as file:
        return TaskList(Task(it["id"], it["text"]) for it in json.load(file)["tasks"])


def save(path, tasks):
    with open(path, "w") as file:
        json.dump({"tasks": [{"id": task.id, "text": task.text} for task in tasks.tasks]}, file)
