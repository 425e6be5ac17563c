"""Opens a page in a headless Chromium, and tells what is wrong with it.

    python benchmarks/browse.py report.html [--shots FOLDER] [--browser chromium]

On a phone (375 x 812) and on a desk (1280 x 900): errors of scripts and of the page, every address it asks for but its
own, figures without extent, drawings without a line, boxes that reach beyond the page, and the smallest text of a
drawing, in pixels. `--shots` keeps a picture of the whole page for each. The exit code is 1 where anything is wrong.
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

SCREENS = {"phone": (375, 812, True), "desk": (1280, 900, False)}
LEAST = 9.0  # pixels of the smallest text that can be read
LOOK = """(() => {
  const box = e => e.getBoundingClientRect();
  const figures = [...document.querySelectorAll('figure')];
  const marks = f => f.querySelectorAll('svg path, svg polygon, svg rect, svg line').length;
  const texts = [...document.querySelectorAll('svg text')].filter(t => t.textContent.trim());
  return JSON.stringify({
    figures: figures.map(f => [f.querySelector('h3').textContent.trim(), box(f).width, box(f).height, marks(f)]),
    wide: [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll > *') && !e.closest('svg *')
      && box(e).width > 0 && box(e).right > innerWidth + 1)
      .map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 40)),
    smallest: Math.min(99, ...texts.map(t => Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)
      * parseFloat(getComputedStyle(t).fontSize))),
    across: document.documentElement.scrollWidth - innerWidth,
    height: document.documentElement.scrollHeight});
})()"""


class Browser:
    """A Chromium that is spoken to by pipes."""

    def __init__(self, program: str, folder: str) -> None:
        (take, self.give), (self.take, give) = os.pipe(), os.pipe()
        plumbing = f'exec "$0" "$@" 3<&{take} 4>&{give}'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        words = ["bash", "-c", plumbing, program, *flags, "about:blank"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(words, pass_fds=(take, give), stdout=quiet, stderr=quiet)
        self.numbers, self.events, self.rest, self.session = itertools.count(1), [], b"", None  # type: ignore[var-annotated]
        os.close(take), os.close(give)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Asks, and waits for the answer; events that come before it are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params} | (
            {"sessionId": self.session} if self.session else {}
        )
        os.write(self.give, json.dumps(message).encode() + b"\0")
        while (heard := self.hear()).get("id") != number:
            self.events.append(heard)
        if "error" in heard:
            raise RuntimeError(f"{method}: {heard['error']['message']}")
        return dict(heard["result"])

    def hear(self) -> dict[str, Any]:
        """The next message."""
        while b"\0" not in self.rest:
            part = os.read(self.take, 1 << 16)
            if not part:
                raise RuntimeError("the browser ended")
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def wait(self, method: str) -> None:
        """Until an event has come."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.hear())


def look(browser: Browser, address: str, screen: str, shots: Path | None) -> list[str]:
    """What is wrong with a page on a screen."""
    width, height, mobile = SCREENS[screen]
    metrics = {"width": width, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile}
    browser.call("Emulation.setDeviceMetricsOverride", height=height, **metrics)
    browser.events.clear()
    browser.call("Page.navigate", url=address)
    browser.wait("Page.loadEventFired")
    found = json.loads(browser.call("Runtime.evaluate", expression=LOOK)["result"]["value"])
    if shots is not None:
        whole = {"x": 0, "y": 0, "width": width, "height": found["height"], "scale": 1}
        shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=whole)
        (shots / f"{screen}.png").write_bytes(base64.b64decode(shot["data"]))
    print(
        f"{screen}: {len(found['figures'])} figures, {found['height']} pixels high, text from {found['smallest']:.1f}"
    )
    return [f"{screen}: {words}" for words in [*heard(browser.events, address), *seen(found)]]


def heard(events: list[dict[str, Any]], address: str) -> list[str]:
    """Errors that the browser told, and addresses that were asked for."""
    wrong = []
    for event in events:
        name, told = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            wrong.append(f"script error: {told['exceptionDetails']['text']}")
        if name == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            wrong.append(f"{told['entry']['level']}: {told['entry']['text']}")
        if name == "Network.requestWillBeSent" and told["request"]["url"] != address:
            wrong.append(f"asks for {told['request']['url'][:80]}")
    return wrong


def seen(found: dict[str, Any]) -> list[str]:
    """What is wrong with the boxes of a page."""
    wrong = [
        f"no figure to see: {t}" for t, width, height, marks in found["figures"] if min(width, height) < 60 or not marks
    ]
    wrong += [f"reaches beyond the page: {words}" for words in found["wide"]]
    wrong += [f"text of {found['smallest']:.1f} pixels"] if found["smallest"] < LEAST else []
    return wrong + ([f"scrolls sideways by {found['across']} pixels"] if found["across"] > 0 else [])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--shots", type=Path)
    parser.add_argument("--browser", default="chromium")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(flags.browser, folder)
        try:
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
            address = flags.page.resolve().as_uri()
            wrong = [line for screen in SCREENS for line in look(browser, address, screen, flags.shots)]
        finally:
            browser.process.terminate()
            browser.process.wait()
    print("\n".join(wrong) or "nothing wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
