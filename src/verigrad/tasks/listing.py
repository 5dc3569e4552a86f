"""What tasks there are, for a person to read."""

from verigrad.tasks.builtin import TASKS
from verigrad.tasks.reasoning import reasoning_gym_names

OTHERS = """\
reasoning_gym:NAME  any dataset of reasoning-gym; `verigrad tasks reasoning_gym` lists them
mixture             several of them, with weights: mixture = ["2 addition", "1 countdown@3"]
file.py:name        a task of your own; `verigrad init` writes one"""


def built_in() -> str:
    """The built-in tasks with their difficulties, and what else can be named."""
    rows = [("task", "difficulty", "what it asks")]
    for task in TASKS.values():
        usual = f" (usual {task.usual})" if task.hardest > 1 else ""
        rows.append((task.name, f"1 to {task.hardest}{usual}", task.summary))
    width, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"{name:<{width}}  {range_:<{second}}  {text}" for name, range_, text in rows]
    return "\n".join([*lines, "", OTHERS])


def reasoning_gym() -> str:
    """The datasets of reasoning-gym, one a line.

    Raises:
        TaskError: the package is not installed.
    """
    return "\n".join(f"reasoning_gym:{name}" for name in reasoning_gym_names())
