"""Opens a page in a headless Chromium, and tells what is wrong with it.

    python -m benchmarks browse report.html [--shots FOLDER]

On a phone (375 x 812), by day and in the dark, and on a desk (1280 x 900): errors, every address it asks for but its
own, figures without extent or lines, boxes that reach beyond the page, and text in drawings that is too small.
`--shots` keeps a picture of the whole page for each. Takes `chromium` on the path; exit code 1 if anything is wrong.
"""

import argparse
import base64
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCREENS = {"phone": (375, 812, "light"), "dark": (375, 812, "dark"), "desk": (1280, 900, "light")}
LEAST = 9.0  # pixels of the smallest text that can be read
LOOK = """(() => {
  const box = e => e.getBoundingClientRect(), all = what => [...document.querySelectorAll(what)];
  const marks = f => f.querySelectorAll('svg path, svg polygon, svg rect, svg line').length;
  const level = all('svg text').filter(t => t.textContent.trim() && t.getScreenCTM().b === 0);
  const beyond = e => !e.closest('.scroll *, svg *') && box(e).right > innerWidth + 1;
  const small = t => t.getScreenCTM().a * parseFloat(getComputedStyle(t).fontSize) < LEAST;
  const few = (words, found) => found.map(e => words + e.textContent.trim().slice(0, 60));
  return JSON.stringify([document.documentElement.scrollHeight, all('figure').length, [
    ...few('nothing to see: ', all('figure').filter(f => Math.min(box(f).width, box(f).height) < 60 || !marks(f))),
    ...few('too wide: ', all('body *').filter(beyond)), ...few('too small: ', level.filter(small)),
    ...(document.documentElement.scrollWidth > innerWidth ? ['scrolls sideways'] : [])]]);
})()""".replace("LEAST", str(LEAST))


class Browser:
    """A Chromium that is spoken to by two pipes, JSON between zero bytes."""

    def __init__(self, program: str, folder: str) -> None:
        (take, self.give), (self.take, give) = os.pipe(), os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        words = ["sh", "-c", f'exec "$0" "$@" 3<&{take} 4>&{give}', program, *flags]
        self.process = subprocess.Popen(words, pass_fds=(take, give), stderr=subprocess.DEVNULL)
        self.numbers, self.rest, self.events, self.session = itertools.count(1), b"", [], {}
        os.close(take), os.close(give)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Asks, and waits for the answer; events that come before it are kept."""
        asked = {"id": next(self.numbers), "method": method, "params": params, **self.session}
        os.write(self.give, json.dumps(asked).encode() + b"\0")
        while (message := self.hear()).get("id") != asked["id"]:
            self.events.append(message)
        return dict(message["result"])

    def hear(self) -> dict[str, Any]:
        """The next message."""
        while b"\0" not in self.rest:
            part = os.read(self.take, 1 << 16)
            self.rest += part or sys.exit("the browser ended")
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))


def look(browser: Browser, address: str, screen: str, shots: Path | None) -> list[str]:
    """What is wrong with a page on a screen."""
    (width, height, scheme), phone = SCREENS[screen], screen != "desk"
    metrics = {"width": width, "height": height, "mobile": phone, "deviceScaleFactor": 1 + phone}
    browser.call("Emulation.setDeviceMetricsOverride", **metrics)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.events.clear()
    browser.call("Page.navigate", url=address)
    while not any(event.get("method") == "Page.loadEventFired" for event in browser.events):
        browser.events.append(browser.hear())
    height, figures, wrong = json.loads(browser.call("Runtime.evaluate", expression=LOOK)["result"]["value"])
    if shots is not None:
        whole = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=whole)
        (shots / f"{screen}.png").write_bytes(base64.b64decode(shot["data"]))
    told = [(event.get("method"), event.get("params", {})) for event in browser.events]
    wrong += [str(params)[:300] for name, params in told if name in ("Runtime.exceptionThrown", "Log.entryAdded")]
    asked = [params["request"]["url"] for name, params in told if name == "Network.requestWillBeSent"]
    wrong += [f"asks for {url[:80]}" for url in asked if url != address]
    return [f"{screen}: {figures} figures, {height} pixels high", *(f"{screen}: WRONG, {words}" for words in wrong)]


parser = argparse.ArgumentParser()
parser.add_argument("page", type=Path), parser.add_argument("--shots", type=Path)
flags = parser.parse_args()
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    browser = Browser("chromium", folder)
    page = browser.call("Target.createTarget", url="about:blank")["targetId"]
    browser.session = {"sessionId": browser.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]}
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.call(f"{domain}.enable")
    lines = [line for name in SCREENS for line in look(browser, flags.page.resolve().as_uri(), name, flags.shots)]
    browser.process.terminate(), browser.process.wait()
print("\n".join(lines))
sys.exit(any("WRONG" in line for line in lines))
