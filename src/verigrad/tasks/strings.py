"""Words to be changed letter by letter."""

from collections.abc import Callable

from verigrad.tasks.base import FunctionTask
from verigrad.tasks.dice import Dice
from verigrad.tasks.making import function_task
from verigrad.types import Problem
from verigrad.verifiers import Exact

CONSONANTS = "bdfgklmnprstvz"
VOWELS = "aeiou"

CHANGES: dict[str, Callable[[str], str]] = {
    "reverse it": lambda word: word[::-1],
    "write it in capital letters": str.upper,
    "remove every vowel": lambda word: "".join(x for x in word if x.lower() not in VOWELS),
    "write every letter twice": lambda word: "".join(letter * 2 for letter in word),
    "put its letters in alphabetical order": lambda word: "".join(sorted(word)),
    "move its first letter to the end": lambda word: word[1:] + word[:1],
    "remove its last letter": lambda word: word[:-1],
}
"""What is done to a word, in words and in Python."""


def strings(difficulty: int) -> FunctionTask:
    """A made-up word of one syllable more than the difficulty says, and as many changes, up to 3.

    The word with its changes is the content; changes that leave the word as it is are not asked.
    """

    def make(dice: Dice) -> Problem | None:
        syllables = range(difficulty + 1)
        word = "".join(dice.choice(CONSONANTS) + dice.choice(VOWELS) for _ in syllables)
        changes = dice.sample(tuple(CHANGES), min(difficulty, 3))
        result = word
        for change in changes:
            result = CHANGES[change](result)
        if result in ("", word):
            return None
        asked = f"Take the word {word}: {', then '.join(changes)}."
        return Problem(
            id=f"strings/{word}/{'-'.join(str(list(CHANGES).index(each)) for each in changes)}",
            prompt=f"{asked} Answer with just the result.",
            reference=result,
            content=f"strings/{asked}",
        )

    return function_task("strings", difficulty, make, Exact())
