"""Worker processes that are replaced when they die or take too long."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from typing import Any


class Workers:
    """One process of ``script --worker``, restarted after a crash or a timeout.

    It reads a line of standard input a case and answers each with one line of JSON.
    """

    def __init__(self, script: str, timeout: float, threads: int, verbose: bool):
        self._script, self._timeout = os.path.abspath(script), timeout
        self._threads, self._verbose = threads, verbose
        self._process: subprocess.Popen[str] | None = None
        self._faults = tempfile.NamedTemporaryFile(prefix="worker-")  # noqa: SIM115

    def run(self, name: str) -> dict[str, Any]:
        """The answer; {"name", "ok": False, "error"} where there is none."""
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write(name + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._dead(name, "the worker died at its start")
        ready, _, _ = select.select([process.stdout], [], [], self._timeout)
        if not ready:
            return self._dead(name, f"timeout of {self._timeout} s")
        line = process.stdout.readline()
        if not line:
            process.wait()
            return self._dead(name, f"crash, exit status {process.returncode}{self._place()}")
        return json.loads(line)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _place(self) -> str:
        """The innermost Python frames of the crash."""
        with open(self._faults.name) as file:
            frames = [line.strip() for line in file if line.strip().startswith("File")]
        short = [f.rsplit("/", 1)[-1].replace('", line ', ":") for f in frames[:3]]
        return " in " + " < ".join(short) if short else ""

    def _dead(self, name: str, error: str) -> dict[str, Any]:
        self.close()
        return {"name": name, "ok": False, "error": error}

    def _start(self) -> subprocess.Popen[str]:
        environment = dict(os.environ, OMP_NUM_THREADS=str(self._threads))
        return subprocess.Popen(
            [sys.executable, self._script, "--worker", *sys.argv[1:],
             "--faults", self._faults.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            stderr=None if self._verbose else subprocess.DEVNULL,
        )  # fmt: skip
