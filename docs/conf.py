"""How the documentation site is built: `make site`."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.site_parts.docstrings import as_rest, skip_others
from docs.site_parts.gallery import first_on_top

project = "metaprior"
author = project_copyright = "The metaprior developers"
release = version = installed("metaprior")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["results", "gallery/*.ipynb", "gallery/*.zip"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
default_role = "code"

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "docs.site_parts.gallery.in_order",
    "image_scrapers": ("docs.site_parts.gallery.all_but_the_first",),
    "capture_repr": ("_repr_html_",),
    "abort_on_example_error": True,
    "parallel": 2,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "default_thumb_file": str(Path(__file__).parent / "figures" / "samples.png"),
}

templates_path = ["site_parts/templates"]
html_theme = "pydata_sphinx_theme"
html_title = "metaprior"
html_static_path = ["site_parts/static"]
html_css_files = ["metaprior.css"]
html_extra_path = ["elnino.html"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_center": ["navbar-nav"],
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
    "show_prev_next": False,
}


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_rest)
    app.connect("autodoc-skip-member", skip_others)
    app.connect("source-read", first_on_top)
