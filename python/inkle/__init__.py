"""Inkle, a tensor compiler: ``torch.compile(model, backend="inkle")``.

The backend is registered as an entry point of ``torch_dynamo_backends``; importing this package is
not needed for it, but registers it too where the package was not installed. Without torch there is
``inkle.load``, which runs what was compiled elsewhere.
"""

import importlib.util

from inkle._inkle import OutOfRange, Unsupported, UserError, WrongArgument
from inkle.doctor import doctor
from inkle.program import load

_HAS_TORCH = importlib.util.find_spec("torch") is not None
if _HAS_TORCH:
    from inkle.backend import GraphReport, inkle, reports, reset
    from inkle.inspect import inspect, profile

__all__ = [
    "GraphReport",
    "OutOfRange",
    "Unsupported",
    "UserError",
    "WrongArgument",
    "doctor",
    "inkle",
    "inspect",
    "load",
    "profile",
    "register",
    "reports",
    "reset",
]
__version__ = "0.1.0"


def register() -> None:
    """Registers the backend under the name "inkle", unless an entry point has done so."""
    from torch._dynamo import list_backends, register_backend

    if "inkle" not in list_backends(exclude_tags=()):
        register_backend(inkle, name="inkle")


if _HAS_TORCH:
    register()
