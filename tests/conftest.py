"""Test settings: one thread per worker (two workers share two cores), repeatable property tests, where data is."""

import os
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


def pytest_configure(config):
    config.addinivalue_line("markers", f"{NEEDS_DATA}: reads the real datasets (set by the fixture data_folder)")


def pytest_collection_modifyitems(items):
    for item in items:
        if "data_folder" in item.fixturenames:
            item.add_marker(NEEDS_DATA)


def pytest_terminal_summary(terminalreporter):
    """Say how many tests saw real data. The reports carry the marker, so it holds for parallel runs as well."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    reports = [report for report in reports if isinstance(report, pytest.TestReport) and NEEDS_DATA in report.keywords]
    ran = sum(report.when == "call" for report in reports)
    skipped = sum(report.when == "setup" and report.skipped for report in reports)
    if reports:
        terminalreporter.write_line(f"data tests: {ran} ran, {skipped} skipped for want of data")
