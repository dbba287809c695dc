"""``python -m benchmarks.page``: how long it takes from dragging a slider of the page to a new figure.

Measured in a real browser (Chromium), from the slider's event to the figure on the page: first the estimate that is
shown while somebody drags, then the certified figure that takes its place once they rest. Turn about with an empty
request of the same page to the same server, which the ratios are of. Options: --runs N (15), --json prints one JSON
object on stdout.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from apes.errors import DataError
from benchmarks.timing import Times

_FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage""".split()
_CHROMIUM, _DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
_SHARES = [["0.1", "60"], ["0.5", "30"], ["1", "10"]]
_WAYS = ("s-apes-first", "apes", "one-bit")
_SLIDERS = ("rounds", "users")
# Moves a slider by a step and waits for a figure; milliseconds by the page's own clock, which is not this process'.
_DRAG = """
const [name, step, done] = arguments, slider = document.getElementById(`${name}-slider`);
const epsilon = document.getElementById("epsilon"), began = performance.now();
let about = null;
const watch = new MutationObserver(() => {
  const isAbout = epsilon.textContent.startsWith("≈");
  if (isAbout && about === null) about = performance.now() - began;
  if (isAbout || Number(document.getElementById("headline").dataset.proved) !== window.apes.asked()) return;
  watch.disconnect();
  done([about, performance.now() - began]);
});
watch.observe(document.getElementById("headline"), {subtree: true, childList: true, attributes: true});
slider.value = Number(slider.value) + step;
slider.dispatchEvent(new Event("input"));
"""
_NOTHING = """
const done = arguments[0], began = performance.now();
fetch("health").then((response) => response.text()).then(() => done(performance.now() - began));
"""


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 15
    words = [sys.executable, "-m", "apes", "page", "--port", "0", "--no-open", "--json"]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        if server.stdout is None:
            raise DataError("the server says nothing")
        browser = _browser(Path(folder))
        try:
            found = []
            for entry in _measured(browser, json.loads(server.stdout.readline())["url"], runs):
                found.append(entry)
                if "--json" not in sys.argv:
                    print("\n".join(_told(entry)), flush=True)
        finally:
            browser.quit()
            server.terminate()
    if "--json" in sys.argv:
        print(json.dumps(found))


def _browser(folder: Path) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = _CHROMIUM
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(_DRIVER))
    browser.set_script_timeout(600)
    return browser


def _measured(browser: webdriver.Chrome, url: str, runs: int) -> Iterator[dict[str, Any]]:
    """Seconds by way of reporting, people and slider."""
    for way in _WAYS:
        for users in (25_000, 1_000_000):
            for slider in _SLIDERS:
                setting = {"shares": _SHARES, "way": way, "users": str(users)}
                browser.get("about:blank")
                browser.get(f"{url}#{quote(json.dumps(setting))}")
                # Down from a million, so that there is somewhere to go; what is measured is never kept from before.
                step = -1 if slider == "users" else 1
                times = _drags(browser, slider, step, runs if way != "one-bit" or slider == "rounds" else min(runs, 5))
                yield {"way": way, "users": users, "slider": slider, **times}


def _drags(browser: webdriver.Chrome, slider: str, step: int, runs: int) -> dict[str, list[float]]:
    """Seconds of dragging by a step, and of an empty request, turn about."""
    browser.execute_async_script(_DRAG, slider, step)
    about, certified, nothing = [], [], []
    for _ in range(runs):
        first, last = browser.execute_async_script(_DRAG, slider, step)
        about.append((last if first is None else first) / 1000)
        certified.append(last / 1000)
        nothing.append(browser.execute_async_script(_NOTHING) / 1000)
    return {"estimate": about, "certified": certified, "empty_request": nothing}


def _told(entry: dict[str, Any]) -> list[str]:
    nothing = statistics.median(entry["empty_request"])
    lines = [f"{entry['way']}, {entry['users']:,} people, {entry['slider']} dragged"]
    for name in ("estimate", "certified"):
        ratio = statistics.median(entry[name]) / nothing
        lines.append(f"  {name:9}  {Times(tuple(entry[name]))}; {ratio:.1f} times an empty request")
    return lines


if __name__ == "__main__":
    main()
