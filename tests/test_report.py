"""Tables, figures and the page: from result files alone, on made-up rows and on those of the step experiment."""

import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from rich.console import Console

from metaprior import DataError
from metaprior.methods import METHODS as KNOWN
from metaprior.paper import CHAPTERS, EXPERIMENTS, write_page
from metaprior.report import (
    COMPARISON,
    colour_of,
    draw_figures,
    markdown_tables,
    references,
    terminal_tables,
    write_comparison,
)
from metaprior.report.cells import BETTER, WORSE, make_grids, mark_of, paper_decimals

STEP = json.loads((Path(__file__).parent.parent / "docs/results/step/results.json").read_text())
VARIABLES = ("GCS", "Urine", "HCT", "Creatinine", "BUN")
METHODS = ("vanilla", "learned kernel", "learned mean", "learned both")


def row(method="a", setting="1", metric="mse", mean=1.0, stderr=0.01, paper=None, paper_stderr=None):
    return {
        "method": method, "setting": setting, "metric": metric, "mean": mean, "stderr": stderr, "tasks": 100,
        "paper_mean": paper, "paper_stderr": paper_stderr,
    }  # fmt: skip


def results(experiment="step", rows=(), claims=(), **settings):
    return {
        "experiment": experiment, "settings": {"seed": 7, "quick": True, **settings}, "seconds": {"a": 1.5, "b": 2.6},
        "peak_memory_mb": 1234.5, "versions": {"python": "3.11"}, "rows": list(rows), "claims": list(claims),
    }  # fmt: skip


def claim(holds=True, in_paper: bool | None = True, text="It is so.", because="1 < 2"):
    return {
        "id": "x", "text": text, "where": "Tab. 1", "holds": holds, "holds_in_paper": in_paper, "because": because,
    }  # fmt: skip


# --- marks


@pytest.mark.parametrize("metric", ["joint_log_likelihood", "log_likelihood", "evidence"])
def test_higher_is_better_for_likelihoods(metric):
    assert mark_of(row(metric=metric, mean=0.60, paper=0.55, paper_stderr=0.01), 2) == BETTER
    assert mark_of(row(metric=metric, mean=0.50, paper=0.55, paper_stderr=0.01), 2) == WORSE


def test_lower_is_better_for_errors():
    assert mark_of(row(mean=0.50, paper=0.55, paper_stderr=0.01), 2) == BETTER
    assert mark_of(row(mean=0.60, paper=0.55, paper_stderr=0.01), 2) == WORSE


def test_no_mark_within_two_standard_errors_of_the_difference():
    error = (0.003**2 + 0.004**2) ** 0.5  # the rounding to 6 decimals adds nothing
    for sign in (-1, 1):
        near = row(mean=0.5 + sign * 1.99 * error, stderr=0.003, paper=0.5, paper_stderr=0.004)
        far = row(mean=0.5 + sign * 2.01 * error, stderr=0.003, paper=0.5, paper_stderr=0.004)
        assert mark_of(near, 6) == ""
        assert mark_of(far, 6) != ""


def test_the_papers_rounding_counts_as_an_error():
    exact = row(metric="log_likelihood", mean=0.355, stderr=1e-4, paper=0.35, paper_stderr=0.0)
    assert mark_of(exact, 2) == ""  # 0.35 may have been 0.3549: uniform error 0.01 / √12 = 0.0029
    assert mark_of(exact, 3) == BETTER


def test_no_mark_without_a_figure_or_direction():
    assert mark_of(row(paper=None), 2) == ""
    assert mark_of(row(mean=None, paper=0.5, paper_stderr=0.1), 2) == ""
    assert mark_of(row(stderr=None, mean=9.0, paper=0.5, paper_stderr=0.1), 2) == ""
    assert mark_of(row(metric="complexity", mean=0.1, stderr=0.001, paper=0.9, paper_stderr=0.001), 3) == ""


def test_marks_of_the_step_table():
    text = markdown_tables(STEP["rows"], ["mse", "joint_log_likelihood"])
    lines = {line.split(" | ")[0].lstrip("| "): line for line in text.splitlines()[:14] if line.startswith("|")}
    assert lines["vanilla"].startswith("| vanilla | ▼ 0.380 ± 0.005 | 0.335 ± 0.006 | ▼")
    assert "| 0.329 ± 0.006 | 0.323 ± 0.007 |" in lines["learned kernel"]
    assert "| 0.185 ± 0.001 | 0.186 ± 0.002 | ▲ 0.0716 ± 0.0014 | 0.078 ± 0.002 |" in lines["learned both"]
    assert lines["fpca"].startswith("| fpca | **0.125 ± 0.003** | – |")
    assert "**" not in lines["bayes limit"]
    assert "bayes limit, linear limit aside" in text
    assert text.count("▲") == 12 + 2 + 1  # twelve likelihoods, two errors, the legend


# --- digits


def test_the_papers_decimals():
    assert paper_decimals([row(paper=0.335, paper_stderr=0.006), row(paper=0.1, paper_stderr=0.0)]) == 3
    assert paper_decimals([row(paper=20674.24, paper_stderr=1505.23)]) == 2
    assert paper_decimals([row()]) == 0


def texts(*rows):
    (grid,) = make_grids(rows)
    return [[cell.text for pair in line for cell in pair] for line in grid.lines.values()]


def test_digits_suit_each_column():
    found = texts(
        row(setting="Urine", mean=17_312.3, stderr=1204.4, paper=20674.24, paper_stderr=1505.23),
        row(setting="Creatinine", mean=0.1934, stderr=0.0123, paper=0.91, paper_stderr=0.08),
        row(setting="BUN", mean=398.27, stderr=21.13, paper=412.11, paper_stderr=20.99),
    )
    assert found == [
        ["17,312 ± 1,204", "20,674 ± 1,505", "0.193 ± 0.012", "0.91 ± 0.08", "398.3 ± 21.1", "412.1 ± 21.0"]
    ]


def test_small_errors_are_not_shown_as_zero():
    assert texts(row(mean=0.0201, stderr=0.0006, paper=0.022, paper_stderr=0.001)) == [
        ["0.0201 ± 0.0006", "0.022 ± 0.001"]
    ]
    assert texts(row(mean=-0.7310, stderr=0.0005, metric="evidence")) == [["-0.7310 ± 0.0005", "–"]]


def test_an_outlier_does_not_take_the_digits_of_its_column():
    found = texts(
        row("a", mean=3.307, stderr=0.012), row("b", mean=3.268, stderr=0.011), row("c", mean=-4014.67, stderr=2705.7)
    )
    assert [line[0] for line in found] == ["3.31 ± 0.01", "3.27 ± 0.01", "-4015 ± 2706"]


def test_no_negative_zero_and_a_dash_for_nothing():
    assert texts(row(mean=-1e-7, stderr=0.01), row("b", mean=None, stderr=None), row("c", mean=0.5, stderr=0.01)) == [
        ["0.0000 ± 0.0100", "–"],
        ["–", "–"],
        ["0.5000 ± 0.0100", "–"],
    ]


# --- the best of a column


def best(*rows):
    (grid,) = make_grids(rows)
    return [method for method, line in grid.lines.items() if line[0][0].best]


def test_the_best_is_not_a_reference_and_has_rivals():
    assert best(row("a", mean=0.5), row("b", mean=0.4), row("last value", mean=0.1)) == ["b"]
    assert best(row("a", mean=0.5, metric="evidence"), row("b", mean=0.4, metric="evidence")) == ["a"]
    assert best(row("a", mean=0.5), row("bayes limit", mean=0.4)) == []
    assert best(row("a", mean=None), row("b", mean=0.4)) == []


def test_what_looks_the_same_is_equally_good():
    assert best(row("a", mean=0.84012), row("b", mean=0.84018), row("c", mean=0.95)) == ["a", "b"]


def test_coverage_is_best_near_its_level():
    metric = "coverage_90"
    assert best(row("a", mean=0.99, metric=metric), row("b", mean=0.85, metric=metric)) == ["b"]
    assert best(row("a", mean=0.91, metric=metric), row("b", mean=0.89, metric=metric)) == ["a", "b"]


# --- Markdown and terminal


def test_markdown_explains_only_what_it_shows():
    assert "▲" not in markdown_tables([row()])
    assert "Bold" not in markdown_tables([row()])
    two = markdown_tables([row("a"), row("b", mean=2.0)])
    assert two.endswith("Bold: the best of its column.\n")
    assert markdown_tables(STEP["rows"], ["mse"]).count("| method |") == 1


def printed(rows, width, **options):
    console = Console(file=StringIO(), width=width, **options)
    for table in terminal_tables(rows):
        console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 110, 160])
def test_a_table_too_wide_for_the_terminal_goes_on_below(width):
    rows = [row(m, v, mean=0.5, paper=0.4, paper_stderr=0.01) for v in VARIABLES for m in METHODS]
    text = printed(rows, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count("▼ 0.500±0.010") == 20
    assert text.count("0.40±0.01") == 20
    assert all(variable in text for variable in VARIABLES)
    assert text.count("Mean squared error") == {60: 5, 80: 3, 110: 2, 160: 1}[width]


def test_the_terminal_colours_better_and_worse():
    rows = [row("a", mean=0.3, paper=0.4, paper_stderr=0.01), row("b", mean=0.5, paper=0.4, paper_stderr=0.01)]
    text = printed(rows, 100, force_terminal=True, color_system="standard")
    assert "\x1b[32m▲ 0.300±0.010" in text
    assert "\x1b[31m▼ 0.500±0.010" in text
    assert "two standard errors" in text


def test_the_terminal_shows_what_the_paper_has_and_elsewhere_its_metrics():
    assert printed([row(metric="coverage_90")], 100) == ""
    assert "Mean squared error" in printed([row(), row(metric="coverage_90")], 100)
    assert "Log likelihood of each" not in printed(STEP["rows"], 120)


# --- figures


def step_curves(methods=METHODS):
    x = np.linspace(-2, 2, 21)
    curves = {"x": x}
    for n in (1, 5):
        curves |= {f"{n} context x": x[:n], f"{n} context y": x[:n]}
        for method in methods:
            curves |= {f"{method} {n} mean": np.tanh(x), f"{method} {n} sd": 0.1 + 0 * x}
    return curves


def mnist_rows():
    return [
        row(method, n, metric, mean=0.1 + k / 100, paper=0.12, paper_stderr=0.0)
        for n in ("3", "50", "300") for metric in ("mse", "joint_log_likelihood") for k, method in enumerate(METHODS)
    ]  # fmt: skip


def mnist_curves(count=4):
    rng = np.random.default_rng(0)
    curves = {"truth": rng.uniform(size=(count, 28, 28))}
    for n in (3, 50, 300):
        curves[f"{n} mask"] = rng.permuted(np.tile(np.arange(784) < n, (count, 1)), axis=1).reshape(count, 28, 28)
        curves |= {f"{method} {n} mean": rng.normal(0.5, 0.5, (count, 28, 28)) for method in METHODS}
    return curves


def icu_rows(coverage=0.943):
    return [row("learned both", v, "coverage_90", mean=coverage) for v in VARIABLES]


def icu_curves():
    rng = np.random.default_rng(0)
    probabilities = np.linspace(0.001, 0.999, 99)
    z = np.array([NormalDist().inv_cdf(p) for p in probabilities])
    curves = {"z probabilities": probabilities}
    hours = np.linspace(0, 48, 25)
    for variable in VARIABLES:
        curves |= {f"{method} {variable} z": np.sinh(2 * z) / 2 for method in METHODS}
        for j in range(3):
            x = np.sort(rng.uniform(0, 48, 9))
            name = f"{variable} example {j}"
            curves |= {f"{name} x": x, f"{name} y": np.cos(x), f"{name} hours": hours, f"{name} mean": 0 * hours}
            curves |= {f"{name} lower": 0 * hours - 1, f"{name} upper": 0 * hours + 1}
    return curves


def few_rows():
    return [
        {"method": method, "setting": f"m = {m}", "metric": metric, "mean": 1 / m, "stderr": 0.1, "tasks": 9}
        for method in ("vanilla", "map", "auto")
        for metric in ("mse", "log_likelihood", "coverage_90")
        for m in (2, 5, 10)
    ]


def test_every_figure_from_its_rows_and_curves(tmp_path):
    x = np.linspace(-5, 5, 50)
    made = {
        "step": (STEP["rows"], step_curves()),
        "sinusoid": ([], {"x": x, "samples": np.zeros((3, 50)), "learned mean": x}),
        "mnist": (mnist_rows(), mnist_curves()),
        "icu": (icu_rows(), icu_curves()),
        "compare": (mnist_rows(), {}),
        "few": (few_rows(), {}),
    }
    chapters = CHAPTERS | {"compare": COMPARISON}
    assert {*made, "theory"} == set(chapters)  # the theory's are in test_theory.py
    for experiment, (rows, curves) in made.items():
        folder = tmp_path / experiment
        folder.mkdir()
        names = [f"{name}.{suffix}" for name in chapters[experiment].pictures for suffix in ("png", "svg")]
        assert [path.name for path in draw_figures(chapters[experiment], rows, curves, folder)] == names
        assert sorted(path.name for path in folder.iterdir()) == sorted(names)
        for path in folder.glob("*.png"):
            assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("chapter", [*CHAPTERS.values(), COMPARISON], ids=[*CHAPTERS, "compare"])
def test_figures_are_skipped_without_what_they_need(chapter, tmp_path):
    for name in chapter.pictures:
        (tmp_path / f"{name}.png").write_text("from an earlier run")
    assert draw_figures(chapter, [], {}, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_some_methods_only():
    rows = [line for line in STEP["rows"] if line["method"] in ("learned mean", "bayes limit")]
    figure = CHAPTERS["step"].pictures["performance"].draw(rows, {})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "learned mean", "bayes limit", "the paper's figure"
    ]  # fmt: skip
    assert len(CHAPTERS["step"].pictures["reconstructions"].draw(rows, step_curves(["learned mean"])).axes) == 2
    limit = [line for line in rows if line["method"] == "bayes limit"]
    assert len(CHAPTERS["step"].pictures["performance"].draw(limit, {}).axes) == 1  # it has no likelihood


def test_performance_draws_the_rows_and_the_papers_figures():
    figure = CHAPTERS["mnist"].pictures["performance"].draw(mnist_rows(), {})
    for axes in figure.axes:
        assert axes.get_xscale() == "log"
        for k, method in enumerate(METHODS):
            lines = [line for line in axes.lines if line.get_color() == KNOWN[method].colour]
            paper, ours = (next(line for line in lines if line.get_linestyle() == style) for style in ("--", "-"))
            assert list(ours.get_xdata()) == [3, 50, 300]
            assert list(ours.get_ydata()) == [0.1 + k / 100] * 3
            assert list(paper.get_ydata()) == [0.12] * 3
            assert paper.get_markerfacecolor() == "none"


def test_completed_digits_stand_between_context_and_truth():
    curves = mnist_curves()
    figure = CHAPTERS["mnist"].pictures["reconstructions"].draw([], curves)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["context", *METHODS, "truth"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ñ = 3", "ñ = 50", "ñ = 300"] * 3
    image = np.asarray(axes.images[0].get_array())
    first, last = image[:28, :28], image[-28:, :28]
    mask = curves["3 mask"][0]
    assert np.allclose(first[mask], curves["truth"][0][mask][:, None])
    assert len(np.unique(first[~mask], axis=0)) == 1  # one colour for what is unknown
    assert np.allclose(last, curves["truth"][0][..., None])
    assert 0 <= image.min() <= image.max() <= 1


def test_residuals_say_what_the_interval_covers():
    figure = CHAPTERS["icu"].pictures["residuals"].draw(icu_rows(), icu_curves())
    assert [axes.get_title() for axes in figure.axes] == [*VARIABLES, ""]
    for axes in figure.axes[:-1]:
        assert "covers 94.3%" in axes.texts[0].get_text()
        assert len([line for line in axes.lines if line.get_color() in map(colour_of, METHODS)]) == 4
    assert not CHAPTERS["icu"].pictures["residuals"].draw([], icu_curves()).axes[0].texts


def test_the_two_days_of_a_patient():
    curves = icu_curves()
    figure = CHAPTERS["icu"].pictures["patients"].draw([], curves)
    assert len(figure.axes) == 15
    first, second = figure.axes[0].lines[-2:]
    x = curves["GCS example 0 x"]
    assert list(first.get_xdata()) == list(x[x <= 24])
    assert list(second.get_xdata()) == list(x[x > 24])
    assert second.get_markerfacecolor() == "white"


def test_methods_have_colours_of_their_own():
    assert len({colour_of(method) for method in (*METHODS, "mean fit on target", "neural network")}) == 6
    assert colour_of("learned mean refitted") == colour_of("learned mean")
    assert set(references()) == {"bayes limit", "linear limit", "last value", "context mean"}
    assert colour_of("no such method") == colour_of("last value")  # grey
    priors = [one.colour for one in KNOWN.values() if one.rung]
    assert len(set(priors)) == len(priors)


# --- the page


class Checked(HTMLParser):
    """Parses a page, failing where tags do not close, and keeps what it links to and shows."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.images, self.tags, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.links += [attributes[key] for key in ("src", "href") if key in attributes]
        if tag == "img":
            self.images.append(attributes)
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page(tmp_path, *found, figures=None):
    folders = []
    for k, content in enumerate(found):
        folder = tmp_path / str(k)
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(content))
        if figures:
            draw_figures(CHAPTERS[content["experiment"]], *figures, folder)
        folders.append(folder)
    write_page(folders, tmp_path / "page.html")
    return Checked((tmp_path / "page.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def step_page(tmp_path_factory):
    content = STEP | {"claims": [claim(), claim(False, False, "It is not."), claim(True, None)]}
    return page(tmp_path_factory.mktemp("page"), content, figures=(STEP["rows"], step_curves()))


def test_the_page_stands_alone(step_page):
    assert step_page.links
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in step_page.links)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in step_page.tags}
    (style,) = (attributes for tag, attributes in step_page.tags if tag == "style")
    assert style == {}
    assert "url(" not in step_page.text
    assert "@import" not in step_page.text


def test_every_figure_is_on_the_page(step_page):
    assert len(step_page.images) == len(CHAPTERS["step"].pictures)
    assert all(image["alt"] for image in step_page.images)
    assert "Error and likelihood against" in step_page.images[0]["alt"]


def test_the_page_says_what_was_found(step_page):
    text = step_page.text
    assert CHAPTERS["step"].description in text
    took, memory = sum(STEP["seconds"].values()), STEP["peak_memory_mb"]
    assert f"The full experiment, seed 0, optimizer lbfgs, {took:.0f} seconds, {memory:.0f} MB of memory." in text
    assert "2 of 3 claims hold" in text
    signs = [a["aria-label"] for t, a in step_page.tags if t == "span" and "sign" in a.get("class", "")]
    assert signs[2:] == ["holds", "holds", "does not hold", "does not hold", "holds", "not in its table"]
    assert "0.380 ± 0.005" in text
    assert "0.335 ± 0.006" in text
    kinds = [a.get("class") for t, a in step_page.tags if t == "span"]
    assert kinds.count("better") == 14 + 1  # and one each in the legend
    assert kinds.count("worse") == 4 + 1
    assert text.index("Mean squared error") < text.index("Other metrics") < text.index("Coverage of the 90%")
    assert "Contents" not in text


def test_tables_are_accessible(step_page):
    headers = [attributes for tag, attributes in step_page.tags if tag == "th"]
    assert headers
    assert all(attributes.get("scope") in ("row", "col", "colgroup") for attributes in headers)
    assert ("html", {"lang": "en"}) in step_page.tags
    assert any(attributes.get("name") == "viewport" for tag, attributes in step_page.tags if tag == "meta")


def test_everything_is_escaped(tmp_path):
    evil = "<script>alert('&')</script>\""
    rows = [row(evil, evil, mean=0.5, paper=0.4, paper_stderr=0.01), row("b", evil, mean=0.6)]
    content = results(evil, rows, [claim(text=evil, because=evil)], notes=[evil], **{evil: {evil: [evil]}})
    found = page(tmp_path, content)
    assert "script" not in {tag for tag, _ in found.tags}
    assert found.text.count(evil) >= 10


def test_several_experiments_have_contents(tmp_path):
    claims = [claim(), claim(False)]
    found = page(tmp_path, results("step", [row()], claims), results("step", [row()]), results("theory"))
    assert [link for link in found.links if link.startswith("#")] == [f"#experiment-{k}" for k in (1, 2, 3)]
    assert {f"experiment-{k}" for k in (1, 2, 3)} == {a["id"] for _, a in found.tags if "id" in a}
    assert f"{CHAPTERS['step'].title}: 1 of 2 claims hold" in found.text
    assert f"{CHAPTERS['step'].title}: no claims judged" in found.text
    assert "A quick, small version, seed 7, 4 seconds, 1,234 MB of memory." in found.text


def test_notes_and_unknown_figures_are_shown(tmp_path):
    folder = tmp_path / "icu"
    folder.mkdir()
    (folder / "results.json").write_text(
        json.dumps(results("icu", notes=["Urine is in mL."]) | {"peak_memory_mb": None})
    )
    (folder / "extra.png").write_bytes(b"\x89PNG")
    write_page([folder], tmp_path / "page.html")
    found = Checked((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "Urine is in mL." in found.text
    assert [image["alt"] for image in found.images] == ["extra."]
    assert " MB" not in found.text


def test_a_folder_without_results(tmp_path):
    with pytest.raises(DataError, match="does not hold an experiment's results"):
        write_page([tmp_path], tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_words_for_every_experiment_and_figure():
    assert set(CHAPTERS) == set(EXPERIMENTS)
    for chapter in (*CHAPTERS.values(), COMPARISON):
        said = [chapter.title, chapter.description, *(picture.caption for picture in chapter.pictures.values())]
        assert all(said)
        assert not any(re.search(r"\s{2,}", text) for text in said)


def test_a_comparison_shows_every_table(tmp_path):
    rows = [row(mean=0.5), row("b", mean=0.6), row(metric="crps"), row("b", metric="crps")]
    (tmp_path / "results.json").write_text(json.dumps(results("compare", rows, verdict="Use a.")))
    write_comparison(tmp_path, tmp_path / "report.html")
    found = Checked((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert found.text.index("Use a.") < found.text.index("Mean squared error") < found.text.index("Continuous ranked")
    assert "The experiments of the paper" not in found.text
    assert [summary for summary, _ in found.tags].count("details") == 3  # seconds, settings, versions


# --- tables by what is varied


def test_a_table_for_each_thing_that_is_varied():
    rows = [row(setting="ñ = 5"), row(setting="m = 10"), row(setting="m = 100"), row(setting="20"), row(setting="GCS")]
    titles = [(grid.title, grid.settings) for grid in make_grids(rows)]
    error = "Mean squared error (lower is better)"
    assert titles == [(error, ["ñ = 5", "ñ = 20"]), (f"{error}, by m", ["10", "100"]), (error, ["GCS"])]


def test_figures_whose_magnitude_matters_are_shown_down_to_zero():
    rows = [row(metric="distance", setting="written = permuted", mean=mean, method=str(mean)) for mean in (3e-16, 0.0)]
    (grid,) = make_grids(rows)
    assert [line[0][0].text for line in grid.lines.values()] == ["3e-16", "0"]
    assert not grid.has_best


def test_references_come_last_whatever_the_order_of_the_rows():
    rows = [row(method=name) for name in ("linear limit", "vanilla", "last value", "maml")]
    (grid,) = make_grids(rows)
    assert list(grid.lines) == ["vanilla", "maml", "linear limit", "last value"]
