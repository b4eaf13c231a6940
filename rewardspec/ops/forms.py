"""Normal forms of real numbers: sums of rational multiples of products of powers of symbols.

`exp(2) * exp(3)` and `exp(5)` have one form; so do `sigmoid(x) + sigmoid(-x)` and 1. A difference whose form has no
terms is 0: that is a proof of equality. Different forms prove nothing, as two forms can be one number. Symbols are in
`symbols.py`.
"""

from __future__ import annotations

from fractions import Fraction

from rewardspec.ops import exact
from rewardspec.ops.effort import spend
from rewardspec.ops.enclosures import Made, parts
from rewardspec.ops.exact import Surd
from rewardspec.ops.operator import ELEMENTWISE
from rewardspec.ops.symbols import Form, Monomial, Symbol, constant, power_of, rational, sign_by_balls, symbol

MOST_TERMS = 200  # of a form; a longer one becomes a symbol
MOST_FACTORS = 40  # exponentials in a product; steps that clear a form of fractions
MOST_POWER = 16  # highest power of a sum that is expanded
MOST_BITS = 4096  # of a coefficient
_TRIAL = 10_000


class TooLong(Exception):
    """A form beyond the limits here."""


# From numbers ------------------------------------------------------------------------------------


def form_of(value: Fraction | Surd | Made | int) -> Form:
    """The normal form of a Fraction, a Surd or a `Real`."""
    if isinstance(value, Surd):
        terms = [times(rational(q), root_of_whole(d)) for d, q in value.terms]
        return plus(*terms)
    if not isinstance(value, Made):
        return rational(value)
    for part in parts(value, lambda r: r.form is not None):
        try:
            part.form = _make(part.op, [form_of(a) for a in part.args])
        except (TooLong, exact.Inexact):
            part.form = power_of(symbol("number", part))
    form: Form = value.form
    return form


def _make(op: str, args: list[Form]) -> Form:
    if op == "pi":
        return power_of(symbol("pi", None))
    rule = ELEMENTWISE[op].normal_form
    if rule is None:
        raise TooLong
    form: Form = rule(*args)
    return form


# Arithmetic --------------------------------------------------------------------------------------


def plus(*forms: Form) -> Form:
    total: Form = {}
    spend(2 * sum(map(len, forms)))
    for form in forms:
        for monomial, q in form.items():
            q += total.get(monomial, 0)
            if q:
                total[monomial] = q
            else:
                del total[monomial]
    return _checked(total)


def times(a: Form, b: Form) -> Form:
    if len(a) * len(b) > MOST_TERMS * MOST_FACTORS:
        raise TooLong
    total: Form = {}
    later: list[Form] = []
    for m, q in a.items():
        for n, r in b.items():
            exponents = dict(m)
            for s, e in n:
                exponents[s] = exponents.get(s, 0) + e
            monomial, factor, sums = _settled(exponents)
            factor *= q * r
            if sums is not None:
                later.append(times({monomial: factor}, sums))
            else:
                total[monomial] = total.get(monomial, Fraction(0)) + factor
    total = {m: q for m, q in total.items() if q}
    return plus(total, *later) if later else _checked(total)


def _settled(exponents: dict[Symbol, Fraction]) -> tuple[Monomial, Fraction, Form | None]:
    """Monomial, rational factor and sum whose product this is: integer powers of primes and sums are expanded."""
    factor, sums = Fraction(1), None
    left = []
    spend(8 + 6 * len(exponents))
    for s, e in exponents.items():
        whole = e.numerator // e.denominator
        if s.kind == "prime" and whole:
            if abs(whole) > MOST_BITS:
                raise TooLong
            factor *= Fraction(s.what) ** whole
            e -= whole
        elif s.kind == "sum" and whole >= 1:
            if whole > MOST_POWER:
                raise TooLong
            for _ in range(whole):
                sums = s.what if sums is None else times(sums, s.what)
            e -= whole
        if e:
            left.append((s, e))
    return tuple(sorted(left)), factor, sums


def _checked(form: Form) -> Form:
    if len(form) > MOST_TERMS:
        raise TooLong
    for q in form.values():
        if q.numerator.bit_length() > MOST_BITS or q.denominator.bit_length() > MOST_BITS:
            raise TooLong
    return form


def power(form: Form, exponent: Fraction) -> Form:
    """`form ** exponent`, which must be real: for a non-integer exponent the base is positive."""
    whole = exponent.denominator == 1
    if not exponent:
        return rational(1)
    if whole and 0 < exponent <= MOST_POWER:
        result = form
        for _ in range(int(exponent) - 1):
            result = times(result, form)
        return result
    if len(form) == 1:
        ((monomial, q),) = form.items()
        raised = _power_of_term(monomial, q, exponent)
        if raised is not None:
            return raised
    if exponent == Fraction(1, 2):
        square = _root_of_square(form)
        if square is not None:
            return square
    scale, s = _normal(form)
    if not whole and (s.sign <= 0 or scale < 0):
        raise TooLong
    return times(_power_of_rational(scale, exponent), _raised(s, exponent))


def _raised(s: Symbol, exponent: Fraction) -> Form:
    monomial, factor, sums = _settled({s: exponent})
    form = {monomial: factor}
    return form if sums is None else times(form, sums)


def _power_of_term(monomial: Monomial, q: Fraction, exponent: Fraction) -> Form | None:
    if exponent.denominator == 1:
        if abs(exponent) > MOST_BITS:
            raise TooLong
        head, raised = rational(q ** int(exponent)), [(s, e * exponent) for s, e in monomial]
    else:
        if q < 0:
            return None
        raised, direction = [], 1
        for s, e in monomial:
            if s.sign <= 0 and (exponent != Fraction(1, 2) or e % 2):
                return None
            if s.sign < 0:  # the root of an even power is a power of the magnitude
                direction *= -1 if e / 2 % 2 else 1
            elif s.sign == 0 and e / 2 % 2:
                return None
            raised.append((s, e * exponent))
        head = times(rational(direction), _power_of_rational(q, exponent))
    settled, factor, sums = _settled(dict(raised))
    form = times(head, {settled: factor})
    return form if sums is None else times(form, sums)


def _power_of_rational(q: Fraction, exponent: Fraction) -> Form:
    if exponent.denominator == 1:
        return rational(q ** int(exponent))
    result = rational(1)
    for number, e in ((q.numerator, exponent), (q.denominator, -exponent)):
        for p, times_in in _primes(number).items():
            result = times(result, _raised(symbol("prime", p), e * times_in))
    return result


def root_of_whole(n: int) -> Form:
    return _power_of_rational(Fraction(n), Fraction(1, 2))


def _primes(n: int) -> dict[int, int]:
    """The prime factors of a positive integer; a rest that trial division cannot factor counts as a prime."""
    found: dict[int, int] = {}
    p = 2
    while p <= _TRIAL and p * p <= n:
        while n % p == 0:
            n //= p
            found[p] = found.get(p, 0) + 1
        p += 1 if p == 2 else 2
    if n > 1:
        found[n] = found.get(n, 0) + 1
    return found


def _normal(form: Form) -> tuple[Fraction, Symbol]:
    """A rational and a symbol whose product is `form`. Rational multiples share the symbol; it is positive if known."""
    scale = abs(_lead(form))
    direction = sign_by_balls(form) or (1 if _lead(form) > 0 else -1)
    return direction * scale, symbol("sum", {m: q / (direction * scale) for m, q in form.items()})


def _lead(form: Form) -> Fraction:
    """The leading coefficient: forms with the same monomials agree on which one."""
    return form[max(form, key=lambda m: [(s.index, e) for s, e in m])]


def _root_of_square(form: Form) -> Form | None:
    """`c * |r|` if the form is its square, with `c` the root of a rational; else None."""
    order = sorted({s for monomial in form for s, _ in monomial})

    def dense(m: Monomial) -> tuple[Fraction, ...]:
        exponents = dict(m)
        return tuple(exponents.get(s, Fraction(0)) for s in order)

    rest = {dense(m): q for m, q in form.items()}
    first = max(rest)
    lead = rest.pop(first)
    if lead <= 0:
        return None
    rest = {v: q / lead for v, q in rest.items()}
    half = tuple(e / 2 for e in first)
    root = {half: Fraction(1)}
    for _ in range(len(form)):
        if not rest:
            break
        top = max(rest)
        term, q = tuple(a - b for a, b in zip(top, half, strict=True)), rest[top] / 2
        if term >= min(root):
            return None
        for v, r in [*root.items(), (term, q / 2)]:  # (root + term)^2 - root^2
            place = tuple(a + b for a, b in zip(v, term, strict=True))
            left = rest.get(place, 0) - 2 * q * r
            if left:
                rest[place] = left
            else:
                rest.pop(place, None)
        root[term] = q
    if rest:
        return None
    found: Form = {}
    for v, q in root.items():
        monomial, factor, sums = _settled({s: e for s, e in zip(order, v, strict=True) if e})
        part = {monomial: q * factor}
        found = plus(found, part if sums is None else times(part, sums))
    direction = sign_of(found)
    if not direction:
        return None
    return times(times(rational(direction), _power_of_rational(lead, Fraction(1, 2))), found)


def minus(a: Form, b: Form) -> Form:
    return plus(a, negative(b))


def negative(form: Form) -> Form:
    return times(rational(-1), form)


def over(a: Form, b: Form) -> Form:
    return times(a, power(b, Fraction(-1)))


def root(form: Form) -> Form:
    return power(form, Fraction(1, 2))


# Functions ---------------------------------------------------------------------------------------


def exponential(form: Form) -> Form:
    """The product of the exponentials of its terms: `exp(q * m)` is a power of `exp(m)`."""
    if len(form) > MOST_FACTORS:
        raise TooLong
    result = rational(1)
    for monomial, q in form.items():
        if len(monomial) == 1 and monomial[0][0].kind == "log" and monomial[0][1] == 1:
            result = times(result, power(monomial[0][0].what, q))
        else:
            result = times(result, power_of(symbol("exp", monomial), q))
    return result


def sigmoid(form: Form) -> Form:
    return power(plus(rational(1), exponential(negative(form))), Fraction(-1))


def tangent(form: Form) -> Form:
    """The hyperbolic tangent, `1 - 2 / (1 + exp(2 x))`."""
    falling = power(plus(rational(1), exponential(times(rational(2), form))), Fraction(-1))
    return plus(rational(1), times(rational(-2), falling))


def any_power(base: Form, exponent: Form) -> Form:
    """`base ** exponent` for any exponent."""
    known = constant(exponent)
    return power(base, known) if known is not None else exponential(times(exponent, logarithm(base)))


def magnitude(form: Form) -> Form:
    found = sign_of(form)
    if found is None:
        raise TooLong
    return form if found >= 0 else negative(form)


def logarithm(form: Form) -> Form:
    if len(form) != 1:
        scale, s = _normal(form)
        if scale < 0:
            raise TooLong
        return plus(_log_of_rational(scale), power_of(symbol("log", s.what)))
    ((monomial, q),) = form.items()
    if q < 0 or any(s.sign <= 0 for s, _ in monomial):
        return power_of(symbol("log", form))
    result = _log_of_rational(q)
    for s, e in monomial:
        if s.kind == "exp":
            inner = {s.what: Fraction(1)}
        elif s.kind == "prime":
            inner = _log_of_rational(Fraction(s.what))
        else:
            inner = power_of(symbol("log", s.what if s.kind == "sum" else power_of(s)))
        result = plus(result, times(rational(e), inner))
    return result


def _log_of_rational(q: Fraction) -> Form:
    found = [(p, e) for p, e in _primes(q.numerator).items()] + [(p, -e) for p, e in _primes(q.denominator).items()]
    return plus(*(times(rational(e), power_of(symbol("log", rational(p)))) for p, e in found))


def cosine(form: Form) -> Form:
    if not form:
        return rational(1)
    pi = ((symbol("pi", None), Fraction(1)),)
    if set(form) == {pi}:
        turn = form[pi] % 2
        turn = 2 - turn if turn > 1 else turn
        direction = 1
        if turn > Fraction(1, 2):
            turn, direction = 1 - turn, -1
        known: dict[Fraction, Form] = {
            Fraction(0): rational(1),
            Fraction(1, 2): {},
            Fraction(1, 3): rational(Fraction(1, 2)),
            Fraction(1, 4): times(rational(Fraction(1, 2)), root_of_whole(2)),
            Fraction(1, 6): times(rational(Fraction(1, 2)), root_of_whole(3)),
        }
        value = known[turn] if turn in known else power_of(symbol("cos", {pi: turn}))
        return times(rational(direction), value)
    return power_of(symbol("cos", form if _lead(form) > 0 else times(rational(-1), form)))


# Signs -------------------------------------------------------------------------------------------


def sign_of(form: Form) -> int | None:
    """-1, 0 or 1; None where it is undecided."""
    found = constant(form)
    if found is not None:
        return (found > 0) - (found < 0)
    try:
        form, direction = _numerator(form)
    except TooLong:
        return sign_by_balls(form)
    found = constant(form)
    if found is not None:
        return direction * ((found > 0) - (found < 0))
    seen = sign_by_balls(form)
    return None if seen is None else direction * seen


def _numerator(form: Form) -> tuple[Form, int]:
    """The form multiplied by its denominators, and the sign of their product."""
    direction = 1
    for _ in range(MOST_FACTORS):
        spend(2 * len(form) * sum(map(len, form)))
        least = {s: min(dict(m).get(s, Fraction(0)) for m in form) for m in form for s, _ in m if s.kind == "sum"}
        below = {s: -(e.numerator // e.denominator) for s, e in least.items() if e < 0}
        if not below:
            break
        s, whole = max(below.items(), key=lambda pair: pair[0].index)  # sums hold earlier symbols only
        if s.sign == 0:
            raise TooLong
        direction *= s.sign**whole
        cleared: list[Form] = []
        for monomial, q in form.items():
            exponents = dict(monomial)
            e = exponents.pop(s, Fraction(0)) + whole
            cleared.append(times({tuple(exponents.items()): q}, _raised(s, e) if e else rational(1)))
        form = plus(*cleared)
    return form, direction
