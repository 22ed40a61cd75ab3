"""Downloading from a hub: the real library against a small server of the test's own."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.worker.hub_model import download, hub_model
from tests.worker.checkpoints import quiet, save_tiny

if TYPE_CHECKING:
    from huggingface_hub import HfApi

pytestmark = pytest.mark.engine
COMMIT = "c0ffee" + "0" * 34


class Hub(ThreadingHTTPServer):
    """One repository, `acme/tiny`. `asked` are the paths of the files that were fetched."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = files
        self.asked: list[str] = []
        self.gated = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        files = self.server.files
        if self.server.gated:
            self._say(403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
        elif path.startswith("/api/models/acme/tiny/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                for name, data in files.items()
            ]
            self._say(200, json.dumps(tree).encode(), {}, body)
        elif path.startswith("/api/models/acme/tiny"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
            info = {"id": "acme/tiny", "sha": COMMIT, "siblings": siblings}
            self._say(200, json.dumps(info).encode(), {}, body)
        elif path.startswith("/acme/tiny/resolve/"):
            name = path.split("/", 5)[5]
            if body:
                self.server.asked.append(name)
            if name in files:
                headers = {"ETag": f'"{_etag(files[name])}"', "X-Repo-Commit": COMMIT}
                self._say(200, files[name], headers, body)
            else:
                self._say(404, b"", {"X-Error-Code": "EntryNotFound"}, body)
        else:
            self._say(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)

    def _say(self, status: int, content: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = save_tiny(tmp_path / "tiny")
    files = {x.name: x.read_bytes() for x in folder.iterdir()}
    server = Hub(files | {"README.md": b"read me", "pytorch_model.bin": b"pickle"})
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def api(hub: Hub) -> "HfApi":
    from huggingface_hub import HfApi

    return HfApi(endpoint=hub.address, token=False)


def refused(hub: Hub, name: str = "acme/tiny") -> str:
    with pytest.raises(InspectError) as caught:
        download(api(hub), name, None, quiet)
    assert caught.value.exit_code == Exit.MODEL
    return caught.value.lines()


def test_a_repository_is_downloaded_and_then_cached(hub: Hub) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = download(api(hub), "acme/tiny", None, lambda *x: seen.append(x))
    assert folder.name == COMMIT
    names = {x.name for x in folder.iterdir()}
    assert names == set(hub.files) - {"README.md", "pytorch_model.bin"}
    assert not {"README.md", "pytorch_model.bin"} & set(hub.asked)
    total = sum(len(hub.files[name]) for name in names)
    assert seen[0][0] == "look up"
    assert seen[-1] == ("download", total, total)
    assert hub_model("acme/tiny", None, quiet) == folder
    assert hub_model("acme/tiny", COMMIT, quiet) == folder


@pytest.mark.parametrize(
    ("gone", "added", "said"),
    [
        ("model.safetensors", "", "pickle weights only"),
        ("config.json", "model.Q4.gguf", ".gguf files and give its path"),
        ("tokenizer.json", "", "no tokenizer.json"),
    ],
)
def test_what_is_not_worth_downloading(hub: Hub, gone: str, added: str, said: str) -> None:
    del hub.files[gone]
    if added:
        hub.files[added] = b"x"
    assert said in refused(hub)
    assert "model.safetensors" not in hub.asked


def test_code_in_the_repository_is_refused_before_the_weights(hub: Hub) -> None:
    config = json.loads(hub.files["config.json"])
    hub.files["config.json"] = json.dumps(config | {"auto_map": {"AutoModel": "x.X"}}).encode()
    assert "auto_map" in refused(hub)
    assert hub.asked == ["config.json"]


@pytest.mark.parametrize(
    ("change", "said"), [({"is_encoder_decoder": True}, "encoder-decoder"), (None, "is an adapter")]
)
def test_what_is_not_supported(hub: Hub, change: dict[str, object] | None, said: str) -> None:
    config = json.loads(hub.files["config.json"])
    if change is None:
        hub.files["adapter_config.json"] = hub.files.pop("config.json")
    else:
        hub.files["config.json"] = json.dumps(config | change).encode()
    assert said in refused(hub)
    assert "model.safetensors" not in hub.asked


def test_an_adapter_beside_the_weights_is_not_downloaded(hub: Hub) -> None:
    """It would be left out, or, where peft is installed, put in: neither is what was given."""
    hub.files["adapter_config.json"] = b"{}"
    assert "holds an adapter beside its weights, which is not supported" in refused(hub)
    assert "model.safetensors" not in hub.asked


def test_unknown_and_gated_repositories(hub: Hub) -> None:
    assert "not on the hub" in refused(hub, "acme/other")
    hub.gated = True
    assert "gated" in refused(hub)


def test_nobody_answers() -> None:
    from huggingface_hub import HfApi

    closed = HfApi(endpoint="http://127.0.0.1:9", token=False)
    with pytest.raises(InspectError, match="cannot be reached") as caught:
        download(closed, "acme/tiny", None, quiet)
    assert len(caught.value.lines().splitlines()) == 2
