"""A page in headless Chromium, driven by the DevTools protocol over a pipe: it needs no package."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--mute-audio",
    "--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip

# Chromium reads from descriptor 3 and writes to 4.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Page:
    """One tab. What a page's scripts throw, and what it cannot load, is collected in ``problems``."""

    def __init__(self, program: str, profile: Path, width: int = 1100, height: int = 900) -> None:
        own_read, its_write = os.pipe()
        its_read, own_write = os.pipe()
        command = [program, f"--user-data-dir={profile}", f"--window-size={width},{height}", *_FLAGS]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(its_read), str(its_write), *command],
            pass_fds=(its_read, its_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(its_read)
        os.close(its_write)
        self._read, self._write, self._unread = own_read, own_write, b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.problems: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._read)
        os.close(self._write)

    def send(self, method: str, seconds: float = 60, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol; returns its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(seconds)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            assert ready, f"Chromium has not answered in {seconds} seconds"
            part = os.read(self._read, 1 << 20)
            assert part, "Chromium has ended"
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        return message

    def open(self, address: str) -> None:
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression: str, seconds: float = 60) -> Any:
        """The value of an expression in the page; of a promise, what it brings."""
        answer = self.send("Runtime.evaluate", seconds, expression=expression, awaitPromise=True, returnByValue=True)
        details = answer.get("exceptionDetails")
        assert not details, f"{expression}: {details}"
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while True:
            answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
            if answer["result"].get("value") is True:
                return
            assert time.monotonic() < end, f"still not so after {seconds} seconds: {expression}; {self.problems}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent"))

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of an element."""
        self._mouse("mousePressed", *self._place(selector, 0.5, 0.5))
        self._mouse("mouseReleased", *self._place(selector, 0.5, 0.5))

    def draw(self, selector: str, points: list[tuple[float, float]]) -> None:
        """With the mouse, from point to point; these are parts of the element's width and height."""
        self._mouse("mousePressed", *self._place(selector, *points[0]))
        for point in points[1:]:
            self._mouse("mouseMoved", *self._place(selector, *point))
        self._mouse("mouseReleased", *self._place(selector, *points[-1]))

    def _mouse(self, kind: str, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def _place(self, selector: str, x: float, y: float) -> tuple[float, float]:
        box = self.evaluate(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{ block: "nearest" }});
            const {{ left, top, width, height }} = element.getBoundingClientRect();
            return [left, top, width, height];
        }})()""")
        return box[0] + x * box[2], box[1] + y * box[3]

    def offline(self) -> None:
        """From now on nothing comes over the network."""
        self.send("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def screenshot(self, path: Path) -> None:
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
