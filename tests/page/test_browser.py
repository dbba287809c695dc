"""The page in a real browser: dragged, typed into, dropped on, cut off, narrowed, darkened, read aloud."""

import http.server
import json
import shlex
import socket
import subprocess
import sys
import threading

import pytest
from levels import sampled

import apes
from apes.accounting.words import downwards, upwards
from tests.page.browser import Page, open_browser, why_no_browser
from tests.page.test_server import serving

WHY = why_no_browser()
pytestmark = [pytest.mark.process, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
# Few coordinates and rounds, every coordinate reported: proofs of a moment.
SMALL = {"users": "3000", "rounds": "4", "dimensions": "100", "way": "apes", "delta": "1e-6", "cap": "", "target": "2"}


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    found = open_browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def port():
    with serving("--port", "0") as (_, port):
        yield port


@pytest.fixture
def page(driver, port):
    found = Page(driver, port, **SMALL)
    found.size(1280)
    found.media(prefers_color_scheme="light")
    found.driver.get_log("browser")
    yield found
    # What the tests themselves provoke is said by the network, never by a script.
    errors = [line["message"] for line in found.driver.get_log("browser") if line["level"] == "SEVERE"]
    assert [error for error in errors if "Failed to load resource" not in error and "frame" not in error] == []


def certified(shares="0.1:60%,0.5:30%,1:10%", users=3000, dimensions=100, rounds=4, delta=1e-6, kept=None):
    budgets = apes.make_budgets(shares, users, seed=1)
    return apes.certify(budgets, delta=delta, dimensions=dimensions, rounds=rounds, top_b_first=kept).epsilon


def test_it_opens_with_an_answer(page):
    assert page.epsilon() == certified()
    page.ended()
    assert "cannot be below" in page.text("lower")
    assert page.text("meaning")
    assert len(page.driver.find_elements("css selector", "#groups tbody tr")) == 3
    assert "…" not in page.text("groups")
    assert page.find("#rounds-chart path.curve").is_displayed()
    assert page.find("#users-chart path.curve").is_displayed()


def test_what_is_shown_is_proved(page):
    """Of many digits three are shown. A certified figure is rounded up, a lower bound down."""
    script = (
        """return import("./charts.js").then((it) => arguments[0].map((one) => [it.upwards(one), it.downwards(one)]))"""
    )
    values = [0.12301, 0.1, 0.12399, 1.87, 1.8701, 9.994, 9.999, 99.91, 999.9, 1234.2, 0.000123401, 2, 0.995]
    for value, (up, down) in zip(values, page.run(script, values), strict=True):
        assert float(down.replace(",", "")) <= value <= float(up.replace(",", "")), (value, up, down)
        if value < 1000:
            assert (float(up.replace(",", "")), float(down)) == (float(upwards(value, 3)), float(downwards(value, 3)))
    for rounds in (3, 13):
        page.slide("rounds", rounds / 20)
        exact = page.epsilon()
        assert 0 <= float(page.text("epsilon")) - exact <= 0.01 * exact


@pytest.mark.parametrize(
    ("name", "share"), sampled([("rounds", 0.4), ("users", 0.35), ("dimensions", 0.3), ("delta", 0.9)], 2)
)
def test_a_dragged_slider_changes_the_figure_to_what_is_certified(page, name, share):
    before = page.epsilon()
    value = page.slide(name, share)
    assert value != SMALL[name]
    number = float(value)
    assert page.epsilon() == certified(**{name: number if name == "delta" else int(number)}) != before


def test_the_histogram_is_dragged(page):
    from selenium.webdriver import ActionChains

    before = page.epsilon()
    bar = page.find("#histogram [data-bar='2']")
    moves = ActionChains(page.driver, duration=20).move_to_element_with_offset(bar, 0, 40).click_and_hold()
    moves.move_by_offset(0, -20).move_by_offset(0, -20).release().perform()
    shares = [
        float(text.get_attribute("value")) for text in page.driver.find_elements("css selector", "[data-kind=share]")
    ]
    assert sum(shares) == pytest.approx(100)
    assert shares[2] > 10
    assert shares[0] == pytest.approx(2 * shares[1], rel=0.03)
    told = ",".join(f"{budget}:{share:g}%" for budget, share in zip(("0.1", "0.5", "1"), shares, strict=True))
    assert page.epsilon() == certified(told) != before


def test_a_share_is_dragged_and_typed(page):
    page.epsilon()
    text = page.driver.find_elements("css selector", "[data-kind=share]")[0]
    text.clear()
    text.send_keys("20")
    # 20, 30 and 10 in proportion.
    assert page.epsilon() == certified("0.1:33.333333%,0.5:50%,1:16.666667%")
    assert "60 %; they are taken in proportion" in page.text("shares-sum")
    page.run(
        "const s = document.querySelector('#rows input[type=range]'); s.value = 90; s.dispatchEvent(new Event('input'))"
    )
    assert page.epsilon() == certified("0.1:90%,0.5:7.5%,1:2.5%")


def test_budgets_are_added_and_removed(page):
    page.find("#add-row").click()
    page.epsilon()
    page.find("[aria-label='Remove budget 3']").click()
    page.find("[aria-label='Remove budget 1']").click()
    budgets = [text.get_attribute("value") for text in page.driver.find_elements("css selector", "[data-kind=budget]")]
    assert budgets == ["0.5", "1.1"]
    assert page.epsilon() > 0
    assert page.find("#groups tbody").text.splitlines()[0].startswith("0.5")


@pytest.mark.parametrize("way", ["s-apes-first", "one-bit"])
def test_ways_of_reporting(page, way):
    page.epsilon()
    page.find(f"input[value={way}]").click()
    shown = page.epsilon()
    if way == "s-apes-first":
        assert shown == certified(kept=5)
    assert page.find("#norm").is_displayed() == (way == "one-bit")
    assert page.find("#keep").is_displayed() == (way == "s-apes-first")


@pytest.mark.parametrize(
    ("name", "typed", "check"),
    sampled(
        [
            ("rounds", "many", lambda: apes.Terms(rounds="many")),
            ("rounds", "0", lambda: apes.Terms(rounds=0)),
            ("delta", "0.9", lambda: apes.Terms(delta=0.9)),
            ("clip", "-1", lambda: apes.Terms(clip=-1.0)),
            ("users", "", None),
            ("dimensions", "1e99", None),
            ("cap", "<img src=x onerror=alert(1)>", None),
        ],
        2,
    ),
)
def test_nonsense_is_said_beside_the_field_and_the_last_answer_stays(page, name, typed, check):
    before = page.epsilon()
    page.put(name, typed)
    said = page.until(lambda: page.text(f"{name}-error"), "words beside the field")
    if check is not None:
        with pytest.raises(apes.ParameterError) as refused:
            check()
        assert said == str(refused.value)
    assert f"{name} must be" in said
    assert page.find(f"#{name}").get_attribute("aria-invalid") == "true"
    # The last good answer, marked as old.
    assert float(page.run("return document.getElementById('epsilon').dataset.exact")) == before
    assert "old" in page.find("#headline").get_attribute("class").split()
    assert "last setting that could be understood" in page.find("#old").text
    page.put(name, {"clip": "0.1", "cap": "5"}.get(name) or SMALL[name])
    assert page.epsilon() == before
    assert page.text(f"{name}-error") == ""
    assert "old" not in page.find("#headline").get_attribute("class").split()


def test_what_is_typed_key_by_key(page):
    """On the way to 1e3 the field holds 1e, which is no number: the answer to 1 stays, marked as old."""
    page.epsilon()
    page.type("dimensions", "1e")
    page.until(lambda: page.text("dimensions-error"), "words beside the field")
    page.until(
        lambda: page.text("epsilon") and not page.text("epsilon").startswith("≈"), "the proof for one coordinate"
    )
    assert "old" in page.find("#headline").get_attribute("class").split()
    assert float(page.run("return document.getElementById('epsilon').dataset.exact")) == certified(dimensions=1)
    page.find("#dimensions").send_keys("3")
    assert page.epsilon() == certified(dimensions=1000)


def test_a_budget_that_is_none_is_named_by_its_row(page):
    page.epsilon()
    text = page.driver.find_elements("css selector", "[data-kind=budget]")[1]
    text.clear()
    text.send_keys("-3")
    assert page.until(lambda: page.text("shares-error"), "words beside the budgets").startswith(
        "budget of row 2 must be"
    )
    assert text.get_attribute("aria-invalid") == "true"


def test_a_csv_file_good_and_bad(page, tmp_path):
    before = page.epsilon()
    good, bad = tmp_path / "wishes.csv", tmp_path / "bad.csv"
    good.write_text("who,wish\n" + "".join(f"p{number},{0.1 + number % 5 / 10}\n" for number in range(2500)))
    bad.write_text("who,wish\na,lots\n")
    page.find("#file").send_keys(str(bad))
    assert "must be a number, got 'a'" in page.until(lambda: page.text("upload-error"), "what is wrong with the file")
    assert page.epsilon() == before
    page.find("#file").send_keys(str(good))
    page.until(lambda: "got 'p0'" in page.text("upload-error"), "the first column holds names")
    # The column is chosen once the file can be read: here by a file whose first column is the budgets.
    good.write_text("wish,who\n" + "".join(f"{0.1 + number % 5 / 10},{number + 1}\n" for number in range(2500)))
    page.find("#file").send_keys(str(good))
    page.until(lambda: "2,500" in page.text("uploaded-size"), "the file's size")
    spread = ",".join(f"{0.1 + number / 10!r}:20%" for number in range(5))
    assert page.epsilon() == certified(spread, users=2500)
    assert not page.find("#users").is_enabled()
    assert page.text("upload-error") == ""
    page.find("#column").send_keys("who")
    page.until(lambda: page.text("uploaded-name") == "wishes.csv:who", "another column")
    page.find("#drop-file").click()
    page.until(lambda: page.find("#users").is_enabled(), "people can be chosen again")
    assert page.epsilon() == certified(users=2500)


def test_a_file_that_is_dropped(page):
    page.epsilon()
    page.drop("dropped.csv", '"0.2\\n".repeat(2000)')
    page.until(lambda: page.text("uploaded-name") == "dropped.csv", "the file's name")
    assert page.epsilon() == certified("0.2:100%", users=2000)


def test_a_file_of_50_mb_is_refused_and_everything_stays(page):
    before = page.epsilon()
    page.drop("huge.csv", "new Uint8Array(50 * 2 ** 20)")
    assert "huge.csv has 50 MB; at most 32 MB" in page.text("upload-error")
    assert page.epsilon() == before


@pytest.mark.parametrize("kind", ["command", "python", "json"])
def test_what_is_copied_works_and_gives_the_same(page, kind):
    shown = page.epsilon()
    page.ended()
    page.find(f"[data-copy={kind}]").click()
    copied = page.until(lambda: page.text("copy-text"), "what was copied")
    page.until(lambda: page.text("copied"), "that it was copied")
    if kind == "json":
        whole = json.loads(copied)
        assert whole["answer"]["epsilon"] == shown
        assert len(whole["answer"]["groups"]) == 3
        assert all(group["lower"] <= group["epsilon"] <= shown for group in whole["answer"]["groups"])
        assert "published_not_proved" in whole["answer"]
        # The setting is one that can be asked about again.
        script = """const body = JSON.stringify({page: "again", number: 1, setting: arguments[0]});
            const headers = {"Content-Type": "application/json"};
            const response = await fetch("answer", {method: "POST", headers, body});
            const text = await response.text();
            return JSON.parse(text.split("\\n")[1]).epsilon"""
        assert page.run(script, whole["setting"]) == shown
        return
    words = [sys.executable, "-c", copied] if kind == "python" else [sys.executable, "-m", *shlex.split(copied)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert shown == (float(printed) if kind == "python" else json.loads(printed)["certified"]["total"]["epsilon"])


def test_of_two_quick_drags_the_older_answer_is_never_shown(page):
    """The first answer is held back until the second was shown, by a network that heeds no abort.

    The second drag comes once the first answer is on its way.
    """
    page.epsilon()
    page.run(
        """const real = window.fetch;
        window.seen = [];
        window.held = 0;
        window.fetch = async (place, options) => {
          const response = await real(place, {...options, signal: undefined});
          if (place === "answer" && !window.held++) {
            setTimeout(() => to(8));
            await new Promise((done) => (window.release = done));
          }
          return response;
        };
        const epsilon = document.getElementById("epsilon");
        new MutationObserver(() => window.seen.push(epsilon.textContent)).observe(epsilon, {childList: true});
        const slider = document.getElementById("rounds-slider");
        const to = (value) => { slider.value = value; slider.dispatchEvent(new Event("input")); };
        to(170);"""
    )
    page.until(lambda: page.run("return document.getElementById('rounds-slider').value") == "8", "the second drag")
    shown = page.epsilon()
    assert shown == certified(rounds=9)
    page.run("window.seen = []; window.release()")
    page.ended()
    assert page.run("return window.seen") == []
    assert page.epsilon() == shown


def test_while_it_is_dragged_an_estimate_is_shown_and_called_one(page):
    page.epsilon()
    # Each step follows what the one before has shown, as a hand follows what the eye sees.
    page.run(
        """window.seen = [];
        const epsilon = document.getElementById("epsilon");
        const slider = document.getElementById("users-slider");
        let place = 130;
        const step = () => {
          place += 5;
          slider.value = place;
          slider.dispatchEvent(new Event("input"));
        };
        new MutationObserver(() => {
          window.seen.push(epsilon.textContent);
          if (place < 160) setTimeout(step);
        }).observe(epsilon, {childList: true});
        step();"""
    )
    page.until(lambda: page.run("return Number(document.getElementById('users-slider').value)") == 160, "the last step")
    final = page.epsilon()
    seen = page.run("return window.seen")
    assert len(seen) >= 6
    assert [text for text in seen if text.startswith("≈")]
    assert not seen[-1].startswith("≈")
    assert final == certified(users=int(page.find("#users").get_attribute("value")))
    # An estimate is marked as one.
    assert all(text.startswith("≈") or float(text) > 0 for text in seen)


def test_without_a_server_it_says_so_and_goes_on_by_itself(driver):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    with serving("--port", str(number)) as (_, port):
        page = Page(driver, port, **SMALL)
        before = page.epsilon()
        # A file too: a new server knows nothing of it.
        page.drop("kept.csv", '"0.2\\n".repeat(2000)')
        page.until(lambda: page.text("uploaded-name") == "kept.csv", "the file's name")
        page.epsilon()
    page.put("rounds", "6")
    page.until(lambda: page.find("#connection").is_displayed(), "that the server is lost")
    assert "goes on by itself" in page.find("#connection").text
    assert "old" in page.find("#headline").get_attribute("class").split()
    with serving("--port", str(number)):
        page.until(lambda: not page.find("#connection").is_displayed(), "that it is back")
        assert page.epsilon() == certified("0.2:100%", users=2000, rounds=6) != before


@pytest.mark.parametrize("width", sampled([320, 375, 768, 1280], 1))
def test_no_width_needs_scrolling_sideways(page, width):
    page.size(width)
    for way in ("s-apes-first", "apes", "one-bit"):
        page.run("document.querySelector(`input[value=${arguments[0]}]`).click()", way)
        page.epsilon()
        page.ended()
        assert page.run("return document.documentElement.scrollWidth") <= width
    page.find("[data-copy=command]").click()
    page.run(
        "const f = document.getElementById('clip'); f.value = 'x'.repeat(300); f.dispatchEvent(new Event('input'))"
    )
    page.until(lambda: page.text("clip-error"), "words beside the field")
    assert page.run("return document.documentElement.scrollWidth") <= width
    wide = page.run(
        """const apart = ".scroll, pre, svg, .hidden-words";
        return [...document.querySelectorAll("main *")].filter((each) => !each.closest(apart)
             && each.getBoundingClientRect().width > 0 && each.getBoundingClientRect().right > innerWidth + 1)
             .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert wide == []


CONTRAST = """
const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (each) => {
  for (; each; each = each.parentElement) {
    const paint = numbers(getComputedStyle(each).backgroundColor);
    if (paint.length < 4 || paint[3] > 0) return paint;
  }
  return [255, 255, 255];
};
const texts = "h1, h2, h3, p, label, legend, button, td, th, dd, dt, small, output, input, .label";
return [...document.querySelectorAll(texts)]
  .filter((each) => each.textContent.trim() && each.getClientRects().length)
  .filter((each) => !each.closest("[hidden], .old, :disabled"))
  .map((each) => {
    const [a, b] = [light(numbers(getComputedStyle(each).color)), light(behind(each))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), each.outerHTML.slice(0, 90)];
  }).filter(([ratio]) => ratio < 4.5)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(page, scheme):
    page.media(prefers_color_scheme=scheme)
    page.epsilon()
    page.ended()
    paper = page.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(paper) > 600) if scheme == "light" else (sum(paper) < 120)
    assert page.run(CONTRAST) == []


def test_by_keyboard_alone(page):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    before = page.epsilon()
    page.run("document.activeElement.blur(); scrollTo(0, 0)")
    visited = []
    for _ in range(80):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        state = page.run(
            """const now = document.activeElement, style = getComputedStyle(now);
            const name = now.id || now.ariaLabel || now.textContent.slice(0, 30);
            return [now.tagName, name, style.outlineStyle, style.outlineWidth]"""
        )
        if state[0] == "BODY" or (visited and state[1] == visited[0][1]):
            break
        visited.append(state)
        if state[1] == "rounds-slider":
            ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    names = [name for _, name, _, _ in visited]
    assert {"users", "users-slider", "rounds", "add-row", "choose-file", "cap", "target-slider"} <= set(names)
    assert "Copy as JSON" in " ".join(names)
    # Wherever one is, it shows.
    assert all(style == "solid" and width != "0px" for _, name, style, width in visited if name), visited
    assert page.epsilon() == certified(rounds=6) != before


def test_every_control_has_a_name_and_the_answer_is_spoken(page):
    page.epsilon()
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = [node for node in tree if node.get("role", {}).get("value") in ("slider", "textbox", "button", "radio")]
    names = [node.get("name", {}).get("value", "") for node in controls]
    assert len(controls) > 25
    assert all(names)
    sliders = [node for node in controls if node["role"]["value"] == "slider"]
    texts = [{p["name"]: p["value"].get("value") for p in node["properties"]}.get("valuetext") for node in sliders]
    assert all(texts), texts
    page.slide("rounds", 0.3)
    shown = page.epsilon()
    spoken = page.until(
        lambda: upwards(shown, 3)[:3] in page.text("announcement") and page.text("announcement"), "spoken"
    )
    assert spoken.startswith("Epsilon")
    assert page.find("#announcement").get_attribute("role") == "status"


def test_nothing_comes_from_any_network(page):
    page.epsilon()
    page.ended()
    loaded = page.run("return performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)")
    assert set(loaded) == {f"http://127.0.0.1:{page.port}"}


def test_a_setting_is_kept_when_the_page_is_loaded_again(page):
    page.put("rounds", "7")
    before = page.epsilon()
    page.driver.refresh()
    assert page.find("#rounds").get_attribute("value") == "7"
    assert page.epsilon() == before == certified(rounds=7)


def test_an_address_that_was_meddled_with_is_no_harm(page):
    for hash_ in ("#%%%", "#null", "#[]", "#{}", '#{"shares":5}', '#{"way":"<b>","shares":[["1","1"]]}'):
        page.open(hash_)
        page.until(lambda: page.text("meaning") or page.text("way-error"), "an answer or words")
        assert page.find("#users").get_attribute("value")


def test_a_page_of_a_strangers_gets_nothing(page, driver, tmp_path):
    """Another page in the same browser asks, in all ways that pages have, and puts ours in a frame."""
    served = b"<!doctype html><title>stranger</title><body></body>"

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(served)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        driver.get(f"http://127.0.0.1:{server.server_address[1]}/")
        script = """
            const headers = {"Content-Type": "application/json"};
            const ours = arguments[0], tries = {
              plain: () => fetch(ours + "/health"),
              post: () => fetch(ours + "/answer", {method: "POST", body: "{}", headers}),
              file: () => fetch(ours + "/budgets?name=x", {method: "POST", body: "0.5"}),
              script: () => import(ours + "/page.js"),
            };
            const got = {};
            for (const [name, ask] of Object.entries(tries)) got[name] = await ask().then(() => "got", () => "refused");
            // Without reading: is it even answered?
            const blind = await fetch(ours + "/health", {mode: "no-cors"}).then(() => "sent", () => "refused");
            const frame = document.createElement("iframe");
            frame.src = ours + "/";
            document.body.append(frame);
            await new Promise((done) => { frame.onload = done; setTimeout(done, 3000); });
            let inside = "closed";
            try { inside = frame.contentDocument ? frame.contentDocument.title : "closed"; } catch { }
            return [got, blind, inside, frames.length];"""
        got, _, inside, _ = driver.execute_script(script, f"http://127.0.0.1:{page.port}")
        assert got == dict.fromkeys(("plain", "post", "file", "script"), "refused")
        assert "private" not in inside
    finally:
        server.shutdown()
        server.server_close()
        driver.get_log("browser")


def test_the_advisers_choice_is_put_into_the_fields(page):
    page.epsilon()
    page.find("#advise").click()
    best = page.until(lambda: page.driver.find_elements("css selector", ".way.best"), "advice")[0]
    promised = float(best.find_element("css selector", "[data-epsilon]").get_attribute("data-epsilon"))
    assert promised <= 2
    assert "apes train" in best.find_element("css selector", "pre").text
    best.find_element("css selector", "button").click()
    assert page.epsilon() == promised
    assert "Ask again" in page.text("advice-state")
    page.put("target", "none")
    page.find("#advise").click()
    assert page.until(lambda: page.text("target-error"), "words beside the target").startswith("target_epsilon must be")


def test_an_expected_accuracy_comes_first(page):
    page.put("rounds", "20")
    page.epsilon()
    figures = page.driver.find_elements("css selector", ".figures .figure output")
    assert [figure.get_attribute("id") for figure in figures] == ["accuracy", "epsilon", "noise"]
    assert page.text("accuracy").endswith(" %")
    assert "public" in page.text("accuracy-basis")
    page.put("clip", "0.3")
    page.until(lambda: "not measured" in page.text("accuracy-note"), "that nothing was measured")
