"""What a stranger sees of the package: one version everywhere, versions that are pinned, links that lead somewhere."""

import re
import tomllib
from pathlib import Path

import metaprior
from docs.site_parts.links import broken

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version_everywhere():
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    told = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited[1] == told[1] == metaprior.__version__


def test_what_is_needed_to_build_and_to_document_is_pinned():
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = PROJECT["project"]["optional-dependencies"]
    for extra in ("docs", "dist", "dev"):
        names = {re.match(r"[\w-]+", one)[0].lower() for one in extras[extra]}
        assert names <= pinned, f"{extra}: {names - pinned}"


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "there.html").write_text('<h2 id="here">x</h2>')
    (tmp_path / "index.html").write_text(
        '<a href="there.html#here"></a><a href="there.html#gone"></a><a href="away.html"></a><img src="no.png">'
        '<a href="https://example.org/x"></a><a href="#top"></a><p id="top"></p><a href="../outside.html"></a>'
    )
    assert list(broken(tmp_path)) == [
        f"index.html: {link}" for link in ("there.html#gone", "away.html", "no.png", "../outside.html")
    ]
