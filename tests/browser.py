"""A headless Chromium spoken to directly: open pages, run scripts, collect what goes wrong.

The DevTools protocol over one websocket is all that the tests need, so that no browser driver has
to match the version of the installed Chromium.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import websocket

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
]


def find_chromium() -> str | None:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One tab of a headless Chromium with an empty profile."""

    def __init__(self, executable: str, *, patience: float = 60) -> None:
        """Start it; a call that takes longer than `patience`, in seconds, fails."""
        self._profile = tempfile.mkdtemp(prefix="aim-browser-")
        self._process = subprocess.Popen(
            [executable, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file = Path(self._profile) / "DevToolsActivePort"
        deadline = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().count("\n")):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("Chromium did not start")
            time.sleep(0.05)
        port, path = port_file.read_text().split("\n")[:2]
        self._socket = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=patience)
        self._number = 0
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        # The page has the keyboard, as the front window of a desktop has.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(timeout=30)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._events.append(answer)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._call(method, self._session, **params)

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        # The page hears of its new size some time later, and what watches sizes a frame after that.
        feature = "device-width" if phone else "width"
        self.wait_for(f"matchMedia('({feature}: {width}px)').matches")
        for _ in range(2):
            self.evaluate("new Promise(done => requestAnimationFrame(done))", wait=True)

    def prefer_dark(self, dark: bool) -> None:
        value = "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": value}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, url: str) -> list[dict[str, Any]]:
        """Load a page, wait until its mathematics is set, and return all events."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        # A page that only leads to another one is on its way.
        self.wait_for(
            "location.href !== 'about:blank' && document.readyState === 'complete' && "
            "!document.querySelector('meta[http-equiv=refresh i]') && (!window.MathJax || "
            "!document.querySelector('script[src*=mathjax]') || "
            "(MathJax.startup && MathJax.startup.promise !== undefined))",
            seconds=60,
        )
        self.evaluate(
            "window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => true) : true",
            wait=True,
        )
        time.sleep(0.1)
        return self.events()

    def events(self) -> list[dict[str, Any]]:
        """Everything that happened on the page since it was opened, as far as it was heard of."""
        self.evaluate("1")
        return list(self._events)

    def evaluate(self, script: str, *, wait: bool = False) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=wait, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def centre(self, selector: str) -> tuple[float, float]:
        """Middle of the first visible element that matches."""
        script = f"""(() => {{
          const box = [...document.querySelectorAll({selector!r})].find(
            (each) => each.checkVisibility() && each.getClientRects().length);
          if (!box) return null;
          box.scrollIntoView({{block: "center", behavior: "instant"}});
          const at = box.getClientRects()[0];
          return [at.left + at.width / 2, at.top + at.height / 2];
        }})()"""
        place = self.evaluate(script)
        if place is None:
            raise LookupError(f"nothing visible matches {selector}")
        return place[0], place[1]

    def tap(self, selector: str) -> None:
        """A finger on the middle of an element; what lies over it gets the tap, as in life."""
        x, y = self.centre(selector)
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.call("Emulation.setTouchEmulationEnabled", enabled=False)

    def click(self, selector: str) -> None:
        x, y = self.centre(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        codes = {"Escape": 27, "Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **(text if kind == "keyDown" else {}),
            )

    def wait_for(self, script: str, *, seconds: float = 20) -> None:
        """Wait until a condition holds in the page; a page that is being replaced does not yet."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if self.evaluate(script):
                    return
            except RuntimeError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {script}")
            time.sleep(0.05)

    def pdf(self) -> bytes:
        """The page as it prints on A4."""
        answer = self.call(
            "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False
        )
        return base64.b64decode(answer["data"])

    def emulate_print(self, on: bool) -> None:
        self.call("Emulation.setEmulatedMedia", media="print" if on else "")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
