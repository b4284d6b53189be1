"""Programs in processes of their own that begin with torch imported, which takes seconds: a server imports it once
and forks for each program, before anything is compiled. It does not import Inkle, which runs on one thread in a
process that was forked after that. At the end of a program Python does not take its modules apart, which takes seconds
of a forked process: what the end itself does is for tests that start a process.

What is read from the environment when torch is imported (`_EARLY`) is the server's, so each value has its own.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from typing import Any, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[2]
_EARLY = ("TORCHINDUCTOR_AUTOGRAD_CACHE", "OMP_NUM_THREADS")
_MOST = 2  # servers at once
_LONGEST = 300.0  # seconds of a program


def python(text: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """As `python -c text arguments`, with the environment changed so."""
    early = tuple({**os.environ, **environment}.get(name) for name in _EARLY)
    others = [name for name in environment if name.startswith("TORCH_") or name.startswith("ONEDNN_")]
    assert not others, f"torch reads {others} when it is imported: start a process"
    server = _servers.pop(early, None)
    if server is None:
        for old in list(_servers)[: max(0, len(_servers) - _MOST + 1)]:
            _servers.pop(old).end()
        server = _Server(dict(zip(_EARLY, early, strict=True)))
    answer = server.run(text, [str(a) for a in arguments], {**os.environ, **environment})
    _servers[early] = server  # the latest is last; one whose program hangs is not kept
    return answer


class _Server:
    def __init__(self, early: dict[str, str | None]):
        every = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **early}
        every = {name: value for name, value in every.items() if value is not None and name != "INKLE_LOG"}
        self._process = subprocess.Popen([sys.executable, __file__], env=every, text=True, bufsize=1,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         start_new_session=True)  # fmt: skip

    def run(self, text: str, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
            request = {"text": text, "arguments": arguments, "environment": environment, "cwd": os.getcwd(),
                       "files": files}  # fmt: skip
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(json.dumps(request) + "\n")
            if not select.select([self._process.stdout], [], [], _LONGEST)[0]:
                os.killpg(self._process.pid, signal.SIGKILL)  # with the program, which hangs
                raise subprocess.TimeoutExpired(text, _LONGEST)
            answer = self._process.stdout.readline()
            assert answer, "the server of forked programs has ended"
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess([sys.executable, "-c", text, *arguments], int(answer),
                                               out.read().decode(), err.read().decode())  # fmt: skip

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


_servers: dict[tuple[str | None, ...], _Server] = {}


@atexit.register
def _end_all() -> None:
    for server in _servers.values():
        server.end()


# --- The server -----------------------------------------------------------------------------------


def _serve() -> dict[str, Any]:
    """Returns in each child, with what it is to run."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401

    assert "inkle" not in sys.modules
    gc.collect()
    gc.freeze()
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    while line := requests.readline():
        if (child := os.fork()) == 0:
            requests.close()
            answers.close()
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers)
    os._exit(0)


def _become(request: dict[str, Any]) -> None:
    for fd, path in zip((0, 1, 2), ("/dev/null", *request["files"]), strict=True):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv[:], sys.path[0] = ["-c", *request["arguments"]], ""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    status = 0
    try:
        exec(compile(request["text"], "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    _end(status)


def _end(status: int) -> NoReturn:
    """As Python ends, but for its modules: threads, `atexit`, files, and the destructors of C++."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(status)
    raise AssertionError


if __name__ == "__main__":
    _become(_serve())
