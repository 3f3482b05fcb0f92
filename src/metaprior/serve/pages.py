"""The pages of a server: what there is, and signing in. The page of a model is the live one."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from metaprior.report import Html, html_page, tag
from metaprior.serve.models import Served


def index_page(models: Iterable[Served]) -> str:
    """The models, each with what it predicts."""
    items = []
    for one in models:
        columns = one.columns
        what = f"{', '.join(columns.y)} by {', '.join(columns.x)}, for a new {' and '.join(columns.task)}"
        learned = f"learned from {one.gp.trained_on_.tasks:,} tasks"
        place = f"/models/{quote(one.name)}"
        links = [
            tag("a", one.name, href=f"{place}/"),
            f": {what}; {learned}. ",
            tag("a", "About it", href=f"{place}/about"),
        ]
        notes = [tag("p", note, class_="notes") for note in one.notes]
        items.append(tag("li", *links, *notes))
    programs = tag(
        "p", "For programs: ", tag("a", "/openapi.json", href="/openapi.json"), " describes what can be asked."
    )
    return html_page("metaprior", tag("main", tag("h1", "Models"), tag("ul", *items), programs))


def sign_in_page(wrong: bool) -> str:
    """Asks for the token."""
    field = '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
    form = Html(
        '<form method="post" action="/sign-in"><p><label for="token">Token</label> '
        f'{field} <button type="submit">Sign in</button></p></form>'
    )
    said = [tag("p", "That is not the token.", role="alert")] if wrong else []
    return html_page("Sign in", tag("main", tag("h1", "Sign in"), *said, form))
