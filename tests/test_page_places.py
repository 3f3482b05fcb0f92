"""The page with a finger, with keys and in the units of its table: dates, times of day, whole numbers, uneven ends."""

import re

import numpy as np
import pandas as pd
import pytest

from metaprior import MetaGP
from tests.test_page import QUICK, known, opened


def of_days(days, whole=False):
    """A model of ten tasks that were measured at these times."""
    random = np.random.default_rng(0)
    rows = [
        {"plot": i, "when": day, "eggs": round(5 + own) if whole else 5 + own + 0.1 * random.normal()}
        for i, own in enumerate(3 * random.normal(size=10))
        for day in days
    ]
    support = {"support": (0, None), "integer": True} if whole else {}
    table = pd.DataFrame(rows)
    table["eggs"] = table["eggs"].clip(lower=0) if whole else table["eggs"]
    return MetaGP("constant", "matern", **QUICK).fit(table, task="plot", x="when", y="eggs", **support)


TIMES = {
    "days": (pd.date_range("2024-01-01", periods=12, freq="15D"), r"\d{4}-\d\d-\d\d"),
    "a month": (pd.date_range("2024-01-01", periods=30, freq="1D"), r"\d{4}-\d\d-\d\d"),
    "hours": (pd.date_range("2024-01-01 06:10", periods=8, freq="67min"), r"\d{4}-\d\d-\d\dT\d\d:\d\d"),
    "seconds": (pd.date_range("2024-01-01 06:10:03", periods=8, freq="7s"), r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"),
    "times of day": ([f"{hour:02d}:30" for hour in range(6, 22)], r"\d\d:\d\d"),
    "numbers": (np.linspace(0.069181, 23.908922, 9), r"\d+(\.\d{1,3})?"),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_places_are_written_as_a_person_would_and_lie_within_the_range(times, browser):
    page = opened(browser, of_days(times[0]))
    written = [x for x, _ in known(page)] + page.locator("#at").input_value().split(", ")
    assert len(set(written)) == 5
    assert all(re.fullmatch(times[1], text) for text in written), written
    page.locator(".point").last.focus()
    for _ in range(10):
        page.keyboard.press("Shift+ArrowRight")
    assert page.evaluate("metaprior.page.state.points[2].x[0] / metaprior.page.plot.view.x[1]") == pytest.approx(1)
    assert page.locator("#notes").inner_text() == ""
    page.close()


def test_a_place_too_far_to_compute_with_is_told(browser):
    page = opened(browser, of_days(TIMES["numbers"][0]))
    page.locator("#at").fill("3, 1e200")
    assert page.locator("#expected tbody tr").count() == 0
    assert page.locator("#at-wrong").inner_text() == "when: 1e+200 is too far away."
    page.close()


def test_months_begin_on_the_axis(browser):
    page = opened(browser, of_days(TIMES["days"][0]))
    shown = "metaprior.page.plot.across(document.getElementById('canvas').getContext('2d'), 800, 'date').places"
    months = [np.datetime64(int(day), "D") for day in page.evaluate(shown)]
    assert [str(day) for day in months] == [f"2024-0{month}-01" for month in range(1, 7)]
    page.close()


def test_arrows_move_by_a_whole_number_and_a_whole_day(browser):
    page = opened(browser, of_days(TIMES["a month"][0], whole=True))
    (day, eggs), *_ = known(page)
    page.locator(".point").first.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    later = str(np.datetime64(day) + 1)
    assert known(page)[0] == (later, str(int(eggs) + 1))
    page.close()


def test_a_finger_moves_a_point_and_two_taps_remove_it(browser):
    page = opened(browser, of_days(TIMES["numbers"][0]), viewport={"width": 390, "height": 844}, has_touch=True)
    touch = page.context.new_cdp_session(page)
    assert page.locator(".key .nine").bounding_box()["y"] < 844  # what the bands mean is seen at once
    before = known(page)
    box = page.locator(".point").first.bounding_box()
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def put(kind, *place):
        points = [{"x": place[0], "y": place[1]}] if place else []
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def drag(end):
        put("touchStart", *at)
        for k in range(1, 6):
            put("touchMove", at[0] + 6 * k, at[1] - 8 * k)
        page.wait_for_function("metaprior.page.frame === null")
        put(end)

    drag("touchCancel")  # a call came in: nothing has moved
    page.wait_for_function("!metaprior.page.dragged")
    assert known(page) == before
    assert page.evaluate("metaprior.page.state.points[0].x[0]") == float(before[0][0])
    drag("touchEnd")
    page.wait_for_function("!metaprior.page.dragged")
    moved = known(page)
    assert float(moved[0][0]) > float(before[0][0])
    assert float(moved[0][1]) > float(before[0][1])
    assert moved[1:] == before[1:]
    rest = "k => k.dispatchEvent(new PointerEvent('contextmenu', { pointerType: 'touch', cancelable: true }))"
    page.locator(".point").nth(1).evaluate(rest)
    assert known(page) == moved
    for _ in range(2):
        page.locator(".point").nth(1).tap()
    assert known(page) == [moved[0], moved[2]]
    page.close()
