"""Past what fits into memory: shards predicted bucket by bucket, on one machine or many."""

from metaprior.bulk.bucket import Done, Question, Ready, predict_bucket, ready, where_of
from metaprior.bulk.running import Engine, alone, predict_shards, together

__all__ = [
    "Done", "Engine", "Question", "Ready", "alone", "predict_bucket", "predict_shards", "ready", "together", "where_of",
]  # fmt: skip
