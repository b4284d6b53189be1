"""Tests that need a right or a program which not every machine gives."""
import os
import shutil
from typing import NoReturn

import pytest


def lacks(what: str) -> NoReturn:
    """Skips the test; fails it where CI runs as root, which has the rights and installs the programs."""
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"CI runs as root and must not leave this test out: {what}")
    pytest.skip(what)


def needs_program(name: str) -> str:
    """Its path."""
    found = shutil.which(name)
    return found if found is not None else lacks(f"no {name} (scripts/setup --tests installs it)")
