"""Texts of each stage: to the user's function, to a folder, to torch's trace."""

from __future__ import annotations

import logging
import os
from typing import Callable

import torch
from torch._logging import _internal as torch_logging

from inkle.options import Options

Writer = Callable[[str, str], None]

_log = logging.getLogger("inkle")
_count = 0
_faults: set[str] = set()  # folders that were warned of


def is_on(options: Options) -> bool:
    """Whether files of the compiler's stages are asked for, which caches do not have."""
    return bool(os.environ.get("INKLE_DUMP_DIR")) or options.debug


def writer(options: Options) -> Writer | None:
    """What the compiler calls with the name and the text of each stage."""
    writers = [options.dump] if options.dump else []
    if folder := os.environ.get("INKLE_DUMP_DIR"):
        writers += _to_folder(folder, f"INKLE_DUMP_DIR={folder}")
    if options.debug:
        folder = os.path.join(_debug_dir(), "inkle")
        writers += _to_folder(folder, f"torch's debug directory {folder}")
    if is_traced():
        writers.append(_to_trace)
    if len(writers) < 2:
        return writers[0] if writers else None

    def write(stage: str, text: str) -> None:
        for one in writers:
            one(stage, text)

    return write


def _debug_dir() -> str:
    from torch._dynamo.utils import get_debug_dir

    return get_debug_dir()


def _to_folder(folder: str, what: str) -> list[Writer]:
    """Numbered files; a folder that cannot be written to is warned of once."""
    if folder in _faults:
        return []

    def write(stage: str, text: str) -> None:
        global _count
        if folder in _faults:
            return
        _count += 1
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"{_count:03}-{stage}.txt"), "w") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            _faults.add(folder)
            _log.warning("inkle: %s gets no more files: %s", what, error)

    return [write]


def is_traced() -> bool:
    """Whether torch writes a structured trace (TORCH_TRACE), which tlparse reads."""
    handler = torch_logging.LOG_TRACE_HANDLER
    is_used = handler in torch_logging.trace_log.handlers
    return is_used and getattr(handler, "root_dir", None) is not None


def _to_trace(stage: str, text: str) -> None:
    trace(f"inkle_{stage}", "string", text)


def trace(name: str, encoding: str, text: str) -> None:
    """An artefact of torch's trace, if there is one."""
    torch._logging.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": encoding},
        payload_fn=lambda: text,
    )
