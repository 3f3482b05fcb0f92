"""`metaprior shard`: a table that does not fit, as a folder of buckets of whole tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.filesize import decimal

from metaprior.cli.common import Screen
from metaprior.data import Manifest, shard

LARGE = 1 << 29
"""Bytes of a bucket from which on more of them are advised."""


def shard_table(
    table: str,
    out: Path,
    task: Sequence[str],
    *,
    buckets: int,
    columns: Sequence[str] | None,
    text: Sequence[str],
    delimiter: str | None,
    overwrite: bool,
    screen: Screen,
) -> None:
    """Write the shards, and say what they are."""
    options = {"buckets": buckets, "columns": columns, "text": text, "delimiter": delimiter, "overwrite": overwrite}
    try:
        shard(table, out, task=task, **options, progress=not screen.quiet)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        screen.say("stopped; what is done is kept: give the same command again to go on.")
        raise
    manifest = Manifest.read(out)
    filled = [bucket for bucket in manifest.buckets if bucket.tasks]
    sizes = f"{min(one.smallest for one in filled):,} to {max(one.largest for one in filled):,} rows"
    size, largest = sum(one.bytes for one in manifest.buckets), max(one.bytes for one in manifest.buckets)
    screen.say(
        f"{table}: {manifest.rows:,} rows, {manifest.tasks:,} tasks of {sizes} ({', '.join(manifest.task)}), in "
        f"{len(manifest.buckets):,} buckets ({decimal(size)}, the largest {decimal(largest)})"
    )
    if largest > LARGE:
        screen.say("note: a bucket is read as a whole: with more --buckets, learning and predicting take less memory.")
    screen.say(f"written to {out}. Next: metaprior fit {out} --x COLUMN --y COLUMN --out model.metaprior")
    screen.result(
        {"shards": str(out), "tasks": manifest.tasks, "rows": manifest.rows, "buckets": len(manifest.buckets)}
    )
