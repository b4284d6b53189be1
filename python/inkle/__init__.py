"""Inkle, a tensor compiler: ``torch.compile(model, backend="inkle")``.

The backend is registered as an entry point of ``torch_dynamo_backends``; importing this package is
not needed for it, but registers it too where the package was not installed.
"""

from inkle._inkle import OutOfRange, UserError, WrongArgument
from inkle.backend import GraphReport, inkle, reports, reset
from inkle.inspect import inspect, profile

__all__ = [
    "GraphReport",
    "OutOfRange",
    "UserError",
    "WrongArgument",
    "inkle",
    "inspect",
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


register()
