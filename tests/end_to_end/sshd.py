"""A real `sshd` on loopback with keys of its own, and a network before it that fails when told to.

The far side has its own directories and environment; the near side finds it as `box`.
"""

import getpass
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.daemons import environment, wait_for
from tests.end_to_end.command import COMMAND, Place, alive
from tests.lacking import lacking

_TOOLS = ("sshd", "ssh", "ssh-keygen")
_PRIVSEP = Path("/run/sshd")


def tools() -> dict[str, str]:
    """The paths of OpenSSH's programs; skips the test where one is missing, but never in CI."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    found = {name: shutil.which(name, path=path) for name in _TOOLS}
    missing = [name for name, where in found.items() if where is None]
    if os.getuid() == 0:
        _PRIVSEP.mkdir(mode=0o755, exist_ok=True)
    if missing:
        lacking(", ".join(missing))
    return {name: where for name, where in found.items() if where is not None}


class Network:
    """A TCP relay to `port`. `freeze`: nothing passes, nothing is lost; `cut`: every connection
    ends, and none is made until `heal`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._down = False
        self._serving: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def freeze(self) -> None:
        """From now on everything waits."""
        self._flowing.clear()

    def thaw(self) -> None:
        """What waited arrives."""
        self._flowing.set()

    def cut(self) -> None:
        """The cable is out."""
        with self._lock:
            self._down = True
            self._drop()
        self.thaw()

    def heal(self) -> None:
        """It is in again."""
        with self._lock:
            self._down = False

    def close(self) -> None:
        """The end."""
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for serving in self._serving:
            serving.join()

    def _drop(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._down:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
            serving = threading.Thread(target=self._serve, args=(near, far), daemon=True)
            serving.start()
            self._serving.append(serving)

    def _serve(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            back = threading.Thread(target=self._relay, args=(far, near), daemon=True)
            back.start()
            self._relay(near, far)
            back.join()

    def _relay(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while True:
                data = one.recv(65536)
                self._flowing.wait()
                if not data:
                    break
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Box:
    """The far machine: its sshd, its directories; `near` is the place of the person who looks."""

    def __init__(self, near: Place, *settings: str) -> None:
        self._tools = tools()
        self.root = near.root / "box"
        self.root.mkdir()
        self.bin = self.root / "bin"
        self.bin.mkdir()
        (self.root / "run").mkdir(mode=0o700)
        self._near = near
        self._settings = settings
        self._listen = free_port()
        self.log = self.root / "sshd.log"
        self._key("host")
        self._key("person")
        self.has_llm_inspect()
        self._configure()
        self._sshd = self._start()
        self.network = Network(self._listen)
        self._write_client()

    # Setting up -------------------------------------------------------------------------------

    def _key(self, name: str) -> None:
        words = [self._tools["ssh-keygen"], "-q", "-t", "ed25519", "-N", "", "-C", name]
        subprocess.run([*words, "-f", str(self.root / name)], check=True)

    def has_llm_inspect(self, text: str | None = None) -> Path:
        """Install `llm-inspect` over there: ours, or another one."""
        return self.install(self.bin / "llm-inspect", text)

    def install(self, path: Path, text: str | None = None) -> Path:
        """Put a command there: ours, or another one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or f'#!/bin/sh\nexec {shlex.quote(str(COMMAND))} "$@"\n')
        path.chmod(0o755)
        return path

    def lock_key(self, phrase: str) -> None:
        """From here on the person's key has a passphrase."""
        words = [self._tools["ssh-keygen"], "-q", "-p", "-P", "", "-N", phrase]
        subprocess.run([*words, "-f", str(self.root / "person")], check=True)

    @property
    def env(self) -> dict[str, str]:
        """The environment of whoever logs in there."""
        return {
            **environment(self.root),
            "HOME": str(self.root),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }

    def _configure(self) -> None:
        shutil.copy(self.root / "person.pub", self.root / "authorized")
        variables = " ".join(f'"{name}={value}"' for name, value in self.env.items())
        lines = [
            f"Port {self._listen}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.root / 'host'}",
            f"AuthorizedKeysFile {self.root / 'authorized'}",
            f"PidFile {self.root / 'sshd.pid'}",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "PermitRootLogin yes",
            "MaxStartups 100",
            f"SetEnv {variables}",
            *self._settings,
        ]
        (self.root / "sshd_config").write_text("\n".join(lines) + "\n")

    def _start(self) -> "subprocess.Popen[bytes]":
        words = [self._tools["sshd"], "-D", "-f", str(self.root / "sshd_config")]
        started = subprocess.Popen([*words, "-E", str(self.log)], stdin=subprocess.DEVNULL)
        wait_for(lambda: started.poll() is not None or listens(self._listen))
        assert started.poll() is None, self.log.read_text()
        return started

    def _write_client(self) -> None:
        public = (self.root / "host.pub").read_text().split()
        (self.root / "known").write_text(f"box {public[0]} {public[1]}\n")
        (self.root / "ssh_config").write_text(
            "\n".join(
                (
                    "Host box",
                    "HostKeyAlias box",
                    "Host box stranger",
                    "HostName 127.0.0.1",
                    f"Port {self.network.port}",
                    f"User {getpass.getuser()}",
                    f"IdentityFile {self.root / 'person'}",
                    "IdentitiesOnly yes",
                    "IdentityAgent none",
                    f"UserKnownHostsFile {self.root / 'known'}",
                    "GlobalKnownHostsFile /dev/null",
                    "StrictHostKeyChecking yes",
                    "",
                )
            )
        )
        # ssh finds its configuration by the account, not by $HOME: another one takes an option.
        near = self.root / "near" / "ssh"
        config = shlex.quote(str(self.root / "ssh_config"))
        self.install(near, f'#!/bin/sh\nexec {self._tools["ssh"]} -F {config} "$@"\n')
        self._near.env["PATH"] = f"{near.parent}:{self._near.env['PATH']}"

    # Over there -------------------------------------------------------------------------------

    def run(self, *words: str) -> str:
        """Run `llm-inspect` there, not over ssh; what it prints."""
        env = {**self._near.env, **self.env}
        done = subprocess.run(
            [COMMAND, *words], env=env, cwd=self.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    def logins(self) -> list[psutil.Process]:
        """The processes of sshd that serve somebody who is logged in."""
        serving: list[psutil.Process] = []
        with suppress(psutil.Error):
            serving += psutil.Process(self._sshd.pid).children(recursive=True)
        return serving

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.network.close()
        serving = self.logins()
        self._sshd.terminate()
        self._sshd.wait()
        for process in serving:
            with suppress(psutil.Error):
                process.kill()
            wait_for(lambda pid=process.pid: not alive(pid))  # type: ignore[misc]
        for connection in (self.root / "run").glob("*/conn.json"):
            pid = int(json.loads(connection.read_bytes())["pid"])
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda pid=pid: not alive(pid))  # type: ignore[misc]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Somebody takes connections there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def ours(place: Place, words: Sequence[str] = ("ssh",)) -> list[psutil.Process]:
    """Processes whose command line speaks of this place: what a viewer may leave behind."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = process.cmdline()
            if line and Path(line[0]).name in words and str(place.root) in " ".join(line):
                found.append(process)
    return found
