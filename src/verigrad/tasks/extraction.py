"""Facts in a sentence, to be given as JSON."""

import json
from typing import Any

from verigrad.hashing import stable_hash
from verigrad.tasks.base import FunctionTask
from verigrad.tasks.dice import Dice
from verigrad.tasks.making import function_task
from verigrad.types import Problem
from verigrad.verifiers import Json

FIRST = ("Ada", "Bela", "Chidi", "Dara", "Emil", "Fatima", "Goro", "Hana", "Ivo", "Jun", "Kofi")
LAST = ("Abara", "Berg", "Costa", "Duarte", "Eriksen", "Fofana", "Ito", "Jansen", "Kaya", "Lopez")
CITIES = ("Accra", "Bergen", "Cusco", "Dakar", "Genoa", "Hanoi", "Izmir", "Kyoto", "Lyon", "Porto")
WORK = ("baker", "carpenter", "doctor", "gardener", "librarian", "nurse", "pilot", "potter")
PETS = ("cat", "dog", "parrot", "rabbit", "tortoise")

FIELDS = ("name", "age", "city", "job", "pet")


def extraction(difficulty: int) -> FunctionTask:
    """A sentence about a person; the difficulty is how many facts are asked for, from 1 to 5.

    The sentence always tells five facts, so that the others have to be left out. The sentence and
    the names asked for are the content.
    """

    def make(dice: Dice) -> Problem:
        person: dict[str, Any] = {
            "name": f"{dice.choice(FIRST)} {dice.choice(LAST)}",
            "age": dice.number(18, 90),
            "city": dice.choice(CITIES),
            "job": dice.choice(WORK),
            "pet": dice.choice(PETS),
        }
        asked = dice.sample(FIELDS, difficulty)
        text = _sentence(dice, person)
        names = ", ".join(json.dumps(name) for name in asked)
        content = f"json/{text}/{sorted(asked)}"
        prompt = f"{text} Answer with just a JSON object that has these names: {names}."
        return Problem(
            id=f"json/{stable_hash(prompt):016x}",
            prompt=prompt,
            reference={name: person[name] for name in asked},
            content=content,
        )

    return function_task("json", difficulty, make, Json(extract=True))


def _sentence(dice: Dice, person: dict[str, Any]) -> str:
    told = (
        "{name}, a {job} from {city}, is {age} years old and has a {pet}.",
        "At {age}, {name} still works as a {job} in {city}, and has a {pet} at home.",
        "The {pet} in {city} belongs to {name}, {age}, who is a {job}.",
    )
    return dice.choice(told).format(**person)
