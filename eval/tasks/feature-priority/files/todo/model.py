"""A task, and the list of them."""

from dataclasses import dataclass


@dataclass
class Task:
    id: int
    text: str


class TaskList:
    def __init__(self, tasks=()):
        self.tasks = list(tasks)

    def add(self, text):
        """Adds a task with the next id, and returns it."""
        task = Task(max((task.id for task in self.tasks), default=0) + 1, text)
        self.tasks.append(task)
        return task
