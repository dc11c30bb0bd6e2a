"""The page in a browser: clicked through, compared with the Python interface, on every screen.

Run by ``make test-report``, which needs Debian's chromium.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Page, program
from log_files import POSITIONS, VOCABULARY, WORDS, laws
from report_pages import SETTINGS, TEXT, full, logged, report

import multidraft as md
from multidraft.report import Settings, tokens

pytestmark = pytest.mark.skipif(
    program() is None, reason="the browser test was not run: `make test-report` runs it"
)
TAB, ENTER, DOWN, RIGHT = ("Tab", 9), ("Enter", 13, "\r"), ("ArrowDown", 40), ("ArrowRight", 39)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def content(folder) -> dict:
    """Numbers of the report on full logits; its page is exact.html, that of logs vague.html."""
    found, text = report(full(folder))
    (folder / "exact.html").write_text(text, encoding="utf-8")
    (folder / "vague.html").write_text(report(logged(folder), Settings(explored=4))[1], "utf-8")
    return found


@pytest.fixture(scope="module")
def browser(folder):
    name = program()
    assert name is not None
    with Page(name, folder / "profile") as page:
        yield page


@pytest.fixture
def page(browser, folder, content) -> Page:
    browser.events.clear()
    browser.open(folder / "exact.html")
    return browser


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    heat = SETTINGS.sampling.temperature
    logits = (np.log(laws()[name]).reshape(-1, VOCABULARY) for name in ("target", "draft"))
    q, p = (md.normalise(md.transform.probabilities(x.astype(np.float32), heat)) for x in logits)
    return q, p


ROWS = """[...document.querySelectorAll("#rows tr")].map((row) => ({
  token: row.querySelector(".token").textContent,
  values: [...row.querySelectorAll("td[data-value]")].map((cell) => Number(cell.dataset.value)),
  shown: [...row.querySelectorAll("td .cell span:last-child")].map((s) => s.textContent),
  side: row.lastElementChild.textContent,
}))"""


def check_rows(page: Page, q: np.ndarray, p: np.ndarray, n: int) -> None:
    """The explorer's table and sentence are those of the Python interface."""
    solution = md.solve(md.Problem(q, md.IID(p, n)), "interval")
    assert solution.plan is not None
    ids = {tokens.shown(i, TEXT): i for i in range(VOCABULARY)}
    rows = page.run(ROWS)
    assert len(rows) == 14
    for row in rows:
        token = ids[row["token"]]
        wanted = [q[token], p[token], solution.plan.selection[token]]
        np.testing.assert_allclose(row["values"], wanted, rtol=1e-8, atol=1e-15)
        for text, value in zip(row["shown"], wanted, strict=True):
            assert float(text) == pytest.approx(value, rel=0.5 if value < 5e-4 else 1, abs=5.1e-4)
        assert row["side"] == ("H" if solution.certificate.cut[token] else "–")
    sentence = page.run("document.getElementById('cut').textContent")
    assert (
        f"= {float(solution.acceptance):.4f}; one draft: {np.minimum(q, p).sum():.4f}" in sentence
    )
    pieces = page.run("document.querySelectorAll('#partition rect').length")
    assert pieces >= page.run("document.querySelectorAll('#pieces li').length") > 1


def test_clicking_through_every_context_shows_the_interface_s_numbers(page, content, pair):
    q, p = pair
    for n in (2, 4):
        page.click(f"input[name=drafts][value='{n}']")
        for context in content["explorer"]:
            i = context["context"]
            assert context["place"] in page.run("document.getElementById('where').textContent")
            check_rows(page, q[i], p[i], n)
            page.click("#next")
    # One more click than there are contexts is the first one again; back is the last.
    assert page.run("document.getElementById('context').selectedIndex") == 0
    page.click("#previous")
    assert (
        page.run("document.getElementById('context').selectedIndex") == len(content["explorer"]) - 1
    )


def test_text_before_the_context_is_shown(page, content):
    words = [WORDS[token] for token in laws()["tokens"].ravel()]
    for _ in content["explorer"]:
        chosen = page.run("document.getElementById('context').selectedIndex")
        i = content["explorer"][chosen]["context"]
        wanted = "".join(words[i - i % POSITIONS : i])
        text = page.run("document.getElementById('before').textContent")
        assert text == (f"… {wanted}" if wanted else "(not in the trace)")
        page.click("#next")


def test_everything_works_with_the_keyboard(page):
    seen = []
    for _ in range(80):
        page.press(*TAB)
        seen.append(page.run("document.activeElement.id || document.activeElement.className"))
        if seen[-1] == "next":
            break
    assert {"skip", "scroll", "cost", "context", "previous", "next"} <= set(seen)
    page.press(*ENTER)
    assert page.run("document.getElementById('context').selectedIndex") == 1
    page.press(*TAB)
    page.press(*RIGHT)
    assert page.run("document.querySelector('input[name=drafts]:checked').value") == "4"
    page.run("document.getElementById('context').focus()")
    page.press(*DOWN)
    assert page.run("document.getElementById('context').selectedIndex") == 2


def test_another_draft_cost_changes_the_speed_ups(page, content):
    page.run("document.getElementById('cost').value = '0.5'")
    page.run("document.getElementById('cost').dispatchEvent(new Event('input'))")
    for row in content["trees"]:
        key = f"speedup/{row['tree']}/{row['law']}/{row['rule']}"
        text = page.run(f"document.querySelector('[data-key=\"{key}\"]').textContent")
        wanted = row["efficiency"]["low"] / (1 + 0.5 * row["depth"])
        assert float(text.split()[0]) == pytest.approx(wanted, abs=0.0051)


def test_tokens_run_no_code_and_nothing_is_fetched(page, content):
    page.click("#next")
    assert "<script>" in page.run("document.getElementById('rows').textContent")
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.querySelectorAll('#rows script').length") == 0
    requests = [
        e["params"]["request"]["url"]
        for e in page.events
        if e.get("method") == "Network.requestWillBeSent"
    ]
    assert all(url.startswith("file:") for url in requests)
    faults = [
        e
        for e in page.events
        if e.get("method") in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        or e.get("params", {}).get("entry", {}).get("level") == "error"
    ]
    assert faults == []


@pytest.mark.parametrize("name", ["exact.html", "vague.html"])
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_sticks_out_of_a_phone_or_a_screen(browser, folder, content, name, width):
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=width < 500,
    )
    browser.open(folder / name)
    assert browser.run("document.scrollingElement.scrollWidth") <= width
    sizes = browser.run(
        "[...document.querySelectorAll('p, td, th, select, button')]"
        ".map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    heights = browser.run(
        "[...document.querySelectorAll('select, button')].map((e) => e.offsetHeight)"
    )
    assert min(heights) >= 36
    browser.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(browser, folder, content, scheme):
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", features=feature)
    browser.open(folder / "vague.html")
    for selector in ("body", ".soft", ".note", "nav a", "tr.best th, thead th", ".advice p"):
        pair = browser.run(CONTRAST.replace("SELECTOR", selector))
        assert contrast(*pair) >= 4.5, (selector, pair)
    light = luminance(browser.run("getComputedStyle(document.body).backgroundColor")) > 0.5
    assert light == (scheme == "light")
    browser.call("Emulation.setEmulatedMedia", features=[])


CONTRAST = """(() => {
  const element = document.querySelector("SELECTOR");
  const ground = (e) => getComputedStyle(e).backgroundColor;
  let behind = element;
  while (ground(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  return [getComputedStyle(element).color, ground(behind)];
})()"""


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)`` (WCAG 2)."""
    parts = [int(part) / 255 for part in colour.strip("rgba()").split(",")[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
