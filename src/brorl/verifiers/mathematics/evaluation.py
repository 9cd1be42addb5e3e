"""Values of expressions: exact rationals where possible, else complex numbers to a stated precision, within limits."""

import hashlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb, factorial, floor, isqrt, prod
from threading import get_ident
from typing import Any

import mpmath

from brorl.verifiers.mathematics.syntax import Node, Number, ordered
from brorl.verifiers.mathematics.vocabulary import words

MAX_BITS = 60_000
"""of an exact numerator or denominator (18,000 digits)"""
MAX_FACTORIAL = 5_000
MAX_MAGNITUDE = 1_000_000
"""binary orders of magnitude of an approximate value"""


class OutOfReach(ArithmeticError):
    """The value is undefined, or beyond the limits."""


# -- exact


def exact(node: Node) -> Fraction | None:
    """The rational value of a closed expression; None if it is not (visibly) rational, undefined, or over a limit."""
    try:
        return _exact(node)
    except (OutOfReach, ZeroDivisionError):
        return None


def _exact(node: Node) -> Fraction | None:
    data: Any = node.data
    if node.kind == "number":
        return data.value
    rule = _EXACT.get(node.kind)
    if rule is None:
        return None
    values = list[Fraction]()
    for argument in node.args:
        value = _exact(argument)
        if value is None:
            return None
        values.append(value)
    return _bounded(rule(*values))


def _bounded(value: Fraction | None) -> Fraction | None:
    if value is not None and max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise OutOfReach("too many digits")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        root = _root(base, Fraction(exponent.denominator))
        return None if root is None else _power(root, Fraction(exponent.numerator))
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) > MAX_BITS or size * abs(exponent) > MAX_BITS + 64:
        if abs(base) == 1 or base == 0:
            return base ** (int(exponent) % 2) if base else Fraction(0)
        raise OutOfReach("power too large")
    return base ** int(exponent)


def _root(value: Fraction, degree: Fraction) -> Fraction | None:
    if degree.denominator != 1 or not 1 <= degree <= 64 or value < 0:
        return None
    top, bottom = _integer_root(value.numerator, int(degree)), _integer_root(value.denominator, int(degree))
    return None if top is None or bottom is None else Fraction(top, bottom)


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = isqrt(value)
    else:
        root = 0
        for bit in range(value.bit_length() // degree, -1, -1):
            root = root | 1 << bit if (root | 1 << bit) ** degree <= value else root
    return root if root**degree == value else None


def _factorial(value: Fraction) -> Fraction | None:
    if value.denominator != 1 or value < 0:
        return None
    if value > MAX_FACTORIAL:
        raise OutOfReach("factorial too large")
    return Fraction(factorial(int(value)))


def _binomial(n: Fraction, k: Fraction) -> Fraction | None:
    if n.denominator != 1 or k.denominator != 1 or min(n, k) < 0:
        return None
    if n > MAX_FACTORIAL:
        raise OutOfReach("binomial too large")
    return Fraction(comb(int(n), int(k)))


_EXACT: Mapping[str, Callable[..., Fraction | None]] = {
    "add": lambda *v: sum(v, Fraction(0)),
    "multiply": lambda *v: prod(v, start=Fraction(1)),
    "divide": lambda a, b: a / b,
    "power": _power,
    "negate": lambda a: -a,
    "factorial": _factorial,
    "binomial": _binomial,
    "root": _root,
    "absolute": lambda a: abs(a),
    "floor": lambda a: Fraction(floor(a)),
    "ceiling": lambda a: Fraction(ceil(a)),
    "percent": lambda a: a / 100,
}


# -- approximate


class Point:
    """A place to evaluate at: every variable has a value there, derived from its name and the point's number.

    Points 0, 1 and 2 are positive; later ones have variables of both signs. `integers` restricts to whole numbers.
    """

    def __init__(self, index: int, *, integers: bool = False, digits: int = 50) -> None:
        self.context = _context(digits, get_ident())
        self.digits = digits
        self.index = index
        self.integers = integers

    def variable(self, name: str) -> Any:
        if self.integers:  # steps of one, so that a floor that jumps a step later is noticed
            return self.context.mpf(2 + self.index + _hash(name) % 7)
        seed = _hash(f"{self.index}/{name}")
        value = self.context.mpf(3 + seed % 9973) / 4001
        return -value if self.index > 2 and seed >> 20 & 1 else value

    def value(self, node: Node) -> Any:
        """The value of `node` here, an mpmath number.

        Raises:
            OutOfReach: undefined here, over a limit, or not a value.
        """
        try:
            value = self._value(node)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError, self.context.NoConvergence) as problem:
            raise OutOfReach(str(problem)) from None
        if not self.context.isfinite(value):
            raise OutOfReach("not finite")
        return value

    def _value(self, node: Node) -> Any:
        ctx, data = self.context, node.data
        if node.kind == "number" and isinstance(data, Number):
            return ctx.mpf(data.value.numerator) / data.value.denominator
        if node.kind == "symbol":
            return self.variable(str(data))
        if node.kind == "constant":
            return _constant(ctx, str(data))
        if node.kind == "opaque":
            return self.variable(repr(ordered(node)))
        values = [self._value(argument) for argument in node.args]
        if node.kind == "apply":
            return self.variable(f"{data}({', '.join(ctx.nstr(v, 20) for v in values)})")
        rule = _call(str(data)) if node.kind == "call" else _APPROXIMATE.get(node.kind)
        if rule is None:
            raise OutOfReach(f"{node.kind} has no value")
        value = rule(ctx, *values)
        if ctx.isfinite(value) and value and abs(ctx.mag(value)) > MAX_MAGNITUDE:
            raise OutOfReach("too large")
        return value


@lru_cache(maxsize=64)
def _context(digits: int, thread: int) -> Any:
    """A context for one thread: some functions change its precision while they run."""
    del thread
    context = mpmath.MPContext()
    context.dps = digits
    return context


@lru_cache(maxsize=4096)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _constant(ctx: Any, name: str) -> Any:
    if name == "infinity":
        raise OutOfReach("infinite")
    return {"pi": ctx.pi, "e": ctx.e, "i": ctx.mpc(0, 1)}[name] * 1


def _raise(ctx: Any, base: Any, exponent: Any) -> Any:
    if ctx.mag(exponent) > 64 or (base and abs(ctx.mag(base)) * abs(exponent) > MAX_MAGNITUDE):
        raise OutOfReach("power too large")
    return ctx.power(base, exponent)


def _gamma(ctx: Any, value: Any) -> Any:
    if abs(value) > 50_000:
        raise OutOfReach("factorial too large")
    return ctx.factorial(value)


def _choose(ctx: Any, n: Any, k: Any) -> Any:
    if max(abs(n), abs(k)) > 50_000:
        raise OutOfReach("binomial too large")
    return ctx.binomial(n, k)


def _nth_root(ctx: Any, value: Any, degree: Any) -> Any:
    if ctx.im(value) == 0 and ctx.re(value) < 0 and degree % 2 == 1:
        return -_raise(ctx, -value, 1 / degree)  # the cube root of -8 is -2
    return ctx.sqrt(value) if degree == 2 else _raise(ctx, value, 1 / degree)


def _total(ctx: Any, *values: Any) -> Any:
    """A sum; what cancels below the precision is zero, so that sqrt 2 + sqrt 3 - sqrt(5 + 2 sqrt 6) is 0."""
    value = ctx.fsum(values)
    size = max(abs(v) for v in values)
    return ctx.mpf(0) if abs(value) < size * ctx.mpf(10) ** (8 - ctx.dps) else value


_APPROXIMATE: Mapping[str, Callable[..., Any]] = {
    "add": _total,
    "multiply": lambda ctx, *v: ctx.fprod(v),
    "divide": lambda ctx, a, b: a / b,
    "power": _raise,
    "negate": lambda ctx, a: -a,
    "factorial": _gamma,
    "binomial": _choose,
    "root": _nth_root,
    "absolute": lambda ctx, a: abs(a),
    "floor": lambda ctx, a: ctx.floor(ctx.re(a) + ctx.mpf(10) ** (10 - ctx.dps)),
    "ceiling": lambda ctx, a: ctx.ceil(ctx.re(a) - ctx.mpf(10) ** (10 - ctx.dps)),
    "percent": lambda ctx, a: a / 100,
    "degree": lambda ctx, a: a * ctx.pi / 180,
}
_FUNCTIONS: Mapping[str, str] = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "ln", "Re": "re", "Im": "im", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "arccot": "acot", "arcsec": "asec", "arccsc": "acsc",
} | {name: name for name in words("sin cos tan cot sec csc sinh cosh tanh arg")}  # fmt: skip


def _call(name: str) -> Callable[..., Any] | None:
    if name == "exp":
        return lambda ctx, a: _raise(ctx, ctx.e * 1, a)
    if name in ("log", "lg"):
        return lambda ctx, a, base=10: ctx.log(a) / ctx.log(base)
    if name in ("max", "min"):
        pick = max if name == "max" else min
        return lambda ctx, *v: pick(*(ctx.re(a) for a in v))
    if name in _FUNCTIONS:
        return lambda ctx, a: _small(ctx, getattr(ctx, _FUNCTIONS[name]), a)
    return None


def _small(ctx: Any, function: Callable[[Any], Any], value: Any) -> Any:
    if ctx.isfinite(value) and value and ctx.mag(value) > 10_000:
        raise OutOfReach("argument too large")
    result = function(value)
    return ctx.mpf(0) if abs(result) < abs(value) * ctx.mpf(10) ** (8 - ctx.dps) else result  # sin(pi) is 0


def only_integers(node: Node) -> bool:
    """True if the expression is meant for whole numbers only: it holds a floor or ceiling of a variable."""
    if node.kind in ("floor", "ceiling"):
        return bool(variables(node))
    return any(map(only_integers, node.args))


def variables(node: Node) -> frozenset[str]:
    """The names of variables and unknown functions in it; a form compared by structure counts as one variable."""
    if node.kind == "symbol":
        return frozenset([str(node.data)])
    if node.kind == "opaque":
        return frozenset([repr(ordered(node))])
    names = frozenset[str]().union(*map(variables, node.args))
    return names | {f"{node.data}()"} if node.kind == "apply" else names
