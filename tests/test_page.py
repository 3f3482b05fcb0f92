"""The page as a person uses it, in a real browser: click, drag, type, paste, undo, with a mouse, a finger or keys."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import PeriodicKernel

from metaprior import MetaGP, Tasks, load
from metaprior.data import embedded_table
from metaprior.errors import OptionError
from metaprior.priors import KERNELS
from metaprior.priors.kernels import Scaled
from metaprior.report import live_page, write_live_page
from metaprior.report.live import page as live
from tests.test_tool import refused, run

QUICK = {"max_epochs": 30, "progress": False}
WIDE = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model of the sea's temperature, and its page."""
    folder = tmp_path_factory.mktemp("page")
    gp = MetaGP(rungs=["fpca", "shared gp"], progress=False)
    gp.fit(embedded_table("elnino"), task="year", x="month", y="temperature").save(folder / "sea.metaprior")
    write_live_page(gp.method_, gp.trained_on_, "sea.metaprior", folder / "sea.html")
    return folder


@pytest.fixture
def sea(browser, home):
    page = browser.new_page(**WIDE)
    page.goto((home / "sea.html").as_uri())
    yield page
    page.close()


def opened(browser, gp, **options):
    page = browser.new_page(**WIDE | options)
    page.set_content(live_page(gp.method_, gp.trained_on_, "model.metaprior"))
    return page


def known(page):
    """The points as the table has them."""
    rows = page.locator("#known tbody tr").all()
    return [tuple(cell.input_value() for cell in row.locator("input").all()) for row in rows][:-1]


def expected(page):
    """What the page says at the places that it was asked for."""
    rows = page.locator("#expected tbody tr").all()
    return [[cell.get_attribute("title") for cell in row.locator("td").all()][1:] for row in rows]


def click_at(page, x, y):
    """Click where a point of these values lies."""
    left, top = page.evaluate("([x, y]) => metaprior.page.plot.place(x, y)", [x, y])
    box = page.locator("#canvas").bounding_box()
    page.mouse.click(box["x"] + left, box["y"] + top)


def test_a_click_adds_a_point_and_the_numbers_are_those_of_python(sea, home):
    sea.locator("#clear").click()
    click_at(sea, 3, 27)
    click_at(sea, 6, 23.5)
    points = [(float(x), float(y)) for x, y in known(sea)]
    assert points == [(pytest.approx(3, abs=0.02), pytest.approx(27, abs=0.03)), (pytest.approx(6, abs=0.02), pytest.approx(23.5, abs=0.03))]  # fmt: skip  # noqa: E501
    sea.locator("#at").fill("8, 11.5")
    gp = load(home / "sea.metaprior")
    posterior = gp.condition([[x] for x, _ in points], [y for _, y in points]).at(np.array([[8.0], [11.5]]))
    lower, upper = posterior.interval(0.9)
    for row, mean, low, high in zip(expected(sea), posterior.mean, lower, upper, strict=True):
        assert [float(text) for text in row] == pytest.approx([float(mean), float(low), float(high)], rel=1e-6)
    drawn = sea.evaluate("metaprior.page.shown")
    there = gp.condition([[x] for x, _ in points], [y for _, y in points]).at(np.array(drawn["x"])[:, None])
    for band, level in zip(drawn["bands"], (0.05, 0.25, 0.5, 0.75, 0.95), strict=True):
        assert band == pytest.approx(there.quantiles([level])[0, :, 0].tolist(), rel=1e-6)


def test_a_first_task_is_there_and_the_page_says_what_to_do(sea):
    assert len(known(sea)) == 3
    assert sea.title() == "A new year: temperature by month"
    assert sea.locator("#lead").inner_text().startswith("Click in the picture to say what is known of a new year.")
    assert "nine of ten values lie in here" in sea.locator(".key").inner_text()
    assert re.search(r"\d+% of past ones", sea.locator("#usual").inner_text())
    assert "fpca" in sea.locator("#shares").inner_text()


def test_drag_undo_remove_clear_and_the_example(sea):
    before = known(sea)
    box = sea.locator(".point").first.bounding_box()
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    sea.mouse.move(*at)
    sea.mouse.down()
    sea.mouse.move(at[0] + 40, at[1] - 30, steps=4)
    sea.mouse.up()
    moved = known(sea)
    assert float(moved[0][0]) > float(before[0][0])
    assert float(moved[0][1]) > float(before[0][1])
    assert moved[1:] == before[1:]
    sea.locator("#undo").click()
    assert known(sea) == before
    assert sea.locator("#undo").is_disabled()
    sea.locator(".point").nth(1).dblclick()
    assert known(sea) == [before[0], before[2]]
    sea.locator(".point").nth(1).click(button="right")
    assert known(sea) == [before[0]]
    sea.keyboard.press("Control+z")
    sea.keyboard.press("Control+z")
    assert known(sea) == before
    sea.keyboard.press("Shift+Delete")
    assert known(sea) == []
    assert sea.locator("#usual").inner_text() == "No point is known yet."
    sea.locator("#example").click()
    assert known(sea) == before


def test_a_double_click_beside_all_points_adds_one_and_leaves_it(sea):
    sea.locator("#clear").click()
    box = sea.locator("#canvas").bounding_box()
    sea.mouse.dblclick(box["x"] + 300, box["y"] + 200)
    assert len(known(sea)) == 1


def paste(page, text, into="#known tbody tr:last-child input"):
    page.locator(into).first.focus()
    page.evaluate(
        """text => { const data = new DataTransfer(); data.setData("text", text);
        document.activeElement.dispatchEvent(new ClipboardEvent("paste",
          { clipboardData: data, bubbles: true, cancelable: true })); }""",
        text,
    )


def test_columns_of_a_spreadsheet_are_pasted_and_what_is_no_number_is_told(sea):
    sea.locator("#clear").click()
    paste(sea, "month\ttemperature\n1\t24.5\n2\t25.75\r\n")
    assert known(sea) == [("1", "24.5"), ("2", "25.75")]
    paste(sea, "3, 26\n4, 25.5")
    assert known(sea)[2:] == [("3", "26"), ("4", "25.5")]
    paste(sea, "5\twarm\n6\t24")
    assert sea.locator("#refused").inner_text() == "temperature: “warm” is no number. Nothing was pasted."
    paste(sea, "5\t24\n6")
    assert "Line 2 has 1 value; give 2: month, temperature." in sea.locator("#refused").inner_text()
    assert len(known(sea)) == 4


def test_a_cell_that_is_no_number_is_told_in_place_and_nothing_is_lost(sea):
    before = known(sea)
    cell = sea.locator("#known input").nth(1)
    cell.fill("cold")
    cell.press("Tab")
    assert sea.locator("#refused").inner_text() == "temperature: “cold” is no number."
    assert cell.get_attribute("aria-invalid") == "true"
    said, table = (sea.locator(name).bounding_box() for name in ("#refused", "#known"))
    assert said["x"] == table["x"]
    assert said["y"] - (table["y"] + table["height"]) < 20
    assert sea.evaluate("metaprior.page.state.points.length") == 3
    cell.fill("20.25")
    cell.press("Tab")
    assert sea.locator("#refused").inner_text() == ""
    assert known(sea)[0] == (before[0][0], "20.25")
    sea.locator("#at").fill("5, May")
    assert sea.locator("#at-wrong").inner_text() == "month: “May” is no number."


def test_rows_are_typed_one_after_the_other_and_nothing_is_lost(sea):
    sea.locator("#clear").click()
    sea.locator("#known tbody input").first.focus()
    for text in ("1", "24.5", "2", "25.5", "3"):
        sea.keyboard.type(text)
        sea.keyboard.press("Tab")
    assert known(sea) == [("1", "24.5"), ("2", "25.5")]
    sea.set_viewport_size({"width": 1000, "height": 800})  # a row that was begun stays as it is
    sea.keyboard.type("26")
    sea.keyboard.press("Enter")
    assert known(sea)[-1] == ("3", "26")
    assert sea.locator("#at").input_value() == "9.25, 12"
    cell = sea.locator("#known tbody tr").first.locator("input").nth(1)
    cell.fill("24.123456789")
    cell.press("Tab")
    assert sea.evaluate("document.activeElement.getAttribute('aria-label')") == "month of point 2"
    sea.locator(".point").first.focus()
    sea.keyboard.press("ArrowRight")
    assert known(sea)[0][1] == "24.123456789"  # what does not move keeps its digits
    sea.locator("#undo").click()
    sea.locator("#undo").click()
    assert known(sea)[0] == ("1", "24.5")  # one step for each change


def test_a_number_as_others_write_it_goes_into_its_cell(sea):
    before = known(sea)
    paste(sea, "24,5")
    assert known(sea) == before
    paste(sea, "5\t24,5\n6\t23,25")
    assert known(sea)[-2:] == [("5", "24.5"), ("6", "23.25")]
    paste(sea, "7\t1,024\n8\t950.5")  # a column with points has no decimal commas
    assert sea.locator("#refused").inner_text() == "temperature: “1,024” is no number. Nothing was pasted."
    assert len(known(sea)) == len(before) + 2


def test_values_too_far_from_all_past_ones_are_refused(sea):
    before = known(sea)
    paste(sea, "1\t1e200")
    assert "too far from all past ones" in sea.locator("#refused").inner_text()
    assert known(sea) == before
    click_at(sea, 6, 24)
    assert len(known(sea)) == len(before) + 1


def test_places_that_are_wrong_leave_no_old_numbers(sea):
    sea.locator("#at").fill("8, 9x")
    assert expected(sea) == []
    assert ".at(" not in sea.locator("#python").inner_text()
    sea.locator("#at").fill("40")
    assert sea.locator("#notes").inner_text().startswith("1 of 1 points lie outside the range of 'month'")


def test_undo_takes_back_points_and_not_what_is_shown(sea):
    click_at(sea, 9, 21)
    sea.locator("#at").fill("7")
    sea.locator("#latent").check()
    sea.locator("#undo").click()
    assert len(known(sea)) == 3
    assert sea.locator("#at").input_value() == "7"
    assert sea.locator("#latent").is_checked()


@pytest.mark.parametrize(("offset", "unit"), [(1.7e9, 86_400.0), (0.0, 1e-9), (1e6, 1e-3)])
def test_a_click_lands_where_it_is_in_any_units(offset, unit, browser):
    random = np.random.default_rng(0)
    x = offset + unit * np.linspace(0, 1, 8)
    tasks = Tasks.from_pairs([(x, offset + unit * (random.normal() + 0.1 * random.normal(size=8))) for _ in range(9)])
    page = opened(browser, MetaGP("constant", "matern", **QUICK).fit(tasks))
    page.locator("#clear").click()
    wanted = offset + 0.8 * unit, offset + 0.5 * unit
    click_at(page, *wanted)
    (found,) = known(page)
    assert [float(text) for text in found] == pytest.approx(wanted, abs=0.02 * unit)
    assert len(set(page.locator("#at").input_value().split(", "))) == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.close()


def test_a_point_outside_the_range_is_noted(sea):
    assert sea.locator("#notes").inner_text() == ""
    row = sea.locator("#known tbody tr").last.locator("input")
    row.nth(0).fill("15")
    row.nth(1).fill("24")
    row.nth(1).press("Tab")
    said = sea.locator("#notes").inner_text()
    assert said.startswith(
        "1 of 4 known points lie outside the range of 'month' that the model was trained on (1 to 12)"
    )
    assert sea.evaluate("metaprior.page.plot.view.x")[1] == 15


def test_everything_can_be_done_with_keys_alone(sea):
    sea.keyboard.press("Tab")
    names = []
    for _ in range(30):
        names.append(sea.evaluate("document.activeElement.id || document.activeElement.className"))
        sea.keyboard.press("Tab")
    assert {"clear", "example", "draws", "latent", "point", "at", "copy", "python"} <= set(names)
    point = sea.locator(".point").first
    before = known(sea)[0]
    point.focus()
    sea.keyboard.press("ArrowRight")
    sea.keyboard.press("Shift+ArrowUp")
    after = known(sea)[0]
    assert float(after[0]) == pytest.approx(float(before[0]) + 0.11, abs=0.02)
    assert float(after[1]) > float(before[1]) + 0.5
    assert "month" in point.get_attribute("aria-label")
    sea.keyboard.press("Delete")
    assert len(known(sea)) == 2
    assert sea.evaluate("document.activeElement.className") == "point"
    row = sea.locator("#known tbody tr").last.locator("input")
    row.first.focus()
    sea.keyboard.type("9")
    sea.keyboard.press("Tab")
    sea.keyboard.type("20.5")
    sea.keyboard.press("Tab")
    assert known(sea)[-1] == ("9", "20.5")


def test_every_control_has_a_name(sea):
    nameless = sea.evaluate(
        """[...document.querySelectorAll("button, input, select")].filter((one) => !one.closest("[hidden]") &&
        !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length)).map((one) => one.id)"""
    )
    assert nameless == []


def test_dark_and_a_phone(browser, home):
    page = browser.new_page(viewport={"width": 360, "height": 740}, has_touch=True, color_scheme="dark")
    page.goto((home / "sea.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    box = page.locator("#canvas").bounding_box()
    page.touchscreen.tap(box["x"] + 200, box["y"] + 60)
    assert len(known(page)) == 4
    pixel = "([x, y]) => [...document.getElementById('canvas').getContext('2d').getImageData(x, y, 1, 1).data]"
    left, top = page.evaluate("metaprior.page.plot.place(8, metaprior.page.shown.bands[2][127])")
    light = browser.new_page(viewport={"width": 360, "height": 740})
    light.goto((home / "sea.html").as_uri())
    assert page.evaluate(pixel, [round(left), round(top)]) != light.evaluate(pixel, [round(left), round(top)])
    page.close()
    light.close()


def test_no_request_leaves_the_page_and_nothing_else_may_run(browser, home):
    page, asked, said = browser.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((home / "sea.html").as_uri())
    page.locator("#example").click()
    assert asked == [(home / "sea.html").as_uri()]
    assert said == []
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    page.evaluate("() => { const s = document.createElement('script'); s.textContent = 'window.evil = 1';"
                  " document.body.append(s); }")  # fmt: skip
    page.evaluate("() => { new Image().src = 'https://example.org/x.png'; }")
    assert page.evaluate("window.evil") is None
    assert any("Content Security Policy" in text or "Content-Security-Policy" in text for text in said)
    page.close()


def test_the_page_in_the_docs_runs_this_script(home):
    """`make docs` makes it; the policy has the hashes of script and style."""
    docs = Path(__file__).parents[1] / "docs" / "elnino.html"
    ours, now = (re.search(r"default-src[^\"]*", path.read_text())[0] for path in (docs, home / "sea.html"))
    assert ours == now


def test_the_python_that_is_shown_gives_what_is_shown(sea, home, monkeypatch):
    monkeypatch.chdir(home)
    code = sea.locator("#python").inner_text()
    *lines, last = code.splitlines()
    namespace = {}
    exec("\n".join(lines), namespace)
    mean, (lower, upper) = eval(last, namespace)
    for row, *numbers in zip(expected(sea), mean, lower, upper, strict=True):
        assert [float(text) for text in row] == pytest.approx([float(one) for one in numbers], rel=1e-6)
    sea.locator("#copy").click()
    sea.locator("#copied:not(:empty)").wait_for()
    assert sea.locator("#copied").inner_text() in ("Copied.", "Selected: copy it with Ctrl+C.")
    sea.locator("#latent").check()
    assert ".function" in sea.locator("#python").inner_text()


def test_bands_are_narrower_without_noise_and_curves_can_be_left_out(sea):
    wide = sea.evaluate("metaprior.page.shown.bands")
    sea.locator("#latent").check()
    narrow = sea.evaluate("metaprior.page.shown.bands")
    assert all(n[4] - n[0] < w[4] - w[0] for n, w in zip(zip(*narrow, strict=True), zip(*wide, strict=True), strict=True))  # fmt: skip  # noqa: E501
    assert len(sea.evaluate("metaprior.page.draws(metaprior.page.conditioned())")) == 5
    sea.locator("#draws").uncheck()
    assert sea.evaluate("metaprior.page.draws(metaprior.page.conditioned())") == []


def test_draws_are_of_the_posterior(sea):
    """Their mean and deviation at a place are the curve's own, as far as four hundred draws tell."""
    said = sea.evaluate("metaprior.predict([[3]], [[26]], [[3.5], [8]], { latent: true, count: 400 })")
    values = np.array(said["draws"])
    assert values.mean(0) == pytest.approx(said["mean"], abs=4 * max(said["sd"]) / 20)
    assert values.std(0) == pytest.approx(said["sd"], rel=0.15)


def several(tmp, **columns):
    random = np.random.default_rng(0)
    rows = [
        {
            "site": f"s{i}",
            "hour": hour,
            "dose": dose,
            "a": 3 + hour * 0.1 + dose + 0.5 * random.normal(),
            "b": 2.0 * hour,
        }
        for i in range(8)
        for hour, dose in zip(np.linspace(0, 24, 7), random.uniform(0, 2, 7), strict=True)
    ]
    return pd.DataFrame(rows)


def test_further_inputs_are_slices_and_further_targets_a_choice(browser):
    gp = MetaGP("constant", "matern", **QUICK).fit(several(None), task="site", x=["hour", "dose"], y=["a", "b"])
    page = opened(browser, gp)
    slider = page.locator("#sliders input[type=range]")
    before = page.evaluate("metaprior.page.shown.bands[2]")
    slider.fill("1.9")
    assert page.evaluate("metaprior.page.state.slice[1]") == 1.9
    assert page.evaluate("metaprior.page.shown.bands[2]") != before
    assert page.locator(".point.elsewhere").count() == 3
    page.locator("#output").select_option("1")
    assert page.evaluate("metaprior.page.state.output") == 1
    click_at(page, 12, 20)
    point = page.evaluate("metaprior.page.state.points.at(-1)")
    assert point["x"][1] == 1.9
    assert point["y"][1] == pytest.approx(20, abs=0.2)
    there = gp.condition(np.array(json.loads(page.evaluate("JSON.stringify(metaprior.page.state.points.slice(0, -1).map((one) => one.x))"))), np.array(page.evaluate("metaprior.page.state.points.slice(0, -1).map((one) => one.y)"))).at(np.array([point["x"]]))  # fmt: skip  # noqa: E501
    assert point["y"][0] == pytest.approx(float(there.mean[0, 0]), abs=0.02)  # the other is what was expected of it
    page.close()


def test_task_covariates_have_controls_of_their_own(browser):
    table = several(None)
    table["age"] = [int(site[1:]) for site in table["site"]]
    table["diet"] = [("rich", "plain")[int(site[1:]) % 2] for site in table["site"]]
    gp = MetaGP("deep", "rbf", hidden=(6,), **QUICK).fit(table, task="site", x="hour", y="a", task_x=["age", "diet"])
    page = opened(browser, gp)
    before = page.evaluate("metaprior.page.shown.bands[2]")
    page.locator("#sliders select").select_option("rich")
    page.locator("#sliders input").fill("6")
    assert page.evaluate("metaprior.page.numbers()") == [6, 0, 1]
    assert page.evaluate("metaprior.page.shown.bands[2]") != before
    assert 'task_x={"age": 6, "diet": "rich"}' in page.locator("#python").inner_text()
    page.keyboard.press("Tab")
    page.locator("#undo").click()
    assert page.locator("#sliders input").input_value() != "6"
    page.close()


def test_dates_are_dates_and_impossible_values_are_told(browser):
    days = pd.date_range("2024-01-01", periods=9, freq="20D")
    random = np.random.default_rng(1)
    rows = [
        {"plot": i, "day": day, "eggs": round(max(0, 6 + 3 * np.sin(k) + random.normal()))}
        for i in range(8)
        for k, day in enumerate(days)
    ]
    gp = MetaGP("constant", "matern", **QUICK)
    gp.fit(pd.DataFrame(rows), task="plot", x="day", y="eggs", support=(0, None), integer=True)
    page = opened(browser, gp)
    assert all(re.fullmatch(r"2024-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?", day) for day, _ in known(page))
    row = page.locator("#known tbody tr").last.locator("input")
    row.nth(0).fill("2024-03-01")
    row.nth(1).fill("-2")
    row.nth(1).press("Tab")
    assert page.locator("#refused").inner_text() == "eggs: -2 cannot be. It is whole numbers 0 or more."
    row.nth(1).fill("5")
    row.nth(1).press("Tab")
    assert known(page)[-1] == ("2024-03-01", "5")
    page.locator("#at").fill("2024-05-05, 2024-06-01T06:00")
    assert page.locator("#expected td").first.inner_text() == "2024-05-05"
    for wrong in ("soon", "2024-02-31", "2024-03-01T25:00"):
        page.locator("#at").fill(wrong)
        assert "is no date, such as 2020-03-28" in page.locator("#at-wrong").inner_text()
    page.locator("#at").fill("soon")
    assert "is no date, such as 2020-03-28" in page.locator("#at-wrong").inner_text()
    click_at(page, 19790, 4.4)
    assert known(page)[-1][1] == "4"
    assert min(min(band) for band in page.evaluate("metaprior.page.shown.bands")) >= 0
    page.close()


def test_a_name_is_text_and_never_html(browser):
    table = several(None).rename(columns={"a": "</script><img src=x onerror=alert(1)>"})
    gp = MetaGP("constant", "matern", **QUICK).fit(table, task="site", x="hour", y=table.columns[3])
    page = opened(browser, gp)
    assert page.locator("img").count() == 0
    assert "onerror" in page.locator("#title").inner_text()
    page.close()


def test_a_kernel_of_ones_own_is_told_when_the_page_is_written(home):
    KERNELS["seasonal"] = lambda made_for: Scaled(PeriodicKernel())
    try:
        tasks = Tasks.from_pairs([(np.arange(6.0), np.sin(np.arange(6.0) + k)) for k in range(6)])
        gp = MetaGP("zero", "seasonal", **QUICK).fit(tasks)
    finally:
        del KERNELS["seasonal"]
    with pytest.raises(OptionError, match="the kernel Scaled cannot be computed in a browser"):
        live_page(gp.method_, gp.trained_on_, "m")


def test_a_model_too_large_for_a_page_is_told_with_its_size(home, monkeypatch):
    gp = load(home / "sea.metaprior")
    monkeypatch.setattr(live, "MOST", 100)
    with pytest.raises(OptionError, match=r"takes .* MB, more than a page that opens .*`metaprior serve MODEL`"):
        live_page(gp.method_, gp.trained_on_, "m")


def test_the_commands_write_it_and_lose_nothing(home, tmp_path, capsys, monkeypatch):
    table = embedded_table("elnino").to_pandas()
    table[table["year"] < 1960].to_csv(tmp_path / "t.csv", index=False)
    names = ["--task", "year", "--x", "month", "--y", "temperature"]
    page, model = tmp_path / "p.html", tmp_path / "m.metaprior"
    fit = ("fit", tmp_path / "t.csv", *names, "--mean", "zero", "--kernel", "rbf", "--out", model, "--html", page)
    assert "a page to try it on" in run(*fit).stderr
    assert "Content-Security-Policy" in page.read_text()
    size = page.stat().st_size
    run("show", model, "--html", page)  # its own pages may be replaced
    assert page.stat().st_size == size
    page.write_text("my notes")
    said = refused("show", model, "--html", page, capsys=capsys, monkeypatch=monkeypatch)
    assert "choose another --html, or replace it with --overwrite" in said
    assert page.read_text() == "my notes"
    said = refused("show", model, "--html", model, capsys=capsys, monkeypatch=monkeypatch)
    assert "is what this command reads" in said
    said = refused("show", tmp_path / "t.csv", "--html", tmp_path / "q.html", capsys=capsys, monkeypatch=monkeypatch)
    assert "is not a metaprior model" in said
    assert not (tmp_path / "q.html").exists()
