"""A GPU that is not there: tensors that say they lie on one, so that what mixes devices fails on any machine.

They are computed with on the CPU. Whatever torch refuses (a tensor of the one device beside one of the other, `numpy()`
of what is not on the CPU) is refused here too; how quick a GPU is, and what needs CUDA itself, is for `test_device.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

GPU, CPU = torch.device("cuda"), torch.device("cpu")


class OnGPU(Tensor):
    """A tensor that says that it lies on a GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl


def _is_gpu(value: object) -> bool:
    return isinstance(value, torch.device | str) and str(value).startswith("cuda")


def _is_cpu(value: object) -> bool:
    return isinstance(value, torch.device | str) and str(value) == "cpu"


def _down(value: object) -> object:
    if isinstance(value, OnGPU):
        return value.as_subclass(Tensor)
    return CPU if _is_gpu(value) else value


def _up(value: object) -> object:
    return value.as_subclass(OnGPU) if isinstance(value, Tensor) and not isinstance(value, OnGPU) else value


SAME = ("as_subclass", "__repr__", "__hash__", "__format__", "data_ptr")
ASKED = {"device": GPU, "is_cuda": True, "is_cpu": False}
MOVES = ("to", "type_as", "copy_")
SHAPED = ("view_as", "expand_as", "reshape_as")
INDEXED = ("__getitem__", "index_select", "__setitem__")


class _Pretending(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in SAME or func is torch.device:
            return func(*args, **kwargs)
        flat = tree_flatten((args, kwargs))[0]
        own = [one for one in flat if isinstance(one, OnGPU)]
        if name == "__get__":
            about = getattr(func.__self__, "__name__", "")
            if about in ASKED:
                return ASKED[about] if own else func(*args, **kwargs)
        if name in ("backward", "grad"):
            return func(*args, **kwargs)
        if name in ("numpy", "__array__") and own:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if name in ("cpu", "tolist", "item", "__bool__", "__float__", "__int__", "__index__"):
            return func(*tree_map(_down, args), **tree_map(_down, kwargs))
        if name in SHAPED:
            found = func(*tree_map(_down, args))
            return _up(found) if isinstance(args[0], OnGPU) else found
        if name in MOVES:
            return self._moved(func, name, args, kwargs)
        others = [one for one in flat if isinstance(one, Tensor) and not isinstance(one, OnGPU) and one.ndim > 0]
        if name in INDEXED and isinstance(args[0], OnGPU):  # positions may lie on the CPU
            others = [one for one in others if one.is_floating_point()]
        if own and others:
            shapes = [tuple(one.shape) for one in others]
            raise RuntimeError(f"{name}: expected all tensors to be on the same device; on the CPU: {shapes}")
        found = func(*tree_map(_down, args), **tree_map(_down, kwargs))
        return tree_map(_up, found) if own or _is_gpu(kwargs.get("device")) else found

    def _moved(self, func, name, args, kwargs):
        source, *rest = [*args, *kwargs.values()]
        there = isinstance(source, OnGPU)
        if name != "copy_":
            for one in rest:
                if _is_gpu(one) or isinstance(one, OnGPU):
                    there = True
                elif _is_cpu(one) or isinstance(one, Tensor):
                    there = False
        found = func(*tree_map(_down, args), **tree_map(_down, kwargs))
        return _up(found) if there else found


def _module_to(self, *args, **kwargs):
    """As torch's, parameter by parameter: a parameter cannot change its type in place."""
    wanted = [one for one in (*args, *kwargs.values()) if _is_gpu(one) or _is_cpu(one)]
    dtypes = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype)]
    for module in self.modules():
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if value is None:
                    continue
                moved = value.detach()
                for one in dtypes if value.is_floating_point() else ():
                    moved = moved.to(one)
                moved = moved.to(wanted[0]) if wanted else moved
                held[name] = nn.Parameter(moved, value.requires_grad) if isinstance(value, nn.Parameter) else moved
    return self


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """As if there were a GPU."""
    with (
        patch("torch.cuda.is_available", lambda: True),
        patch("torch.cuda.mem_get_info", lambda device: (8 * 2**30, 16 * 2**30)),
        patch.object(nn.Module, "to", _module_to),
        patch.object(nn.Module, "cpu", lambda self: self.to("cpu")),
        _Pretending(),
    ):
        yield
