"""From the caller's columns and group ids to tensors that fit their declarations."""

import math

import torch


class RolloutError(ValueError):
    """Rollouts for which the spec is undefined. The message names column, rollout and group."""


def _as_tensor(x, name, place="rollout {}".format, of="rollout"):
    """A column as a 1-D tensor, float64 if it was Python numbers; a list of names as it is.

    place: the words for a row of it. of: what has one value.
    """
    if isinstance(x, torch.Tensor):
        if x.is_complex():
            raise RolloutError(f"column `{name}` holds complex numbers: it should hold one number for each {of}")
        if not _plain(x):
            kind = "meta" if x.is_meta else "nested" if x.is_nested else "quantized or sparse"
            raise RolloutError(f"column `{name}` is a {kind} tensor: it should be dense, with values")
        return x.detach() if x.requires_grad else x
    if hasattr(x, "dtype") and hasattr(x, "tolist"):  # NumPy, without importing it
        if _is_numbers(x):
            return _of_array(x)
        x = x.tolist()
    if isinstance(x, (bool, int, float)):
        return _as_tensor([x], name)[0]
    try:
        x = list(x) if not isinstance(x, (str, bytes)) else [x]
    except TypeError:
        raise RolloutError(f"column `{name}` is {x!r:.80}: it should hold one value for each {of}") from None
    if any(isinstance(v, (str, bytes)) for v in x):
        return x
    try:
        numbers = [float("nan") if v is None else float(v) for v in x]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        numbers = _one_by_one(x, name, place, of)
    if any(abs(v) >= 2**53 for v in numbers):
        for row, (given, held) in enumerate(zip(x, numbers, strict=True)):
            if isinstance(given, int) and given != held:
                raise RolloutError(
                    f"column `{name}` is {_shown(given)} at {place(row)}: no float holds this whole number, "
                    "use smaller numbers, or declare an id with `id: true`"
                )
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")


def _one_by_one(x, name, place, of):
    """The values of a column as floats. Raises RolloutError for the first that is none; pandas' NA is missing."""
    numbers = []
    for row, value in enumerate(x):
        try:
            numbers.append(float("nan") if value is None or _is_na(value) else float(value))
        except (TypeError, ValueError, OverflowError, RuntimeError):
            what = f"column `{name}` is {_shown(value)} at {place(row)}"
            large = isinstance(value, int)
            raise RolloutError(
                f"{what}: no float is as large" if large else f"{what}: it should hold one number for each {of}"
            ) from None
    return numbers


def _is_na(value):
    """Whether a value is pandas' NA, without importing it."""
    return type(value).__name__ == "NAType"


def _shown(value):
    """A value in words; Python writes no whole number of more than 4,300 digits."""
    return f"{value!r:.80}" if not isinstance(value, int) or abs(value) < 10**80 else "a number of over 80 digits"


def _not_held(x, dtype, unread=None):
    """Where `x` is a whole number that the float type cannot hold, as 2 ** 24 + 1 in float32; None if nowhere.

    unread: a list to which a number and its condition are added; None may come back if that holds.
    """
    most = int(2 / torch.finfo(dtype).eps)  # the float type holds every whole number up to here
    if not x.numel() or x.element_size() <= 2:
        return None
    if not x.is_floating_point() and x.dtype not in (torch.int32, torch.int64):
        x = x.double()  # torch has no arithmetic on unsigned integers
    over = (x.abs() > most).any()
    if unread is not None:
        unread.append((over, lambda found: found == 0))
        return None
    if not bool(over):
        return None
    held = x.to(dtype)
    if not x.is_floating_point():
        return held.to(x.dtype) != x
    return (held.double() != x) & (x == x.floor()) & (x.abs() <= 2**53)  # larger floats are not exact anyway


def _plain(x):
    """Whether a tensor is dense and has values."""
    return not (x.is_meta or x.is_nested or x.is_quantized) and x.layout is torch.strided


def _is_numbers(x):
    """Whether an array holds numbers, and none that is missing in a type of pandas that can have that."""
    return getattr(getattr(x, "dtype", None), "kind", "O") in "biuf" and not hasattr(x.dtype, "na_value")


def _of_array(x):
    """A NumPy array of numbers as a tensor, for any byte order, stride and width."""
    try:
        flags = getattr(x, "flags", None)
        return torch.as_tensor(x if getattr(flags, "writeable", True) else x.copy(), device="cpu")
    except (TypeError, ValueError):
        plain = "int64" if x.dtype.kind != "f" else "float64" if x.dtype.itemsize > 4 else "float32"
        return torch.as_tensor(x.astype(plain, order="C"), device="cpu")


def _too_large(value):
    """Whether a finite number is beyond the range of float32."""
    return math.isfinite(value) and abs(value) > torch.finfo(torch.float32).max


def _group_ids(groups):
    """Integer ids [N], a function from a rollout to the caller's id of its group, and the size of dense groups or 0."""
    if hasattr(groups, "dtype") and not isinstance(groups, torch.Tensor):
        groups = _of_array(groups) if _is_numbers(groups) and groups.dtype.kind != "f" else groups.tolist()
    if isinstance(groups, torch.Tensor):
        if groups.dim() != 1 or groups.is_floating_point() or groups.is_complex() or not _plain(groups):
            raise RolloutError("group ids are N whole numbers, or any N hashable values in a list")
        ids = groups.long()
        return ids, lambda i: groups[i].item(), _dense_size(ids)
    try:
        groups = list(groups)
        known = {}
        codes = [known.setdefault(g, len(known)) for g in groups]
    except TypeError:
        raise RolloutError("groups are one group size, or N hashable ids") from None
    size = len(codes) // max(len(known), 1)
    dense = size * len(known) == len(codes) and codes == [code for code in range(len(known)) for _ in range(size)]
    ids = torch.tensor(codes, dtype=torch.long, device="cpu")
    return ids, lambda i: groups[i], max(size, 1) if dense else 0


def _dense_size(ids):
    """The group size if all groups have the same and their rows are adjacent; else 0."""
    n = len(ids)
    if n == 0:
        return 1
    heads, counts = torch.unique_consecutive(ids, return_counts=True)
    size = n // len(heads)
    if size * len(heads) != n or {*counts.tolist()} != {size}:
        return 0
    return size if len({*heads.tolist()}) == len(heads) else 0


def _expected(values, low, high, symbols=None):
    if symbols is not None:
        return "one of " + ", ".join(symbols)
    if values is not None:
        return "one of " + ", ".join(f"{v:g}" for v in values)
    if low is None and high is None:
        return "a finite number"
    return f"from {'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"


def _holds_zero(values=None, low=None, high=None, **_):
    """Whether 0 is in the declared domain."""
    if values is not None:
        return 0.0 in values
    return (low is None or low <= 0) and (high is None or high >= 0)


def _probe(x, values=None, low=None, high=None, **_):
    """Numbers, and the two limits that they lie within if a column fits its declaration.

    For a range: its extremes. For up to four values: the product of the distances to them, which is 0 only for a
    declared value. For more values a number outside the limits, so that the column is checked value by value.
    """
    if values is None:
        return torch.aminmax(x), (-math.inf if low is None else low, math.inf if high is None else high)
    binary = values == (0.0, 1.0)
    if not binary and not _apart(values):
        return (x.new_ones(()),), (0.0, 0.0)  # too many, or too close to each other
    ends = []
    for part in x.reshape(-1).split(2**16) if x.numel() > 2**16 else (x,):  # parts that fit the cache
        if binary:
            product = torch.addcmul(part, part, part, value=-1)  # x - x * x: only 0 and 1 give 0, whatever the rounding
        else:
            product = part - values[-1]
            for value in values[:-1]:
                product *= part - value if value else part
        ends.append(product.abs_().sum())
    return ends, (0.0, 0.0)


def _held(number, dtype):
    """A Python number as the float type holds it."""
    if math.isinf(number) or (number.is_integer() and abs(number) <= 8):
        return number
    kind = torch.finfo(dtype)
    if not abs(number) < kind.max:
        return torch.tensor(number, dtype=torch.float64, device="cpu").to(dtype).item()
    spacing = max(math.ldexp(kind.eps / 2, math.frexp(number)[1]), kind.smallest_normal * kind.eps)
    return round(number / spacing) * spacing


def _repairs(options, kind, dtype):
    """Whether a column is held to its declaration without looking whether it fits.

    That is where many columns do not fit: of a type too coarse for the declared numbers, or clipped.
    """
    values = options.get("values")
    if options.get("clip") or (values is not None and not _apart(values)):
        return True
    if options.get("zero") and not _holds_zero(**options):
        return True
    if kind is dtype or not kind.is_floating_point:
        return False
    return any(_held(v, kind) != v for v in values or (options.get("low", 0.0), options.get("high", 0.0)))


def _filled(x, values=None, low=None, high=None, **_):
    """`x` with a declared number where it is missing."""
    if values is None:
        values = [0.0 if _holds_zero(None, low, high) else high if low is None or low < 0 else low]
    return x.nan_to_num(nan=values[0], posinf=math.inf, neginf=-math.inf)


def _apart(values):
    """Whether products of distances tell declared values from others."""
    return len(values) <= 4 and all(b - a >= 1e-3 for a, b in zip(values, values[1:], strict=False))


def _within(low, high):
    """The condition that a number, or a tensor of one, is finite and within limits."""
    return lambda found: (found >= low) & (found <= high) & (found - found == 0)


def _ulp(kind, dtype):
    """The spacing of floats at 1, in the type of the given column or of the computation, whichever is coarser."""
    return max(torch.finfo(t).eps for t in (kind, dtype) if t.is_floating_point)


def _snap(x, values, kind, clip):
    """`x` with each value replaced by the nearest declared one, and where that is more than rounding away."""
    declared = torch.tensor(values, dtype=torch.float64, device="cpu").to(x.device, non_blocking=True)
    wide = x.double().contiguous()
    nearest = declared[torch.bucketize(wide, (declared[1:] + declared[:-1]) / 2)]
    ulp = _ulp(kind, x.dtype)
    missing = torch.isnan(x)
    bad = torch.isinf(x) if clip else ((wide - nearest).abs() > 2 * ulp * nearest.abs()) & ~missing
    return torch.where(missing, x, nearest.to(x.dtype)), bad


def _bound(x, low, high, kind, clip):
    """`x` clipped to its range, and where it was outside by more than rounding."""
    most = torch.finfo(x.dtype).max  # torch refuses a limit that the type cannot hold
    low, high = (None if end is None or abs(end) > most else end for end in (low, high))
    bad, slack = torch.isinf(x), 2 * _ulp(kind, x.dtype)
    if not clip and low is not None:
        bad = bad | (x < low - slack * abs(low))
    if not clip and high is not None:
        bad = bad | (x > high + slack * abs(high))
    return x if low is None and high is None else x.clamp(low, high), bad
