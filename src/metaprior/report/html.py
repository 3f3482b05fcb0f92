"""HTML as nested calls: text is escaped unless it is already HTML, so that nothing can be forgotten."""

from __future__ import annotations

from html import escape

VOID = ("img", "meta")


class Html(str):
    """Text that is HTML already."""


def tag(element: str, /, *children: str, **attributes: str) -> Html:
    """An element. `class_` stands for `class`, `aria_label` for `aria-label`.

    An attribute's value is always escaped, a child unless it is `Html`.
    """
    text = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if element in VOID:
        return Html(f"<{element}{text}>")
    return Html(f"<{element}{text}>{join(children)}</{element}>")


def join(children: tuple[str, ...] | list[str], between: str = "") -> Html:
    """Several pieces in a row."""
    return Html(between.join(child if isinstance(child, Html) else escape(child) for child in children))
