"""The cache that machines share: a machine is a folder of its own. The same bits, whatever the server does."""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import socketserver
import subprocess
import threading
import time

import forked
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "pt2" / "data" / "encoder.pt2"
COMMAND = ROOT / "build" / "inkle"
SERVER = shutil.which("redis-server")
SECRET = "a secret of the tests"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")
needs_redis = pytest.mark.skipif(SERVER is None, reason="no redis-server (scripts/setup --tests installs it)")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def ask(port, *words, password=None):
    """One command to a server; its whole answer, a bulk string without what is around it."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, connection.makefile("rb") as answers:
        def call(*words):
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            return read(answers)

        if password is not None:
            call("AUTH", password)
        return call(*words)


def read(answers):
    line = answers.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        return None if rest == b"-1" else answers.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [read(answers) for _ in range(int(rest))]
    return rest


class Redis:
    """A server of ours: nothing of it is kept on disk."""

    def __init__(self, folder, password=None, options=()):
        self.folder, self.password, self.port = folder, password, free_port()
        self.process, self.options = None, options
        self.start()

    def start(self):
        required = ["--requirepass", self.password] if self.password else []
        self.process = subprocess.Popen(
            [SERVER, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no",
             "--dir", str(self.folder), *required, *self.options], stdout=subprocess.DEVNULL)
        for _ in range(500):
            with contextlib.suppress(OSError):
                if ask(self.port, "PING", password=self.password) == b"PONG":
                    return
            time.sleep(0.01)
        raise TimeoutError("redis-server does not start")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def ask(self, *words):
        return ask(self.port, *words, password=self.password)

    def keys(self):
        return sorted(self.ask("KEYS", "*"))


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError, ValueError):
            while words := read(self.rfile):
                answer = self.server.answer(words)
                if answer is None:  # nothing, for ever
                    self.rfile.read()
                    return
                self.wfile.write(answer)
                if self.server.closes:
                    return


class Liar(socketserver.ThreadingTCPServer):
    """Answers each command with what `answer` gives; None: accepts and says nothing."""
    daemon_threads, block_on_close = True, False

    def __init__(self, answer, closes=False):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.closes, self.commands = answer, closes, 0
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Machines:
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def inkle(self, machine, *arguments, remote=None, code=0, **environment):
        every = os.environ | {"INKLE_CACHE_DIR": str(self.folder / machine), "INKLE_LOG": "cache",
                              "INKLE_REMOTE_CACHE_KEY": SECRET, "INKLE_REMOTE_CACHE": remote} | environment
        if isinstance(remote, int):
            every["INKLE_REMOTE_CACHE"] = f"redis://127.0.0.1:{remote}"
        done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False,
                              env={name: value for name, value in every.items() if value is not None})
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def run(self, machine, remote=None, **environment):
        """The bits of the model's outputs, and what was logged."""
        out = self.folder / f"out{self.count}"
        self.count += 1
        done = self.inkle(machine, "run", MODEL, "--random", "--output", out, remote=remote, **environment)
        return {p.name: p.read_bytes() for p in out.iterdir()}, done.stderr

    def entries(self, machine):
        return sorted((self.folder / machine).rglob("*.entry"))


def warnings(said):
    return [line for line in said.splitlines() if line.startswith("inkle warning: ")]


@pytest.fixture
def machines(tmp_path):
    return Machines(tmp_path)


@pytest.fixture
def redis(tmp_path):
    server = Redis(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def serve():
    servers = []

    def made(answer, closes=False):
        servers.append(Liar(answer, closes))
        return servers[-1]

    yield made
    for server in servers:
        server.shutdown()
        server.server_close()


@needs_redis
def test_a_second_machine_compiles_nothing(machines, redis):
    want, said = machines.run("a", redis.port)
    assert warnings(said) == [] and "remote" not in said
    names = redis.keys()
    assert len(names) == len(machines.entries("a")) > 0
    for name in names:
        assert re.fullmatch(rb"inkle:entry:[0-9a-f]{64}", name)
        assert 0 < int(redis.ask("TTL", name)) <= 30 * 24 * 3600
    got, said = machines.run("b", redis.port)
    assert got == want and warnings(said) == []
    assert said.count("is taken") == 1 and "graph is taken from the remote cache" in said
    # Without the graph as a whole, kernel by kernel.
    for name in names:
        if b"\ngraph=" in redis.ask("GET", name):
            redis.ask("DEL", name)
    got, said = machines.run("c", redis.port)
    assert got == want and warnings(said) == []
    taken, kernels = map(int, re.search(r"(\d+) of (\d+) kernels were made", said).groups())
    assert taken == kernels == len(names) - 1 == said.count("kernel is taken from the remote cache")
    assert redis.keys() == names  # the graph was put again
    # And their own folders have them now.
    redis.stop()
    for machine in "bc":
        got, said = machines.run(machine, redis.port)
        assert got == want and warnings(said) == []
        assert "was compiled by an earlier process" in said
        assert "0 files were deleted" in machines.inkle(machine, "cache", "verify").stdout


@needs_redis
def test_stats_expiry_and_database(machines, redis):
    remote = f"redis://127.0.0.1:{redis.port}/3"
    machines.run("a", remote, INKLE_REMOTE_CACHE_EXPIRY="60")
    assert redis.keys() == []
    lines = machines.inkle("a", "cache", "stats", remote=remote).stdout.splitlines()
    count = len(machines.entries("a"))
    assert lines[1] == f"{remote}: reachable, {count} keys in its database"
    assert len(machines.inkle("a", "cache", "stats").stdout.splitlines()) == 1
    assert "is taken from the remote cache" in machines.run("b", remote)[1]
    machines.inkle("a", "cache", "clear", remote=remote)
    assert f"{count} keys" in machines.inkle("a", "cache", "stats", remote=remote).stdout
    assert machines.run("c", redis.port, INKLE_REMOTE_CACHE_EXPIRY="60")[1].count("remote") == 0
    assert all(0 < int(redis.ask("TTL", name)) <= 60 for name in redis.keys())


@needs_redis
def test_passwords(machines, tmp_path):
    redis = Redis(tmp_path, password="p@ss/word")
    try:
        want, said = machines.run("a", f"redis://:p%40ss%2Fword@127.0.0.1:{redis.port}")
        assert warnings(said) == [] and redis.keys() != []
        got, said = machines.run("b", f"redis://default:p%40ss%2Fword@127.0.0.1:{redis.port}/0")
        assert got == want and "is taken from the remote cache" in said
        for user, why in (("", "NOAUTH"), (":guess@", "WRONGPASS"), ("me:guess@", "WRONGPASS")):
            machine = f"c{user.strip(':@')}{why}"
            got, said = machines.run(machine, f"redis://{user}127.0.0.1:{redis.port}")
            line, = warnings(said)
            assert got == want and "left alone by this process" in line and why in line
            assert "guess" not in said
        stats = machines.inkle("a", "cache", "stats", remote=f"redis://:guess@127.0.0.1:{redis.port}").stdout
        assert "WRONGPASS" in stats and "guess" not in stats
    finally:
        redis.stop()


@needs_redis
def test_machines_with_another_secret(machines, redis):
    want, _ = machines.run("a", redis.port)
    got, said = machines.run("b", redis.port, INKLE_REMOTE_CACHE_KEY="another secret of the tests")
    line, = warnings(said)
    assert got == want and "signed with another secret" in line
    assert "is taken" not in said and "another secret of the tests" not in said
    # It has replaced them by its own.
    got, said = machines.run("c", redis.port, INKLE_REMOTE_CACHE_KEY="another secret of the tests")
    assert got == want and warnings(said) == [] and "is taken" in said


@needs_redis
def test_a_user_who_only_reads(machines, redis):
    want, _ = machines.run("a", redis.port)
    redis.ask("ACL", "SETUSER", "reader", "on", ">secret", "~inkle:*", "+get", "+dbsize")
    remote = f"redis://reader:secret@127.0.0.1:{redis.port}"
    got, said = machines.run("b", remote)
    assert got == want and warnings(said) == [] and "is taken" in said
    redis.ask("FLUSHALL")
    got, said = machines.run("c", remote)
    line, = warnings(said)
    assert got == want and "takes no entries: NOPERM" in line


@needs_redis
def test_a_server_that_is_full(machines, redis):
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    want, _ = machines.run("a")
    got, said = machines.run("b", redis.port)
    line, = warnings(said)
    assert got == want and "takes no entries: OOM" in line


@needs_redis
def test_a_server_that_starts_again(machines, redis):
    want, _ = machines.run("a", redis.port)
    redis.stop()
    got, said = machines.run("b", redis.port)
    line, = warnings(said)
    assert got == want and "Connection refused" in line
    redis.start()  # empty
    got, said = machines.run("c", redis.port)
    assert got == want and warnings(said) == [] and redis.keys() != []
    got, said = machines.run("d", redis.port)
    assert got == want and warnings(said) == [] and "is taken" in said


def test_nobody_at_that_port(machines):
    want, _ = machines.run("a")
    got, said = machines.run("b", free_port())
    line, = warnings(said)
    assert got == want and "left alone by this process: Connection refused" in line
    got, said = machines.run("c", "redis://no-such-host.invalid")
    line, = warnings(said)
    assert got == want and "left alone" in line


@pytest.mark.parametrize("how", ["silent", "in the middle", "closes", "array", "not redis", "endless"])
def test_broken_servers_cost_little(machines, serve, how):
    answers = {"silent": lambda _: None,
               "in the middle": lambda _: b"$5000\r\n" + b"x" * 100,
               "closes": lambda _: b"",
               "array": lambda _: b"*1000000000\r\n",
               "not redis": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
               "endless": lambda _: b"$1000000000\r\n" + b"x" * (70 << 20)}
    start = time.monotonic()
    want, _ = machines.run("a")
    alone = time.monotonic() - start
    server = serve(answers[how], closes=how in ("in the middle", "closes"))
    start = time.monotonic()
    got, said = machines.run("b", server.port)
    assert time.monotonic() - start < alone + (8 if how == "endless" else 4)
    line, = warnings(said)
    assert got == want and "is left alone by this process" in line
    again, said = machines.run("b", server.port)
    assert again == want and warnings(said) == []  # all from its folder


def flipped(value, bit):
    changed = bytearray(value)
    changed[bit // 8 % len(changed)] ^= 1 << bit % 8
    return bytes(changed)


@needs_redis
@pytest.mark.parametrize("lie", ["other bytes", "other keys", "bit in mac", "bit in header", "last bit", "truncated",
                                 "longer", "no mac", "empty", "mac of zeros"])
def test_a_server_that_lies(machines, redis, serve, lie):
    want, _ = machines.run("a", redis.port)
    values = {name: redis.ask("GET", name) for name in redis.keys()}
    names = list(values)
    others = {name: values[names[(n + 1) % len(names)]] for n, name in enumerate(names)}
    assert len(names) > 1
    lies = {"other bytes": lambda name: os.urandom(len(values[name])),
            "other keys": lambda name: others[name],
            "bit in mac": lambda name: flipped(values[name], 77),
            "bit in header": lambda name: flipped(values[name], 8 * 100 + 3),
            "last bit": lambda name: flipped(values[name], 8 * len(values[name]) - 1),
            "truncated": lambda name: values[name][:-100],
            "longer": lambda name: values[name] + b"x",
            "no mac": lambda name: values[name][32:],
            "empty": lambda _: b"",
            "mac of zeros": lambda name: bytes(32) + values[name][32:]}
    asked = []

    def answer(words):
        if words[0] == b"GET":
            asked.append(words[1])
            value = lies[lie](words[1]) if words[1] in values else None
            return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
        return b"+OK\r\n"

    got, said = machines.run("b", serve(answer).port)
    line, = warnings(said)
    assert got == want and "is refused" in line and "is taken" not in said
    assert set(names) <= set(asked)
    assert f"{len(machines.entries('b'))} entries are right, 0 files" in machines.inkle("b", "cache", "verify").stdout


@needs_redis
def test_an_honest_copy_of_a_server(machines, redis, serve):
    """What the lies are measured against: the same server, the values as they are."""
    want, _ = machines.run("a", redis.port)
    values = {name: redis.ask("GET", name) for name in redis.keys()}
    server = serve(lambda words: b"$%d\r\n%s\r\n" % (len(values[words[1]]), values[words[1]])
                   if words[1] in values else b"$-1\r\n")
    got, said = machines.run("b", server.port)
    assert got == want and warnings(said) == [] and "is taken" in said


@pytest.mark.parametrize("environment, why", [
    ({"INKLE_REMOTE_CACHE_KEY": None}, "set INKLE_REMOTE_CACHE_KEY to a secret of at least 16 bytes"),
    ({"INKLE_REMOTE_CACHE_KEY": "short"}, "the secret has 5 bytes"),
    ({"INKLE_REMOTE_CACHE_CA": "ca.pem"}, "INKLE_REMOTE_CACHE_CA is set, but INKLE_REMOTE_CACHE does not start"),
    ({"INKLE_REMOTE_CACHE": "cache:6379"}, "does not start with redis://"),
    ({"INKLE_REMOTE_CACHE_TIMEOUT": "soon"}, "INKLE_REMOTE_CACHE_TIMEOUT: soon is no number of milliseconds"),
])
def test_wrong_settings(machines, serve, environment, why):
    asked = []
    server = serve(lambda words: asked.append(words))
    want, _ = machines.run("a")
    remote = environment.pop("INKLE_REMOTE_CACHE", server.port)
    got, said = machines.run("b", remote, **environment)
    line, = warnings(said)
    assert got == want and "the remote cache is not used" in line and why in line
    assert asked == []


@needs_redis
def test_a_secret_in_a_file(machines, redis, tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    want, _ = machines.run("a", redis.port)
    environment = {"INKLE_REMOTE_CACHE_KEY": None, "INKLE_REMOTE_CACHE_KEY_FILE": str(path)}
    got, said = machines.run("b", redis.port, **environment)
    assert got == want and warnings(said) == [] and "is taken" in said
    path.chmod(0o644)
    got, said = machines.run("c", redis.port, **environment)
    line, = warnings(said)
    assert got == want and "chmod 600" in line and "is taken" not in said


TORCH = """
import torch, inkle
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8)).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.fill_(0.25)
    compiled = torch.compile(model, backend="inkle", options={"strict": True})
    print(compiled(torch.arange(24.0).view(3, 8)).sum().item().hex())
"""


@needs_redis
def test_whole_graphs_of_torch(machines, redis):
    pytest.importorskip("torch")

    def run(machine):
        environment = {"INKLE_CACHE_DIR": str(machines.folder / machine), "INKLE_LOG": "cache",
                       "INKLE_REMOTE_CACHE": f"redis://127.0.0.1:{redis.port}", "INKLE_REMOTE_CACHE_KEY": SECRET,
                       "TORCHINDUCTOR_CACHE_DIR": str(machines.folder / machine / "torch")}
        done = forked.python(TORCH, **environment)
        assert done.returncode == 0, done.stderr
        assert warnings(done.stderr) == []
        return done

    want = run("a")
    assert "is taken" not in want.stderr and redis.keys() != []
    again = run("b")
    assert again.stdout == want.stdout
    assert "graph is taken from the remote cache" in again.stderr and "was compiled by an earlier process" in again.stderr
