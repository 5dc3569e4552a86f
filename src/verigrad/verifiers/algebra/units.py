"""Units of measurement: what "5 km/h" and "5 apples" are measured in."""

import re
from dataclasses import dataclass
from fractions import Fraction

Dimensions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit.

    Example: km/h is Unit((("length", 1), ("time", -1)), Fraction(5, 18)); apples are
    Unit(words="apple").
    """

    dimensions: Dimensions = ()
    """Base quantities and their powers, sorted; empty for a unit that is known by its words."""

    factor: Fraction = Fraction(1)
    """Size in base units."""

    words: str = ""
    """The name of a unit that is not in the table."""

    @property
    def is_plain(self) -> bool:
        """The bare word "units" in any power, which goes with every other unit."""
        return not self.words and all(name == "unit" for name, _ in self.dimensions)


_SIZES: tuple[tuple[str, int, str, str], ...] = (
    ("length", 1, "1", "m meter metre"),
    ("length", 1, "1/100", "cm centimeter centimetre"),
    ("length", 1, "1/1000", "mm millimeter millimetre"),
    ("length", 1, "1/10", "dm decimeter decimetre"),
    ("length", 1, "1000", "km kilometer kilometre"),
    ("length", 1, "0.0254", "in inch inche"),
    ("length", 1, "0.3048", "ft foot feet"),
    ("length", 1, "0.9144", "yd yard"),
    ("length", 1, "1609.344", "mi mile"),
    ("length", 3, "1/1000", "l L liter litre"),
    ("length", 3, "1/1000000", "ml mL milliliter millilitre cc"),
    ("length", 3, "0.003785411784", "gal gallon"),
    ("length", 2, "10000", "ha hectare"),
    ("mass", 1, "1", "g gram gramme"),
    ("mass", 1, "1000", "kg kilogram"),
    ("mass", 1, "1/1000", "mg milligram"),
    ("mass", 1, "453.59237", "lb pound"),
    ("mass", 1, "28.349523125", "oz ounce"),
    ("mass", 1, "1000000", "tonne"),
    ("time", 1, "1", "s sec second"),
    ("time", 1, "60", "min minute"),
    ("time", 1, "3600", "h hr hour"),
    ("time", 1, "86400", "day"),
    ("time", 1, "604800", "week wk"),
    ("month", 1, "1", "month"),
    ("month", 1, "12", "yr year"),
    ("dollar", 1, "1", "$ dollar USD usd"),
    ("dollar", 1, "1/100", "¢ cent"),
    ("euro", 1, "1", "€ euro EUR"),
    ("pound sterling", 1, "1", "£ GBP"),
    ("yen", 1, "1", "¥ yen JPY"),
    ("rupee", 1, "1", "₹ rupee Rs INR"),
    ("degree", 1, "1", "degree deg °"),
    ("percent", 1, "1", "% percent percentage pct"),
    ("celsius", 1, "1", "°C celsius Celsius"),
    ("fahrenheit", 1, "1", "°F fahrenheit Fahrenheit"),
    ("kelvin", 1, "1", "K kelvin"),
    ("newton", 1, "1", "N newton"),
    ("joule", 1, "1", "J joule"),
    ("joule", 1, "1000", "kJ kilojoule"),
    ("watt", 1, "1", "W watt"),
    ("watt", 1, "1000", "kW kilowatt"),
    ("volt", 1, "1", "V volt"),
    ("ampere", 1, "1", "A ampere amp"),
    ("hertz", 1, "1", "Hz hertz"),
    ("pascal", 1, "1", "Pa pascal"),
    ("mole", 1, "1", "mol mole"),
    ("coulomb", 1, "1", "C coulomb"),
    ("tesla", 1, "1", "T tesla"),
    ("ohm", 1, "1", "ohm"),
    ("unit", 1, "1", "unit"),
)
_UNITS = {
    name: Unit(((dimension, power),), Fraction(size))
    for dimension, power, size, names in _SIZES
    for name in names.split()
}
_COMPOUND = {
    "mph": "mile/h",
    "kph": "km/h",
    "kmph": "km/h",
    "kmh": "km/h",
    "sq": "square",
    "cu": "cubic",
}
_POWERS = {"square": 2, "cubic": 3}
_PIECE = re.compile(
    r"(?P<name>°[CF]|[^\W\d_]+|[$€£¥₹%°¢])(?:\s*\^?\s*\{?\s*(?P<power>-?\d)\s*\}?)?|(?P<over>/)"
)


def is_unit(word: str) -> bool:
    """Is it the name of a unit of the table?"""
    return word in _COMPOUND or _known(word) is not None


def read_unit(text: str) -> Unit:
    """The unit that a text names; a name that is not in the table is a unit known by its words.

    Example: read_unit("km per hour") == read_unit("km/h"); read_unit("square cm").
    """
    spelled = re.sub(r"\bper (?:cent\b|¢)", "percent", text)
    spelled = re.sub(r"\bper\b", "/", spelled.replace("·", " ").replace("*", " "))
    spelled = re.sub(r" squared\b", "^2", re.sub(r" cubed\b", "^3", spelled))
    for name, meaning in _COMPOUND.items():
        spelled = re.sub(rf"\b{name}\b\.?", meaning, spelled)
    powers: dict[str, int] = {}
    factor = Fraction(1)
    sign, prefix = 1, 1
    for piece in _PIECE.finditer(spelled):
        name = piece["name"]
        if piece["over"]:
            sign = -1
        elif name in ("square", "cubic"):
            prefix = _POWERS[name]
        else:
            unit = _known(name)
            if unit is None:
                return Unit(words=_plain_words(text))
            power = sign * prefix * int(piece["power"] or 1)
            factor *= unit.factor**power
            dimension, own = unit.dimensions[0]
            powers[dimension] = powers.get(dimension, 0) + own * power
            prefix = 1
    return Unit(tuple(sorted((name, power) for name, power in powers.items() if power)), factor)


def _known(name: str) -> Unit | None:
    candidates = (name, name.lower() if len(name) > 2 else name)
    for candidate in candidates:
        for spelling in (
            candidate,
            candidate.removesuffix("s") if len(candidate) > 2 else candidate,
        ):
            if spelling in _UNITS:
                return _UNITS[spelling]
    return None


def _plain_words(text: str) -> str:
    words = re.findall(r"[^\W\d_]+", text.lower())
    return " ".join(word.removesuffix("s") if len(word) > 3 else word for word in words)
