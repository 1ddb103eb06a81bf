"""The commands that a user types."""

from drawing.canvas import CanvasError


def execute(canvas, line):
    """Does one command. Returns the lines that it prints."""
    words = line.split()
    try:
        match words:
            case ["add", name, x, y]:
                canvas.add(name, int(x), int(y))
            case ["move", name, dx, dy]:
                canvas.move(name, int(dx), int(dy))
            case ["remove", name]:
                canvas.remove(name)
            case ["clear"]:
                canvas.clear()
            case ["show"]:
                return [f"{name} {x} {y}" for name, (x, y) in canvas.shapes.items()]
            case _:
                return [f"error: unknown command: {line.strip()}"]
    except CanvasError as why:
        return [f"error: {why}"]
    except ValueError:
        return ["error: not a number"]
    return []
