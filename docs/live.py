"""Make the page of elnino that the README links to, and the picture of it.

make docs

Without chromium the picture stays as it is.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from metaprior import MetaGP
from metaprior.data import load_elnino
from metaprior.report import write_live_page

HERE = Path(__file__).parent
KNOWN = [([1.0], [24.2]), ([2.0], [25.9]), ([3.0], [26.1])]
"""The README's new year, from January to March."""


def main() -> None:
    gp = MetaGP(progress=False).fit(load_elnino())
    page = HERE / "elnino.html"
    write_live_page(gp.method_, gp.trained_on_, "elnino.metaprior", page, KNOWN)
    chromium = shutil.which("chromium")
    if chromium is None:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1240, "height": 780})
        shown.goto(page.resolve().as_uri())
        shown.screenshot(path=HERE / "figures" / "page.png")
        browser.close()


if __name__ == "__main__":
    main()
