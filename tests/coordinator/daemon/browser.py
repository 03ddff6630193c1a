"""A headless Chromium, driven over the WebDriver protocol. Every call has a deadline; `close` leaves nothing behind."""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

CALL_S = 120  # of one call: a loaded machine starts a browser slowly
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
         "--no-default-browser-check", "--force-color-profile=srgb", "--hide-scrollbars")


def missing():
    """Why there is no browser here; empty: there is one."""
    for names in (("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)):
        if not any(shutil.which(name) for name in names):
            return f"{skips.NOT_INSTALLED}{names[0]}"
    return ""


class Browser:
    def __init__(self, width=1280, height=900):
        self.folder = tempfile.mkdtemp(prefix="tb_", dir="/tmp")
        self.log = f"{self.folder}/driver.log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=log, stderr=log, start_new_session=True,
                                           stdin=subprocess.DEVNULL, env={**os.environ, "HOME": self.folder})
        self.session = ""
        try:
            self.base = f"http://127.0.0.1:{self._port()}"
            program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
            arguments = [*FLAGS, f"--user-data-dir={self.folder}/profile", f"--window-size={width},{height}"]
            chrome = {"binary": program, "args": arguments}
            wanted = {"browserName": "chrome", "goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
            made = self._new_session(wanted)
            self.session = f"/session/{made['sessionId']}"
            self._call("POST", f"{self.session}/timeouts", {"pageLoad": CALL_S * 1000, "script": CALL_S * 1000})
        except BaseException:
            self.close()
            raise

    def _new_session(self, wanted):
        """On a busy machine chromedriver gives a browser up that is a minute in starting; it is no dashboard's fault."""
        for last in (False, True):
            try:
                return self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            except AssertionError as error:
                if last or "chrome not reachable" not in str(error):
                    raise
                shutil.rmtree(f"{self.folder}/profile", ignore_errors=True)
        raise AssertionError("not reached")

    def _port(self):
        end = time.monotonic() + CALL_S
        while time.monotonic() < end:
            with open(self.log, encoding="utf-8") as log:
                found = re.search(r"started successfully on port (\d+)", log.read())
            if found:
                return int(found[1])
            if self.driver.poll() is not None:
                break
            time.sleep(0.05)
        with open(self.log, encoding="utf-8") as log:
            raise AssertionError(f"chromedriver has not started:\n{log.read()}")

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        # Not by way of a proxy that the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=CALL_S) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode(errors='replace')[:2000]}") from error

    def close(self):
        """May be called again."""
        if self.driver.returncode is not None:
            return
        try:
            if self.session:
                self._call("DELETE", self.session)
        except (AssertionError, OSError):
            pass
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.driver.wait(CALL_S)
        for _ in range(50):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not os.path.exists(self.folder):
                return
            time.sleep(0.1)

    def open(self, url):
        self._call("POST", f"{self.session}/url", {"url": url})

    def resize(self, width, height):
        self._call("POST", f"{self.session}/window/rect", {"width": width, "height": height})

    def script(self, text, *arguments):
        """What the function body returns."""
        return self._call("POST", f"{self.session}/execute/sync", {"script": text, "args": list(arguments)})

    def text(self, selector):
        """Of the first element that fits; empty: there is none."""
        return self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def count(self, selector):
        return self.script("return document.querySelectorAll(arguments[0]).length", selector)

    def click(self, selector):
        """As by a mouse. An element that is hidden, covered, or drawn anew just then is tried again for a while."""
        end = time.monotonic() + CALL_S
        while True:
            try:
                found = self._call("POST", f"{self.session}/element", {"using": "css selector", "value": selector})
                self._call("POST", f"{self.session}/element/{found[ELEMENT]}/click", {})
                return
            except AssertionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def _point(self, selector, share):
        """In the middle of an element's height, at a share of its width."""
        return [round(value) for value in self.script(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const box = e.getBoundingClientRect();"
            "return [box.left + arguments[1] * box.width, box.top + box.height / 2]", selector, share)]

    def _act(self, *steps):
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": list(steps)}
        self._call("POST", f"{self.session}/actions", {"actions": [mouse]})

    @staticmethod
    def _move(point, duration=0):
        return {"type": "pointerMove", "duration": duration, "x": point[0], "y": point[1]}

    def drag(self, selector, begin, end):
        """By the mouse from one share of an element's width to another."""
        self._act(self._move(self._point(selector, begin)), {"type": "pointerDown", "button": 0},
                  self._move(self._point(selector, end), 200), {"type": "pointerUp", "button": 0})

    def double_click(self, selector):
        click = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._act(self._move(self._point(selector, 0.5)), *click, *click)

    def complaints(self):
        """What the pages have logged as errors since the last call; answers that were errors are no faults of a page."""
        logged = self._call("POST", f"{self.session}/se/log", {"type": "browser"})
        return [line["message"] for line in logged
                if line["level"] == "SEVERE" and "Failed to load resource" not in line["message"]]

    def screenshot(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._call("GET", f"{self.session}/screenshot")))
