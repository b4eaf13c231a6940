"""Values as JSON, for processes that do not trust each other.

Decoding creates only the types named here, so that no value carries code of the program: an object of the program's
own classes is sent as a reference, which is valid only in the program's process.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
from collections.abc import Callable, Iterable

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than running a program
if TYPE_CHECKING:
    from typing import Any

_SERIES: dict[str, Callable[[Iterable[Any]], object]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
_TABLES: dict[str, Callable[[Any], object]] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter,
}
_TEXTUAL: dict[str, tuple[type, Callable[[Any], str], Callable[[str], object]]] = {  # type, to text, from text
    "int": (
        int,
        lambda x: format(x, "x"),
        lambda text: int(text, 16),
    ),  # hexadecimal: decimal digits of a huge integer take too long
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "complex": (complex, repr, complex),
    "Fraction": (fractions.Fraction, str, fractions.Fraction),
    "Decimal": (decimal.Decimal, str, decimal.Decimal),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
}
_NAMES = {kind: name for name, kind in (_SERIES | _TABLES).items()} | {k: name for name, (k, *_) in _TEXTUAL.items()}
_BASES = (int, float, str, bytes, list, tuple, set, frozenset, dict)
_EXACT = 1 << 53


def encode(value: Any, refer: Callable[[object], object]) -> object:
    """The value in a form for `json.dumps`. refer: returns the id of an object that is not plain data.

    An object of a subclass is sent as its base class: a named tuple as a tuple. Raises RecursionError.
    """
    kind = type(value)
    if value is None or kind in (bool, float, str) or (kind is int and -_EXACT < value < _EXACT):
        return value
    name = _NAMES.get(kind)
    if name in _SERIES:
        return [name, [encode(item, refer) for item in value]]
    if name in _TABLES:
        return [name, [[encode(key, refer), encode(item, refer)] for key, item in value.items()]]
    if name is not None:
        return [name, _TEXTUAL[name][1](value)]
    if kind is range:
        return ["range", [format(part, "x") for part in (value.start, value.stop, value.step)]]
    base = next((base for base in _BASES if isinstance(value, base)), None)
    if base is None:
        return ["reference", refer(value)]
    if base in (int, float, str):
        return encode({int: int.__index__, float: float.__float__, str: str.__str__}[base](value), refer)
    return encode(base(value), refer)


def decode(data: object, referred: Callable[[object], object]) -> Any:
    """The value that `encode` received. Raises ValueError, TypeError or RecursionError for malformed data."""
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise ValueError("not an encoded value")
        return data
    name, content = data
    if name in _SERIES:
        return _SERIES[name](decode(item, referred) for item in content)
    if name in _TABLES:
        return _TABLES[name]({decode(key, referred): decode(item, referred) for key, item in content})
    if name == "range":
        return range(*(int(part, 16) for part in content))
    if name == "reference":
        return referred(content)
    if name not in _TEXTUAL:
        raise ValueError("not an encoded value")
    return _TEXTUAL[name][2](content)
