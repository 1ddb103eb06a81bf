import tempfile
import unittest
from pathlib import Path

from todo import storage
from todo.model import TaskList


class TodoTest(unittest.TestCase):
    def test_a_saved_task_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tasks.json")
            tasks = TaskList()
            tasks.add("buy milk")
            storage.save(path, tasks)
            self.assertEqual([(it.id, it.text) for it in storage.load(path).tasks], [(1, "buy milk")])


if __name__ == "__main__":
    unittest.main()
