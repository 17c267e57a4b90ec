"""Chromium without a window, driven over a pipe: opens pages, presses keys, clicks, takes screenshots, and keeps what the page asked for."""

import base64
import collections
import json
import os
import pathlib
import shutil
import subprocess
import tempfile


class Browser:
    """One browser with one page. Use it in a `with` block."""

    def __init__(self, width=1400, height=900):
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        assert program, "there is no Chromium here: tools/setup.sh installs it"
        self._home = tempfile.TemporaryDirectory()
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$0" "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self._home.name}", f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self._home.name})
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest, self._session = 0, b"", None
        self.events = collections.deque()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)
        self._process.terminate()
        self._process.wait(timeout=60)
        os.close(self._read)
        try:
            self._home.cleanup()
        except OSError:  # a helper of the browser writes a last file
            shutil.rmtree(self._home.name, ignore_errors=True)

    def _next(self):
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        text, self._rest = self._rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def wait_event(self, method):
        while True:
            for event in list(self.events):
                if event.get("method") == method:
                    self.events.remove(event)
                    return event["params"]
            self.events.append(self._next())

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, path, fragment=""):
        """Opens a file and waits until the page has drawn itself."""
        self.visit(pathlib.Path(path).resolve().as_uri() + fragment)

    def visit(self, url):
        """The same of any address."""
        self.events = collections.deque(e for e in self.events if e.get("method") != "Page.loadEventFired")
        self.call("Page.navigate", url="about:blank")
        self.wait_event("Page.loadEventFired")
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_event("Page.loadEventFired")
        self.settle()

    def settle(self):
        """Waits for two frames: whatever was asked to be drawn is."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def run(self, expression):
        """The value of an expression of JavaScript, awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def click_at(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1 if kind == "mousePressed" else 0, clickCount=1)
        self.settle()

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle()

    def press(self, key, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text if text is not None else (key if len(key) == 1 else ""))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.settle()

    def requests(self):
        """The addresses that the page has asked for besides files, and the faults that the browser has noted."""
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        said = [e["params"] for e in self.events if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]
        return [url for url in asked if not url.startswith("file://")], said

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
