"""Numbers that know how far floats may be off: a value, exact or of 60 digits, and a bound on the rounding.

What cannot be told from floats (a comparison nearer than their rounding, say) raises TooClose: such a batch is no
test. In `Exact` nothing rounds, and nothing is too close.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath

mpmath.mp.dps = 60
NOTHING = mpmath.mpf(10) ** -48  # relative: what is left of terms that cancel is 0
LARGEST = 10**30


class NoValue(Exception):
    """The expression has no value: division by 0, log of 0, ..."""


class TooClose(Exception):
    """Floats may go either way, or lose what a comparison needs."""


@dataclass(frozen=True)
class Number:
    """value: Fraction, or mpf where irrational. error: how far a float of it can be off. made: equal where the same
    operations on the same numbers made it, so that floats are equal, too.
    """

    value: Fraction | mpmath.mpf
    error: float
    made: int


def digits(value):
    """As an mpf of 60 digits."""
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def key(value):
    """Equal for values that are equal to 45 digits."""
    return value if value == 0 else mpmath.nstr(digits(value), 45)


class Arithmetic:
    """unit: the relative rounding of an operation, 2**-24 in float32; 0 for none. coarsest: that of any column read."""

    def __init__(self, unit=0.0, coarsest=0.0):
        self.unit, self.coarsest, self.ids = unit, max(unit, coarsest), {}

    def id(self, *made):
        """One for each way of making a number (no hash: those of -1 and -2 are one). Of no use where nothing rounds."""
        return self.unit and self.ids.setdefault(made, len(self.ids))

    def number(self, value, error=None, made=None):
        """A result. error: what its operands bring; None if there are none that round."""
        if isinstance(value, mpmath.mpf) and not mpmath.isfinite(value):
            raise TooClose
        if self.unit == 0:
            return Number(value, 0.0, 0)
        if abs(value) > LARGEST:
            raise TooClose
        error = error or 0.0
        if error or not self.holds(value):
            error += float(abs(value)) * self.unit
        return Number(value, error, self.id(*made) if made else self.leaf(value).made)

    def leaf(self, value):
        """A literal or the value of a column: exact until something is done with it."""
        number = (value.numerator, value.denominator) if isinstance(value, Fraction) else value
        return Number(value, 0.0, self.id("leaf", number))

    def holds(self, value):
        """Whether the float type has this very number."""
        if not isinstance(value, Fraction):
            return False
        if value == 0:
            return True
        most = 24 if self.unit >= 2.0**-24 else 53
        odd = value.numerator // (value.numerator & -value.numerator)
        return value.denominator & (value.denominator - 1) == 0 and abs(odd).bit_length() <= most

    def off(self, x):
        """How far the float of an operand can be off."""
        return x.error or (0.0 if self.unit == 0 or self.holds(x.value) else float(abs(x.value)) * self.unit)

    # One result of operands -----------------------------------------------------------------------

    def sum(self, terms, made="sum"):
        terms = list(terms)
        value = sum((t.value for t in terms if isinstance(t.value, Fraction)), Fraction(0))
        rest = [t.value for t in terms if not isinstance(t.value, Fraction)]
        if rest:
            value = digits(value) + mpmath.fsum(rest)
            if abs(value) <= NOTHING * max(abs(digits(t.value)) for t in terms):
                value = Fraction(0)
        error = sum(self.off(t) for t in terms)
        if error and len(terms) > 2:
            error += self.unit * max(float(abs(t.value)) for t in terms) * len(terms)
        return self.number(value, error, (made, *(t.made for t in terms)))

    def add(self, a, b):
        return self.sum([a, b], "+")

    def sub(self, a, b):
        return self.sum([a, Number(-b.value, b.error, self.id("neg", b.made))], "-")

    def neg(self, a):
        return Number(-a.value, a.error, self.id("neg", a.made))

    def mul(self, a, b):
        ea, eb = self.off(a), self.off(b)
        value = a.value * b.value if type(a.value) is type(b.value) else digits(a.value) * digits(b.value)
        value = Fraction(0) if value == 0 else value
        return self.number(value, float(abs(a.value)) * eb + float(abs(b.value)) * ea + ea * eb, ("*", a.made, b.made))

    def div(self, a, b):
        ea, eb = self.off(a), self.off(b)
        if b.value == 0 and eb == 0:
            raise NoValue("division by 0")
        if float(abs(b.value)) <= eb:
            raise TooClose
        value = a.value / b.value if type(a.value) is type(b.value) else digits(a.value) / digits(b.value)
        value = Fraction(0) if value == 0 else value
        error = (ea + float(abs(value)) * eb) / (float(abs(b.value)) - eb)
        return self.number(value, error, ("/", a.made, b.made))

    def power(self, a, b):
        if b.value == 0 and self.off(b) == 0:
            return self.leaf(Fraction(1))
        ea, eb = self.off(a), self.off(b)
        whole = isinstance(b.value, Fraction) and b.value.denominator == 1 and eb == 0
        if a.value == 0 and ea == 0:
            if b.value < 0:
                raise NoValue("0 to a negative power")
            return self.number(Fraction(0), 0.0, ("**", a.made, b.made))
        if whole and abs(b.value) <= 64 and isinstance(a.value, Fraction):
            if ea >= abs(a.value):
                raise TooClose
            value = a.value ** int(b.value)
        else:
            if a.value < 0 and not whole:
                raise NoValue("negative number to a non-integer power") if ea < abs(a.value) else TooClose
            if ea >= abs(a.value):
                raise TooClose
            value = mpmath.power(digits(a.value), int(b.value) if whole else digits(b.value))
        relative = ea / (float(abs(a.value)) - ea) * float(abs(b.value)) + eb * abs(math.log(abs(float(a.value))))
        error = float(abs(value)) * (
            math.expm1(min(relative, 50)) + (0 if whole and self.holds(value) else 4 * self.unit)
        )
        return self.number(value, error, ("**", a.made, b.made))

    def comb(self, n, k):
        """How many sets of `k` there are in `n`."""
        for x in (n, k):
            if x.error:  # whole or not is more than a float can tell
                raise TooClose
            if x.value < 0 or x.value != int(x.value):
                raise NoValue("other than whole numbers from 0")
        made, (size, taken) = ("comb", n.made, k.made), (int(n.value), int(k.value))
        least = min(taken, size - taken)
        if least < 0:
            return self.leaf(Fraction(0))
        if least * size.bit_length() > 4000:
            if self.unit:
                raise TooClose
            value = mpmath.binomial(size, taken)
        else:
            value = Fraction(math.comb(size, taken))
        sure = least <= 32 and value < 2**40
        return self.number(value, 0.0 if sure or value > LARGEST else float(value) * 1e-11, made)

    def call(self, name, x):
        """A function of one number."""
        made, e = (name, x.made), self.off(x)
        v = x.value
        if name == "abs":
            return Number(abs(v), x.error, self.id(*made))
        if name in ("sign", "floor", "round"):
            return self.leaf(Fraction(self.step(name, v, e)))
        if name == "sqrt":
            if v < 0:
                raise NoValue("square root of a negative number") if -float(v) > e else TooClose
            if v == 0 and e > 0:
                raise TooClose
            root = self.root(v)
            return self.number(root, float(root) - math.sqrt(max(float(v) - e, 0)) if e else 0.0, made)
        if name == "log":
            if v <= 0 and float(-v) >= e:
                raise NoValue("log of 0 or a negative number")
            if float(v) <= e:
                raise TooClose
            value = Fraction(0) if v == 1 else mpmath.log(digits(v))
            return self.number(
                value, (e / (float(v) - e) + 4 * self.unit * float(abs(value))) if v != 1 or e else 0.0, made
            )
        if name == "exp":
            if v > 80 and self.unit:
                raise TooClose
            value = Fraction(1) if v == 0 else mpmath.exp(digits(v))
            return self.number(value, float(value) * (math.expm1(e) + (4 * self.unit if v != 0 else 0)), made)
        if v == 0 and name in ("sigmoid", "tanh", "cos"):
            value = {"sigmoid": Fraction(1, 2), "tanh": Fraction(0), "cos": Fraction(1)}[name]
            return self.number(value, e, made)
        value = {"sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)), "tanh": mpmath.tanh, "cos": mpmath.cos}[name](digits(v))
        return self.number(value, e + 4 * self.unit, made)

    def root(self, v):
        """Exact where it is rational."""
        if isinstance(v, Fraction):
            p, q = math.isqrt(v.numerator), math.isqrt(v.denominator)
            if p * p == v.numerator and q * q == v.denominator:
                return Fraction(p, q)
        return mpmath.sqrt(digits(v))

    def step(self, name, v, e):
        """A function that jumps."""
        if name == "sign":
            if e and float(abs(v)) <= e:
                raise TooClose
            return (v > 0) - (v < 0)
        at = v if name == "floor" else v + Fraction(1, 2) if isinstance(v, Fraction) else v + mpmath.mpf("0.5")
        nearest = abs(at - round_half_even(at))
        if e and float(nearest) <= e:
            raise TooClose
        if not isinstance(at, Fraction) and nearest < NOTHING * max(1, abs(at)):
            at = Fraction(int(mpmath.nint(at)))
        return (
            int(mpmath.floor(digits(v)))
            if name == "floor" and not isinstance(v, Fraction)
            else (math.floor(at) if name == "floor" else round_half_even(v))
        )

    def compare(self, operator, a, b):
        """Whether the comparison holds."""
        return compares(operator, self.order(a, b))

    def order(self, a, b):
        """-1, 0 or 1: whether `a` is less than, equal to or greater than `b`."""
        if self.unit and a.made == b.made:
            return 0
        if isinstance(a.value, Fraction) and isinstance(b.value, Fraction):
            apart = a.value - b.value
        else:
            apart = digits(a.value) - digits(b.value)
            if abs(apart) <= NOTHING * max(abs(digits(a.value)), abs(digits(b.value))):
                apart = 0
        # two that are exact as they stand are compared as they are declared
        error = a.error + b.error
        if error:
            error = 2 * (self.off(a) + self.off(b))
            if float(abs(apart)) <= error:
                raise TooClose
        return (apart > 0) - (apart < 0)

    def least(self, values):
        return self.extreme(values, -1)

    def greatest(self, values):
        return self.extreme(values, 1)

    def extreme(self, values, sign):
        """The least or the greatest. Which of two that are close does not matter to its value."""
        if all(isinstance(n.value, Fraction) for n in values) and self.unit == 0:
            return max(values, key=lambda n: sign * n.value)
        best = max(values, key=lambda n: sign * digits(n.value))
        near = [n for n in values if float(abs(digits(n.value) - digits(best.value))) <= self.off(n) + self.off(best)]
        if len({n.made for n in near}) == 1 or self.unit == 0:
            return best
        return Number(
            best.value, max(self.off(n) for n in near), self.id("extreme", sign, *sorted(n.made for n in near))
        )


def compares(operator, order):
    """What an order of two things says of a comparison of them."""
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0, "==": order == 0, "!=": order != 0}[
        operator
    ]


def round_half_even(v):
    return round(v) if isinstance(v, Fraction) else int(mpmath.nint(v))
