"""Test settings: one thread per worker (two workers share two cores), repeatable property tests, where data is."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile(
    "metaprior", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("metaprior")

NEEDS_DATA = "needs_data"
NEEDS_BROWSER = "needs_browser"
NEEDED = {"data_folder": NEEDS_DATA, "browser": NEEDS_BROWSER}
WANTED = {"data": "data", "browser": "chromium"}


@pytest.fixture(scope="session")
def data_folder():
    """The folder with the real datasets; a test that needs it is skipped where there is none."""
    named = os.environ.get("METAPRIOR_DATA")
    places = [Path(named)] if named else []
    places.append(Path(__file__).resolve().parents[2] / "shared" / "data")
    for place in places:
        if place.is_dir():
            return place
    pytest.skip(f"no data: {' and '.join(map(str, places))} not found; set METAPRIOR_DATA")


@pytest.fixture(scope="session")
def browser():
    """Debian's chromium; without it a test is skipped, unless the environment says METAPRIOR_BROWSER=required."""
    found = shutil.which("chromium")
    if found is None:
        assert os.environ.get("METAPRIOR_BROWSER") != "required", "no chromium to run the tests of pages in"
        pytest.skip("no chromium: install Debian's package to run the tests of pages")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::metaprior.MetapriorWarning")  # notes on the data of a test
    config.addinivalue_line("markers", f"{NEEDS_DATA}: reads the real datasets (set by the fixture data_folder)")
    config.addinivalue_line("markers", f"{NEEDS_BROWSER}: opens a page (set by the fixture browser)")


def pytest_collection_modifyitems(items):
    for item in items:
        for fixture, marker in NEEDED.items():
            if fixture in item.fixturenames:
                item.add_marker(marker)


def pytest_terminal_summary(terminalreporter):
    """Say how many tests saw real data or a browser. The reports carry the marker: it holds for parallel runs too."""
    every = [report for some in terminalreporter.stats.values() for report in some]
    for marker, what in ((NEEDS_DATA, "data"), (NEEDS_BROWSER, "browser")):
        reports = [one for one in every if isinstance(one, pytest.TestReport) and marker in one.keywords]
        ran = sum(report.when == "call" for report in reports)
        skipped = sum(report.when == "setup" and report.skipped for report in reports)
        if reports:
            terminalreporter.write_line(f"{what} tests: {ran} ran, {skipped} skipped for want of {WANTED[what]}")
