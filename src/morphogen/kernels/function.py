"""Operations with a gradient of their own."""

import inspect
from typing import Any

import torch


class AutogradFunction(torch.autograd.Function):
    """A function of torch whose signature is looked up once: torch asks for it at every call, as slow as a kernel."""

    def __init_subclass__(cls, **knobs: Any) -> None:
        super().__init_subclass__(**knobs)
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]
