"""A browser without a window, for the tests of pages that need one."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
OPTIONS += ["--disable-sync", "--no-first-run"]


@pytest.fixture(scope="module")
def browser():
    """One process of Chromium; its profile is new, and goes away with it.

    It ends with its module: while Playwright runs, an event loop does, which other tests must not see.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no browser here: install chromium, or name one in CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield started
        started.close()


class Opened:
    """A page that was opened from disk, and what it asked for, logged and raised."""

    def __init__(self, browser, path, **options):
        self.tab = browser.new_page(
            **{"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce", **options}
        )
        self.requests, self.wrong = [], []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.wrong.append(dialog.message))
        self.tab.on("console", self._logged)
        self.address = path.resolve().as_uri()
        self.tab.goto(self.address)
        self.tab.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)

    def _logged(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def values(self, table, head):
        """What the cells of a column stand for, top down: the number itself, not the digits that are shown."""
        return self.tab.evaluate(
            """([name, head]) => {
                const found = document.querySelector(`table[aria-label="${name}"]`);
                const at = [...found.querySelectorAll("th button")].findIndex((one) => one.textContent === head);
                const cells = [...found.querySelectorAll("tbody tr")].map((row) => row.children[at]);
                const code = (cell) => cell.querySelector("code")?.textContent ?? null;
                return cells.map((cell) => cell.querySelector("[data-value]")?.dataset.value ?? code(cell));
            }""",
            [table, head],
        )

    def until(self, holds):
        """Wait for what a page does after an event: on a busy machine that takes a while."""
        for _ in range(300):
            if holds():
                return
            self.tab.wait_for_timeout(100)
        raise AssertionError("it has not come to hold in half a minute")

    def charts(self):
        """The charts as Bokeh draws them: title, and each glyph's name and columns."""
        return self.tab.evaluate(
            """() => {
                const figures = Bokeh.documents.at(-1).roots();
                const titles = [...document.querySelectorAll("figure.chart strong")].map((one) => one.textContent);
                const plain = (data) => Object.fromEntries(Object.entries(data).map(([key, of]) =>
                    [key, [...of].map((v) => Number.isNaN(v) ? null : v)]));
                return figures.map((figure, i) => ({
                    title: titles[i],
                    range: [figure.x_range.start, figure.x_range.end],
                    glyphs: figure.renderers.map((one) => [one.glyph.type, plain(one.data_source.data)]),
                }));
            }"""
        )


@pytest.fixture
def opened(browser):
    """A function that opens a page; when the test ends, none has asked a network for anything or complained."""
    pages = []

    def open_page(path, **options):
        pages.append(Opened(browser, path, **options))
        return pages[-1]

    yield open_page
    for page in pages:
        page.tab.close()
        assert page.wrong == []
        assert page.requests == [page.address]
