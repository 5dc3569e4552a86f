"""``verigrad tasks`` and ``verigrad tasks show``."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from verigrad.cli.app import app, write
from verigrad.config import Config, config_from, load_config
from verigrad.errors import UserError

tasks = App(
    name="tasks",
    help="List the tasks that exist, or show some problems of one.",
    help_format="plaintext",
    result_action="return_value",
    sort_key=5,
)
app.command(tasks)


@tasks.default
def list_tasks(kind: str | None = None, /) -> int:
    """List the built-in tasks, or the datasets of reasoning-gym.

    verigrad tasks
    verigrad tasks reasoning_gym

    Args:
        kind: "reasoning_gym" for its datasets; the built-in tasks without it.
    """
    if kind not in (None, "reasoning_gym"):
        raise UserError(
            f"tasks: {kind!r} is no kind of task; leave it out, or write reasoning_gym. To see "
            f"problems of a task: verigrad tasks show {kind}"
        )
    from verigrad.tasks import listing

    return write(listing.reasoning_gym() if kind else listing.built_in())


@tasks.command
def show(
    name: Annotated[str, Parameter(name="NAME_OR_CONFIG")],
    /,
    *,
    n: Annotated[int, Parameter(name="--n")] = 5,
    model: str | None = None,
    difficulty: int | None = None,
    seed: int = 0,
) -> int:
    """Print the problems that a run draws first, as the model will see them.

    verigrad tasks show countdown --n 3 --difficulty 2
    verigrad tasks show run.toml

    Args:
        name: A task's name as in a configuration, or a configuration, whose task it is.
        n: How many problems.
        model: Alias, folder or hub id of the model whose tokenizer renders the prompts; without it
            the configuration's, or smollm2-135m. No weights are loaded.
        difficulty: How hard the problems of a built-in task are.
        seed: The seed of the run that would draw them.
    """
    if n < 1:
        raise UserError(f"tasks show: --n is {n}; it must be 1 or more")
    if not name.endswith(".toml"):
        config = _configuration(name, model or "smollm2-135m", difficulty, seed)
    elif difficulty is None:
        overrides = [("run.seed", str(seed))] if seed else []
        overrides += [("model.name", model)] if model else []
        config = load_config(Path(name), overrides)
    else:
        raise UserError(f"tasks show: {name} says how hard its task is; leave --difficulty out")
    from verigrad.training.showing import show_problems

    return write(show_problems(config, n))


def _configuration(name: str, model: str, difficulty: int | None, seed: int) -> Config:
    """A run of a task, of which only the problems are looked at."""
    task = {"name": name} | ({} if difficulty is None else {"difficulty": difficulty})
    keys = {"task": task, "model": model, "run": {"seed": seed}}
    return config_from(keys, source="tasks show", base=Path.cwd())
