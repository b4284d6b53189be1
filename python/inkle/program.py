"""Compiled programs from files: ``inkle.load`` needs neither torch nor the compiler's input."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from inkle import _inkle

if TYPE_CHECKING:
    from inkle._inkle import Program


def load(
    path: str | os.PathLike[str],
    key: str | os.PathLike[str] | None = None,
    device: str = "cpu",
) -> Program:
    """The program of a package that ``inkle build`` has written.

    >>> program = inkle.load("model.inkle")
    >>> program.inputs
    [x: f32[2..64, 3]]
    >>> y = program(x)          # NumPy arrays, or anything with DLPack, by position or by name

    Results are NumPy arrays of their own (bf16 and 8-bit floats, which NumPy lacks, are objects
    with DLPack); one is returned as it is, several as a tuple. ``program.weights`` is the set of
    weights in use; assigning that of another program shares it, a dictionary of arrays replaces
    them, in either case all at once. Raises ``UserError`` for a file that is damaged,
    ``Unsupported`` for a processor that lacks what the file needs, ``WrongArgument`` naming what
    was expected for arguments of other dtypes or sizes.

    With ``device="cuda"`` or ``"cuda:1"`` it runs on that GPU, for which the package must have a
    target (``inkle build --target sm_90a``); ``Unsupported`` says what is missing. Inputs are CUDA
    tensors with DLPack (torch, cupy), or arrays of the host, which are copied; results are
    ``DeviceArray`` objects with DLPack and ``numpy()``.

    >>> y = torch.from_dlpack(program(x))               # when the call returns, its work is done
    >>> y = program.run_on(torch.cuda.current_stream(), x)       # queued, in that stream's order

    With ``key``, the file of a public key that ``inkle key`` made or the line in it, only what that
    key has signed is loaded: ``UserError`` says why else not. Without it the environment variable
    ``INKLE_PACKAGE_KEY`` names the key, if it is set.
    """
    return _inkle.load(os.fspath(path), None if key is None else os.fspath(key), device)
