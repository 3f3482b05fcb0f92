"""The live page inside another page, as a notebook shows it."""

import re
from html import unescape

import numpy as np
import pytest

from metaprior import MetaGP, OptionError
from metaprior.data import load_elnino
from metaprior.report import LivePage, is_live_page, live_page


@pytest.fixture(scope="module")
def gp():
    return MetaGP("constant", "rbf", max_epochs=5, progress=False).fit(load_elnino())


def test_the_frame_holds_the_page_and_nothing_else(gp, tmp_path):
    shown = LivePage(gp, [1, 2], [24.2, 25.9], name="sea", height=500)._repr_html_()
    inside = re.fullmatch(r'<iframe [^>]*height:500px[^>]* srcdoc="([^"]*)"></iframe>', shown)[1]
    page = live_page(gp.method_, gp.trained_on_, "sea", [([1.0], [24.2]), ([2.0], [25.9])])
    assert unescape(inside) == page
    LivePage(gp, [1, 2], [24.2, 25.9], name="sea").write(tmp_path / "sea.html")
    assert is_live_page(tmp_path / "sea.html")
    assert (tmp_path / "sea.html").read_text() == page


def test_points_of_arrays_are_taken_and_unequal_numbers_refused(gp):
    of_arrays = LivePage(gp, np.array([[1], [2]]), np.array([24.2, 25.9]))
    assert of_arrays.html == LivePage(gp, [1, 2], [24.2, 25.9]).html
    for wrong in (([1, 2], [24.2]), ([1], None)):
        with pytest.raises(OptionError, match="as many inputs as targets"):
            LivePage(gp, *wrong)


def test_it_is_at_work_inside_the_frame(gp, browser):
    page = browser.new_page()
    page.set_content(LivePage(gp, [1, 2], [24.2, 25.9])._repr_html_())
    frame = page.frames[1]
    frame.wait_for_selector("#known tbody tr")
    assert frame.evaluate("metaprior.predict([[1]], [[24.2]], [[6]]).mean.length") == 1
    assert frame.locator("#known tbody tr").count() == 3  # two points, and one to fill in
    page.close()
