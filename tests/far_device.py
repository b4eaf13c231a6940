"""A device that is not there: tensors that say `cuda`, computed on the CPU, and what would wait for such a device.

with Far() as far:
    out = fn({"a": far.put(torch.rand(8))}, 4)
far.waits  # the operations that would make the host wait, as [aten name]
far.put(x): `x` on the device. here(x): the same numbers on the CPU.
Tensors of the device and of the CPU do not mix, but for scalars, as on a real one.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# Their result, or its shape, is only known when the device is done.
SHAPED_BY_VALUES = {
    *("nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "equal", "bincount", "is_nonzero"),
    *("_local_scalar_dense", "histc", "argwhere"),
}
DEVICE = torch.device("cuda:0")
COPIES = {"_to_copy", "copy_"}
MIXES = {"_to_copy", "copy_", "lift_fresh"}


class FarTensor(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="meta",
            dispatch_device=True,
        )

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return Far().run(function, args, kwargs or {})

    # torch's own of these ask for the driver

    def tolist(self):
        return self.cpu().tolist()

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __bool__(self):
        return bool(self.item())

    __index__ = __int__

    def nonzero(self):
        return torch.ops.aten.nonzero(self)

    def __invert__(self):
        return self.logical_not() if self.dtype is torch.bool else self.bitwise_not()

    def __getitem__(self, index):
        found, axis = self, 0
        parts = index if isinstance(index, tuple) else (index,)
        for i, part in enumerate(parts):
            if part is Ellipsis:
                axis = found.dim() - sum(p is not None for p in parts[i + 1 :])
            elif part is None:
                found, axis = found.unsqueeze(axis), axis + 1
            elif isinstance(part, torch.Tensor):
                found, axis = torch.ops.aten.index(found, [*[None] * axis, part]), axis + 1
            elif isinstance(part, slice):
                found, axis = torch.ops.aten.slice(found, axis, part.start, part.stop, part.step or 1), axis + 1
            else:
                found = found.select(axis, part)
        return found

    def __setitem__(self, index, values):
        assert isinstance(index, torch.Tensor), "only this is done to a whole tensor"
        self.index_put_((index,), values)

    def __repr__(self):
        return f"Far{self.inner!r}"


def here(x):
    return x.inner if isinstance(x, FarTensor) else x


class Far(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        torch._C._ensureCUDADeviceGuardSet()
        self.waits, self.launches = [], 0

    def __enter__(self):
        torch._C._set_only_lift_cpu_tensors(True)
        self.init, torch.cuda._lazy_init = torch.cuda._lazy_init, lambda: None
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(False)
        torch.cuda._lazy_init = self.init
        return super().__exit__(*error)

    def put(self, x):
        return FarTensor(x)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return self.run(function, args, kwargs or {})

    def run(self, function, args, kwargs):
        name = function.overloadpacket.__name__
        if function is torch.ops.prim.device.default:
            return DEVICE
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        far = [x for x in given if isinstance(x, FarTensor)]
        device = kwargs.get("device")
        to_far = torch.device(device).type == "cuda" if device is not None else bool(far)
        if device is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if name in COPIES:
            source = given[-1]
            to_far = isinstance(given[0], FarTensor) if name == "copy_" else to_far
            blocking = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
            if isinstance(source, FarTensor) != to_far and (blocking or not to_far):
                self.waits.append(name)
        elif far:
            near = [x for x in given if not isinstance(x, FarTensor) and x.dim()]
            if near and name not in MIXES:
                raise RuntimeError(f"{name}: tensors of the device and of the CPU, {tuple(near[0].shape)}")
            self.launches += 1
            masks = name in ("index", "index_put", "index_put_") and any(
                x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]
            )
            repeats = name == "repeat_interleave" and kwargs.get("output_size") is None
            if name in SHAPED_BY_VALUES or masks or repeats:
                self.waits.append(name)
        if name == "_local_scalar_dense" and far:
            return here(args[0]).item()
        wrappers = {id(here(x)): x for x in far}
        found = function(*tree_map(here, args), **tree_map(here, kwargs))
        if not to_far:
            return found
        return tree_map(lambda x: wrappers.get(id(x), FarTensor(x)) if isinstance(x, torch.Tensor) else x, found)
