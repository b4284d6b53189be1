"""The cache that machines share, over TLS: who is not shown to be the server is not used, and the program runs."""
import contextlib
import os
import re
import shutil
import socketserver
import ssl
import subprocess
import threading

import pytest
from test_remote_cache import COMMAND, SERVER, Machines, Redis, free_port, warnings

OPENSSL = shutil.which("openssl")

pytestmark = [
    pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built"),
    pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with"),
]
needs_redis = pytest.mark.skipif(SERVER is None, reason="no redis-server (scripts/setup --tests installs it)")

HERE = "IP:127.0.0.1,DNS:localhost"


def openssl(*words):
    subprocess.run([OPENSSL, *map(str, words)], check=True, capture_output=True)


class Authority:
    """Makes certificates: NAME.pem, and its key NAME.key."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name, self.pem = folder, name, folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
                "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", self.pem)

    def make(self, name, hosts=HERE, days=2):
        key, request, pem, more = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem", "ext"))
        more.write_text(f"subjectAltName={hosts}\n")
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x",
                "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self.folder / f"{self.name}.key",
                "-CAcreateserial", "-days", days, "-extfile", more, "-out", pem)
        return pem, key


@pytest.fixture
def machines(tmp_path):
    return Machines(tmp_path)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@contextlib.contextmanager
def running(folder, authority, certificate, clients="no"):
    """A Redis server that speaks TLS on one port, and its port; plainly on another one, for the test."""
    port, (pem, key) = free_port(), certificate
    server = Redis(folder, options=["--tls-port", str(port), "--tls-cert-file", str(pem), "--tls-key-file", str(key),
                                    "--tls-ca-cert-file", str(authority.pem), "--tls-auth-clients", clients])
    try:
        yield server, port
    finally:
        server.stop()


def refused(machines, machine, remote, want, **environment):
    """The line that says why the server is not used; the program runs all the same."""
    got, said = machines.run(machine, remote, **environment)
    line, = warnings(said)
    assert got == want and "is taken" not in said
    return line


@needs_redis
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_second_machine_compiles_nothing(machines, authority, tmp_path, host):
    with running(tmp_path, authority, authority.make("server")) as (server, port):
        remote, ca = f"rediss://{host}:{port}/2", str(authority.pem)
        want, said = machines.run("a", remote, INKLE_REMOTE_CACHE_CA=ca)
        assert warnings(said) == []
        got, said = machines.run("b", remote, INKLE_REMOTE_CACHE_CA=ca)
        assert got == want and warnings(said) == [] and "graph is taken from the remote cache" in said
        stats = machines.inkle("b", "cache", "stats", remote=remote, INKLE_REMOTE_CACHE_CA=ca).stdout
        assert f"{remote}: reachable, {len(machines.entries('a'))} keys" in stats
        # The authorities of the system, which SSL_CERT_FILE replaces.
        got, said = machines.run("c", remote, SSL_CERT_FILE=ca)
        assert got == want and warnings(said) == [] and "is taken" in said
        assert server.ask("DBSIZE") == b"0"  # of database 0


@needs_redis
def test_a_wrong_certificate_is_refused(machines, authority, tmp_path):
    want, _ = machines.run("plain")
    other = Authority(tmp_path, "other")
    cases = {"stranger": (other.make("stranger"), "unable to get local issuer certificate|self-signed"),
             "elsewhere": (authority.make("elsewhere", "DNS:cache.example,IP:127.0.0.2"), "IP address mismatch"),
             "old": (authority.make("old", days=0), "certificate has expired")}
    for name, (certificate, why) in cases.items():
        with running(tmp_path, authority, certificate) as (server, port):
            line = refused(machines, name, f"rediss://:hunter2@127.0.0.1:{port}", want,
                           INKLE_REMOTE_CACHE_CA=str(authority.pem))
            assert "its certificate is not accepted" in line and re.search(why, line) and "hunter2" not in line
            assert server.keys() == []  # nothing was sent
    with running(tmp_path, authority, authority.make("elsewhere", "IP:127.0.0.1")) as (_, port):
        line = refused(machines, "name", f"rediss://localhost:{port}", want, INKLE_REMOTE_CACHE_CA=str(authority.pem))
        assert "ostname mismatch" in line
        assert "not accepted" in refused(machines, "system", f"rediss://127.0.0.1:{port}", want)


@needs_redis
def test_a_server_that_demands_a_certificate(machines, authority, tmp_path):
    pem, key = authority.make("client", "DNS:client")
    both = tmp_path / "both.pem"
    both.write_text(pem.read_text() + key.read_text())
    ca = str(authority.pem)
    with running(tmp_path, authority, authority.make("server"), clients="yes") as (_, port):
        remote = f"rediss://127.0.0.1:{port}"
        want, said = machines.run("a", remote, INKLE_REMOTE_CACHE_CA=ca, INKLE_REMOTE_CACHE_CERTIFICATE=str(both))
        assert warnings(said) == []
        got, said = machines.run("b", remote, INKLE_REMOTE_CACHE_CA=ca, INKLE_REMOTE_CACHE_CERTIFICATE=str(both))
        assert got == want and warnings(said) == [] and "is taken" in said
        assert "left alone" in refused(machines, "none", remote, want, INKLE_REMOTE_CACHE_CA=ca)
        for file, why in ((pem, "certificate and key of"), (tmp_path / "nothing", "certificate and key of")):
            assert why in refused(machines, f"with-{file.name}", remote, want, INKLE_REMOTE_CACHE_CA=ca,
                                  INKLE_REMOTE_CACHE_CERTIFICATE=str(file))
        assert "certificates of /nothing" in refused(machines, "ca", remote, want, INKLE_REMOTE_CACHE_CA="/nothing")


@needs_redis
def test_plain_and_encrypted_are_not_mixed_up(machines, authority, tmp_path):
    want, _ = machines.run("plain")
    with running(tmp_path, authority, authority.make("server")) as (server, port):
        refused(machines, "a", f"rediss://127.0.0.1:{server.port}", want, INKLE_REMOTE_CACHE_CA=str(authority.pem))
        refused(machines, "b", f"redis://127.0.0.1:{port}", want)
        assert server.keys() == []


def test_without_openssl(machines, authority, tmp_path):
    (tmp_path / "libssl.so.3").write_bytes(b"")  # is found first, and is no library
    want, _ = machines.run("plain")
    line = refused(machines, "a", "rediss://127.0.0.1:6380", want, LD_LIBRARY_PATH=str(tmp_path))
    assert "TLS needs OpenSSL 3, and there is no libssl.so.3" in line


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            self.server.behave(self.request)


@contextlib.contextmanager
def serving(behave):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler, bind_and_activate=True) as server:
        server.daemon_threads, server.block_on_close, server.behave = True, False, behave
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize("name", ["silent", "noise", "closed", "endless", "ended"])
def test_servers_that_do_not_behave(machines, authority, name):
    """Silent; not TLS; closed within the handshake; an answer without end; half of one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.make("server"))

    def behave(connection):
        if name == "silent":
            connection.recv(1 << 16)
            threading.Event().wait(20)
        elif name == "noise":
            while True:
                connection.sendall(os.urandom(1 << 16))
        elif name == "closed":
            connection.recv(100)
        else:
            with context.wrap_socket(connection, server_side=True) as encrypted:
                encrypted.recv(1 << 16)
                encrypted.sendall(b"$80000000\r\n")
                while name == "endless":
                    encrypted.sendall(b"x" * (1 << 16))
                encrypted.unwrap()  # says that no more will come

    want, _ = machines.run("plain")
    with serving(behave) as port:
        line = refused(machines, "a", f"rediss://127.0.0.1:{port}", want, INKLE_REMOTE_CACHE_CA=str(authority.pem))
        assert "left alone by this process" in line
