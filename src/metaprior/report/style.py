"""How the page looks: one column, tables that scroll on a phone, light and dark."""

STYLE = """
:root { --ink: #1c2127; --soft: #5b636d; --line: #d5d9de; --paper: #fff; --shade: #f4f6f8;
  --good: #14713d; --bad: #b3261e; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7eaee; --soft: #a4acb6; --line: #3a424c; --paper: #14181d; --shade: #1e242b;
    --good: #5fd08b; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 80rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
p { max-width: 48rem; margin: .6rem 0; }
.legend { background: var(--shade); padding: .3rem 1rem; border-radius: .4rem; font-size: .92rem; max-width: 52rem; }
.facts, .aside, .notes { color: var(--soft); font-size: .92rem; }
.claims { list-style: none; margin: 0; padding: 0; max-width: 52rem; }
.claims > li { display: flex; gap: .75rem; padding: .5rem 0; border-bottom: 1px solid var(--line); }
.claims > li > .sign { font-size: 1.2rem; line-height: 1.3; }
.claims div > span { display: block; }
.yes, .better { color: var(--good); }
.no, .worse { color: var(--bad); }
.sign { font-weight: 700; }
.scroll { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .35rem; }
caption > span { display: block; max-width: calc(100vw - 2rem); }
th, td { padding: .28rem .45rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; }
thead th { border-bottom: 1px solid var(--line); }
thead th[scope=colgroup] { text-align: center; }
tr:first-child th:first-child, tbody th { text-align: left; position: sticky; left: 0; background: var(--paper); }
tbody th { font-weight: 400; }
tbody tr { border-bottom: 1px solid var(--line); }
.pairs tr:first-child th:nth-child(even), .pairs td:nth-child(4n+2), .pairs td:nth-child(4n+3),
.pairs tr:nth-child(2) th:nth-child(4n+1):not([scope=row]), .pairs tr:nth-child(2) th:nth-child(4n+2)
  { background: var(--shade); }
td.paper, th.paper, .reference th, .reference td { color: var(--soft); }
.reference th { font-style: italic; }
.entries td, .entries th { text-align: left; vertical-align: top; white-space: normal; position: static; }
.entries .scroll { margin: 0; }
figure { margin: 1.75rem 0; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: .3rem; padding: .4rem; }
figcaption { color: var(--soft); font-size: .92rem; max-width: 48rem; margin-top: .4rem; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: var(--soft); }
a { color: inherit; }
@media print { main { max-width: none; padding: 0; } .scroll { overflow: visible; } table { font-size: .72rem; }
  figure, .claims > li, tr { break-inside: avoid; } details::details-content { content-visibility: visible; } }
"""
