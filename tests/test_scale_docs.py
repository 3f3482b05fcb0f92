"""The examples of docs/scale-predicting.md, with stand-ins for the engines that cut and divide rows as these do."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metaprior import MetaGP, shard
from tests.test_streams import check_equal, table_of

PAGE = (Path(__file__).parent.parent / "docs" / "scale-predicting.md").read_text()
AT = [30.0, 36.0, 42.0, 48.0]


def examples(title):
    """The examples under a title, up to the next."""
    text = re.split(r"\n##+ ", PAGE.split(f"# {title}\n")[1])[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    """Sixty patients, rows in random order, and a model of them."""
    monkeypatch.chdir(tmp_path)
    table = table_of(60, 6).rename_columns(["patient", "hour", "pulse"])
    table = table.set_column(1, "hour", pc.multiply(table["hour"], 4.0))
    gp = MetaGP("zero", "rbf", max_epochs=5, progress=False).fit(table, task="patient", x="hour", y="pulse")
    gp.save("pulse.metaprior")
    return table.take(pa.array(np.random.default_rng(0).permutation(len(table))))


def check_predictions(rows, found):
    whole = MetaGP.load("pulse.metaprior").predict(rows, AT)
    order = [("patient", "ascending"), ("hour", "ascending")]
    check_equal(found.cast(whole.schema).sort_by(order), whole.sort_by(order))
    assert len(set(whole["mean"].to_pylist())) > 60


def partitions(rows, count):
    """The rows of a task in one of them; some are empty."""
    place = np.array([int(name[1:]) % count for name in rows["patient"].to_pylist()])
    return [rows.filter(pa.array(place == k)) for k in range(count)]


class SparkRows:
    """A frame as Spark has it: partitions, which come in batches of so many rows."""

    def __init__(self, rows):
        self.rows, self.write = rows, self

    def repartition(self, count, column):
        assert column == "patient"
        self.partitions = partitions(self.rows, count)
        return self

    def mapInArrow(self, function, schema):  # noqa: N802
        found = []
        for some in self.partitions:
            batches = some.combine_chunks().to_batches(max_chunksize=7) if some.num_rows else []
            found += function(iter(batches))
        self.found = pa.Table.from_batches(found)
        kinds = {"string": pa.string(), "double": pa.float64()}
        assert self.found.schema.equals(
            pa.schema([(name, kinds[kind]) for name, kind in map(str.split, schema.split(","))])
        )
        return self

    def parquet(self, name):
        pq.write_table(self.found, name)


class DaskRows:
    """A frame as Dask has it: partitions that are pandas frames."""

    def __init__(self, rows):
        self.rows = rows

    def shuffle(self, column):
        assert column == "patient"
        self.partitions = [some.to_pandas() for some in partitions(self.rows, 7)]
        return self

    def map_partitions(self, function):
        self.found = [pa.Table.from_pandas(function(some), preserve_index=False) for some in self.partitions]
        return self

    def to_parquet(self, name):
        pq.write_table(pa.concat_tables(self.found), name)


@pytest.mark.parametrize(("title", "engine"), [("Spark", SparkRows), ("Dask", DaskRows)])
def test_the_examples_under_an_engine_run(title, engine, rows):
    found = {"rows": engine(rows)}
    function, call = examples(title)
    exec(function, found)
    exec(call, found)
    check_predictions(rows, pq.read_table("predictions").replace_schema_metadata())


def test_the_example_of_one_bucket_runs(rows, capsys):
    pq.write_table(rows, "rows.parquet")
    shard("rows.parquet", "shards", task="patient", buckets=3, progress=False)
    Path("predictions").mkdir()
    (example,) = examples("Bucket by bucket")
    exec(example, found := {})
    tasks, points = map(int, capsys.readouterr().out.split())
    assert points == 25 * tasks == pq.read_table("predictions/part-00000.parquet").num_rows
    assert 5 < tasks < 60
    assert found["done"].bucket == 0
