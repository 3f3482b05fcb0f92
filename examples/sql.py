"""From a query straight to a prior: nothing is exported, and the answer can be queried again.

    pip install 'metaprior[sql]'
    python examples/sql.py

A database as a ship's log has it: a table of readings in local units, and one of the ships that took them. The query
joins, filters and converts; its result is learned from and predicted as it is, of DuckDB and of SQLite alike.
The same by the command line: metaprior fit --db log.sqlite --sql "select …" --task year --x month --y celsius
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from metaprior import MetaGP
from metaprior.data import Query, embedded_table, read_table
from metaprior.tasks import Columns

READINGS = """
    select year, month, avg((fahrenheit - 32) / 1.8 + ships.bias) as celsius
    from readings join ships using (ship)
    where {}
    group by year, month
    order by year, month
"""


def rows() -> list[tuple[int, int, float, str]]:
    """Each month's temperature as two ships log it, of which one reads half a degree too low."""
    found = embedded_table("elnino").to_pylist()
    return [
        (one["year"], one["month"], (one["temperature"] - bias) * 1.8 + 32, ship)
        for one in found
        for ship, bias in (("Esperanza", 0.0), ("Niña", 0.5))
    ]


def sqlite_log(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("create table readings (year integer, month integer, fahrenheit real, ship text)")
        base.executemany("insert into readings values (?, ?, ?, ?)", rows())
        base.execute("create table ships (ship text, bias real)")
        base.executemany("insert into ships values (?, ?)", [("Esperanza", 0.0), ("Niña", 0.5)])
    base.close()


def duckdb_log() -> Any:
    base = duckdb.connect()
    base.execute("create table readings (year int, month int, fahrenheit double, ship varchar)")
    base.executemany("insert into readings values (?, ?, ?, ?)", rows())
    base.execute("create table ships as select * from (values ('Esperanza', 0.0), ('Niña', 0.5)) as t(ship, bias)")
    return base


def main() -> Any:
    base = duckdb_log()
    gp = MetaGP("deep", "rbf", progress=False).fit(
        base.sql(READINGS.format("year < 2009")), task="year", x="month", y="celsius"
    )
    begun = base.sql(READINGS.format("year >= 2009 and month <= 3"))
    ahead = gp.predict(begun, [6, 9, 12])  # an Arrow table
    base.register("ahead", ahead)
    joined = base.sql(f"""
        select year, month, round(mean, 2) as mean, round(lower, 2) as lower, round(upper, 2) as upper,
               round(celsius, 2) as truth
        from ahead join ({READINGS.format("true")}) using (year, month) order by year, month
    """)
    print(joined)

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.sqlite"
        sqlite_log(log)
        query = Query(READINGS.format("year >= 2009 and month <= 3"), str(log))
        table = read_table(query, Columns(("year",), ("month",), ("celsius",)))
        print(gp.predict(table, [6, 9, 12]).to_pandas().round(2))
    return joined.fetchall()


if __name__ == "__main__":
    main()
