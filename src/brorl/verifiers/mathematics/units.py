"""Units of answers: what a unit phrase means, so that 12 m is not 12 cm, and 80 cents is 0.80 dollars."""

import re
from fractions import Fraction
from typing import NamedTuple

from brorl.verifiers.mathematics.vocabulary import words


class Unit(NamedTuple):
    """`factor` times the base units of `dimensions` (sorted pairs of name and exponent), or a counted noun."""

    factor: Fraction
    dimensions: tuple[tuple[str, int], ...]
    noun: str = ""
    """singular words, for things that are counted: apple, ordered pair"""


def _table(*rows: str) -> dict[str, tuple[Fraction, str]]:
    """Rows ``base: factor name name, factor name ...``; every name may also have its plural."""
    table: dict[str, tuple[Fraction, str]] = {}
    for row in rows:
        base, _, entries = row.partition(": ")
        for entry in entries.split(", "):
            factor, *names = entry.split()
            table |= {name: (Fraction(factor), base) for name in names}
    return table


_UNITS = _table(
    "metre: 1 m meter metre, 1/100 cm centimeter centimetre, 1/1000 mm millimeter millimetre, 1000 km kilometer "
    "kilometre, 1/10 dm decimeter decimetre, 254/10000 inch inches in, 3048/10000 ft foot feet, 9144/10000 yd yard, "
    "1609344/1000 mi mile, 1/1000000 micrometer micron μm \\mum, 1/1000000000 nm nanometer, 1/10000000000 angstrom Å",
    "second: 1 s sec second, 60 min minute, 3600 h hr hour, 86400 day, 604800 week, 1/1000 ms millisecond, "
    "1/1000000000 ns nanosecond",
    "unit: 1 unit",
    "month: 1 month, 12 year yr",
    "gram: 1 g gram gramme, 1000 kg kilogram, 1/1000 mg milligram, 1000000 tonne, 45359237/100000 lb lbs pound, "
    "45359237/1600000 oz ounce",
    "litre: 1 L l liter litre, 1/1000 mL ml milliliter millilitre, 3785411784/1000000000 gal gallon",
    "dollar: 1 dollar $ USD, 1/100 cent ¢",
    "euro: 1 euro",
    "sterling: 1 sterling",
    "yuan: 1 yuan RMB",
    "celsius: 1 celsius centigrade",
    "fahrenheit: 1 fahrenheit",
    "degree: 1 degree deg, 1/60 arcminute",
    "radian: 1 radian rad",
    "newton: 1 N newton",
    "joule: 1 J joule, 1000 kJ kilojoule",
    "watt: 1 W watt, 1000 kW kilowatt",
    "volt: 1 V volt",
    "ampere: 1 A amp ampere",
    "kelvin: 1 K kelvin",
    "mole: 1 mol mole",
    "hertz: 1 Hz hertz, 1000 kHz, 1000000 MHz",
    "electronvolt: 1 eV",
    "pascal: 1 Pa pascal, 1000 kPa, 1000000 MPa",
    "solarmass: 1 M_\\odot",
)
_COMPOUND = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "kmph": "km/h", "sq": "square", "cu": "cubic", "cc": "cm^3"}
_IGNORED = words("of the a an")
_WORD = re.compile(r"\\?[A-Za-zμÅ$¢]+(?:_\\odot)?")
_PART = re.compile(rf"({_WORD.pattern})\s*(?:(?:\^\s*\{{?|(?<=[a-z]))\s*(-?\d)\s*\}}?)?|[/*·.,-]|\s+")
# Words that make a phrase a remark about the number, not a unit.
_REMARK = words(
    "is are was were not no isn't wrong correct incorrect maybe perhaps probably about or and but then so since "
    "because if when where which that this i we you it he she they my be to for from by at with as than"
)


MAGNITUDES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
TEMPERATURES = {"C": "celsius", "F": "fahrenheit"}
"""what letters after a degree sign mean"""


def read_unit(phrase: str, *, nouns: bool) -> Unit | None:
    """The unit a phrase names; None if it is none. An empty `dimensions` and `noun` means "no unit".

    Args:
        phrase: such as ``cm``, ``km/h``, ``square feet``, ``m^2``, ``dollars per hour``.
        nouns: whether unknown words may count as a counted noun (``apples``).
    """
    phrase = re.sub(r"\bper\b", "/", phrase.strip(" .,\n"))
    known = _known(phrase)
    if known is not None or not nouns:
        return known
    plain = [word.lower() for word in re.findall(r"[A-Za-z']+", phrase)]
    if not plain or len(plain) > 5 or _REMARK & set(plain) or re.search(r"[^A-Za-z'\s/.,-]", phrase):
        return None
    return Unit(Fraction(1), (), " ".join(_singular(w) for w in plain if w not in _IGNORED))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _known(phrase: str) -> Unit | None:
    factor, dimensions = Fraction(1), dict[str, int]()
    sign, raised, at = 1, 1, 0
    while at < len(phrase):
        match = _PART.match(phrase, at)
        if match is None:
            return None
        at = match.end()
        name = match.group(1)
        if name is None:
            sign = -1 if "/" in match.group() else sign
            continue
        name = _COMPOUND.get(name, name)
        if name in ("square", "cubic"):
            raised = 2 if name == "square" else 3
            continue
        if name in _IGNORED:
            raised = 1
            continue
        compound = _known(name) if "/" in name or "^" in name else None
        entry = _UNITS.get(name)
        if entry is None and len(name) > 2:
            entry = _UNITS.get(name.lower()) or _UNITS.get(_singular(name.lower()))
        if compound is not None:
            factor *= compound.factor
            for base, exponent in compound.dimensions:
                dimensions[base] = dimensions.get(base, 0) + exponent
            continue
        if entry is None:
            return None
        exponent = sign * int(match.group(2) or raised)
        raised = 1
        factor *= entry[0] ** exponent
        dimensions[entry[1]] = dimensions.get(entry[1], 0) + exponent
    if "celsius" in dimensions or "fahrenheit" in dimensions:
        dimensions.pop("degree", None)
    return Unit(factor, tuple(sorted((base, e) for base, e in dimensions.items() if e)))


def conversion(first: Unit, second: Unit) -> Fraction | None:
    """What a value in `first` is multiplied by to be in `second`; None if they are different units.

    "No unit" converts to anything; of two nouns, the words of one must be among the words of the other.
    """
    if not (first.dimensions or first.noun) or not (second.dimensions or second.noun):
        return Fraction(1)
    if first.noun or second.noun:
        one, other = set(first.noun.split()), set(second.noun.split())
        return Fraction(1) if one and other and (one <= other or other <= one) else None
    return first.factor / second.factor if first.dimensions == second.dimensions else None
