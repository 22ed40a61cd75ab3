"""A real Chromium for pages: opened by its debugging pipe, pointed and clicked like a person does.

On a machine without it a test skips; in continuous integration it never does.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.daemons import PATIENCE_S
from tests.lacking import lacking

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """The browser's path; skips the test where there is none and that is nobody's fault."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        lacking("chromium")
    return found


class Browser:
    """One window of a headless browser."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="lic", dir="/tmp")
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        words = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += ["--remote-debugging-pipe", f"--user-data-dir={self._profile}"]
        words += ["--window-size=1280,900", "about:blank"]
        # The pipe's ends have to be descriptors 3 and 4.
        shell = f'exec "$@" 3<&{theirs} 4>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *words],
            pass_fds=(theirs, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.console: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._from, 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(message["params"]))
        return message

    def open(self, url: str) -> None:
        """Load a page to its end."""
        self._ask("Page.navigate", url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """What a script in the page gives."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point_at(self, selector: str) -> None:
        """Move the mouse onto an element."""
        script = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0];"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self._x, self._y = self.value(script)
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=self._x, y=self._y)

    def click(self, selector: str) -> None:
        """Click an element."""
        self.point_at(selector)
        for kind in ("mousePressed", "mouseReleased"):
            at = {"x": self._x, "y": self._y, "button": "left", "clickCount": 1}
            self._ask("Input.dispatchMouseEvent", type=kind, **at)

    def press(self, key: str) -> None:
        """Press a key, named as pages name it."""
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key)

    def picture(self, path: Path) -> None:
        """A PNG of the window."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._to)  # which ends it
        try:
            self._process.wait(PATIENCE_S / 6)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)
