"""How long a page takes from a click to the new picture, and how much it weighs.

    python benchmarks/page.py [--model FILE …]

One prior (deep mean and kernel), the automatic choice for elnino, and model files. In Debian's chromium (`pip install
playwright`) points are added one after the other up to 20, one is moved and removed, and the times of the redraws at
201 places are the page's own. The limits: 50 ms for one prior, 100 ms for the choice, 600 kB.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from metaprior import MetaGP, load
from metaprior.data import load_elnino
from metaprior.report import live_page

POINTS, MORE = 20, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="*", default=[], help="model files")
    tasks = load_elnino()
    models = {
        "elnino, one prior": MetaGP("deep", "deep", progress=False).fit(tasks),
        "elnino, auto": MetaGP(progress=False).fit(tasks),
    }
    models |= {Path(path).name: load(path) for path in parser.parse_args().model}
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium: install Debian's package")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        print(f"{'model':30s} {'kB':>6s} {'kB beside it':>13s} {'median ms':>10s} {'p95 ms':>8s}")
        for name, gp in models.items():
            path = Path(folder) / "page.html"
            path.write_text(live_page(gp.method_, gp.trained_on_, "model.metaprior"))
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(path.as_uri())
            beside = page.evaluate(
                "document.documentElement.outerHTML.length - document.getElementById('model').text.length"
            )
            times = sorted(_clicked(page))
            p95 = times[int(0.95 * len(times))]
            size = path.stat().st_size
            print(f"{name:30s} {size / 1e3:6.0f} {beside / 1e3:13.0f} {times[len(times) // 2]:10.0f} {p95:8.0f}")
            page.close()
        browser.close()


def _clicked(page: Any) -> list[float]:
    """Milliseconds of each redraw."""
    box, chance = page.locator("#canvas").bounding_box(), random.Random(0)
    page.locator("#clear").click()
    page.evaluate("performance.clearMeasures()")
    for k in range(POINTS):
        page.mouse.click(box["x"] + 90 + 38 * k, box["y"] + 150 + 150 * chance.random())
    for k in range(MORE):
        if k % 2:
            page.keyboard.press("Control+z")
        else:
            page.mouse.click(box["x"] + 100 + 300 * chance.random(), box["y"] + 20)
    found: list[float] = page.evaluate("performance.getEntriesByName('redraw').map((one) => one.duration)")
    return found


if __name__ == "__main__":
    main()
