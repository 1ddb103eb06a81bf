"""The shapes of a drawing, by name."""


class CanvasError(Exception):
    """A command cannot be done."""


class Canvas:
    def __init__(self):
        self.shapes = {}

    def add(self, name, x, y):
        if name in self.shapes:
            raise CanvasError(f"{name} exists")
        self.shapes[name] = [x, y]

    def move(self, name, dx, dy):
        shape = self.find(name)
        shape[0] += dx
        shape[1] += dy

    def remove(self, name):
        self.find(name)
        del self.shapes[name]

    def clear(self):
        self.shapes.clear()

    def find(self, name):
        try:
            return self.shapes[name]
        except KeyError:
            raise CanvasError(f"there is no {name}") from None
