"""A real browser for tests and for the benchmark: Chromium, driven by Selenium; the page as somebody uses it."""

import json
import shutil
import time
from pathlib import Path
from urllib.parse import quote

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage""".split()
# Only a page that hangs takes so long, also on a busy machine.
PATIENCE = 600.0


def why_no_browser():
    """Why there is no browser to drive; None if there is one."""
    if CHROMIUM is None or DRIVER is None:
        return "no chromium with its chromedriver is here: apt-get install chromium chromium-driver"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed: pip install selenium"
    return None


def open_browser(folder: Path):
    """A new browser with a profile of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder}", "--window-size=1280,1400"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


class Page:
    """The page in a browser, by what can be seen and done there."""

    def __init__(self, driver, port, **fields):
        self.driver, self.port = driver, port
        shares = [["0.1", "60"], ["0.5", "30"], ["1", "10"]]
        self.open(f"#{quote(json.dumps({'shares': shares, **fields}))}")

    def open(self, place=""):
        self.driver.get("about:blank")
        self.driver.get(f"http://127.0.0.1:{self.port}/{place}")

    def size(self, width, height=1400):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def media(self, **features):
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, name):
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def until(self, condition, what):
        """Wait for something to be so; what it is about is said if it never is."""
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < end, f"never: {what}; {self.text('headline')!r}"
            time.sleep(0.1)
        return found

    def epsilon(self):
        """The figure that is certified for what the fields say now, once it is there."""
        script = """
            const figure = document.getElementById("epsilon"), headline = document.getElementById("headline");
            const isNow = Number(headline.dataset.proved) === window.apes.asked();
            const isProved = isNow && !headline.classList.contains("old") && figure.dataset.exact !== undefined;
            return isProved ? figure.dataset.exact : null"""
        return float(self.until(lambda: self.run(script), "a certified figure"))

    def ended(self):
        """Everything there is to this answer has come."""
        script = 'return Number(document.getElementById("headline").dataset.ended) === window.apes.asked()'
        self.until(lambda: self.run(script), "the end of an answer")

    def type(self, name, text):
        """Key by key, in place of what was there."""
        from selenium.webdriver.common.keys import Keys

        self.find(f"#{name}").send_keys(Keys.CONTROL, "a")
        self.find(f"#{name}").send_keys(text)

    def put(self, name, text):
        """All at once, as pasted."""
        script = "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
        self.run(script + "field.dispatchEvent(new Event('input'))", name, text)

    def drop(self, name, content):
        """Drop a file on the budgets; ``content`` is JavaScript."""
        self.run(
            f"""const data = new DataTransfer();
            data.items.add(new File([{content}], arguments[0], {{type: "text/csv"}}));
            const drop = new DragEvent("drop", {{dataTransfer: data, bubbles: true}});
            document.querySelector("[data-field=shares]").dispatchEvent(drop)""",
            name,
        )

    def slide(self, name, share):
        """Drag a slider's thumb, with the pointer, to a share of its length."""
        from selenium.webdriver import ActionChains

        slider = self.find(f"#{name}-slider")
        self.run("arguments[0].scrollIntoView({block: 'center'})", slider)
        low, high, now = (float(slider.get_attribute(name)) for name in ("min", "max", "value"))
        width = slider.size["width"] - 16
        place = lambda part: round((part - 0.5) * width)  # noqa: E731
        start = place((now - low) / (high - low))
        moves = ActionChains(self.driver, duration=20).move_to_element_with_offset(slider, start, 0).click_and_hold()
        for step in range(1, 6):
            there = place((now - low) / (high - low) + (share - (now - low) / (high - low)) * step / 5)
            moves.move_to_element_with_offset(slider, there, 0)
        moves.release().perform()
        return self.find(f"#{name}").get_attribute("value")
