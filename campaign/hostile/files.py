"""Files of ours: models, checkpoints and shards, spoilt, and signed again so that what is inside is looked at."""

from __future__ import annotations

import json
import math
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save
from torch import Tensor

from campaign.hostile.contract import Family, Place
from campaign.hostile.home import MODELS, RESUMED, past
from campaign.hostile.mutations import dumped, mutated, mutated_json
from metaprior import MetaGP, Shards, load
from metaprior.files import _checksum
from metaprior.report import facts_of, model_figures
from metaprior.selection import portrait
from metaprior.tasks import Possible

KINDS = (*MODELS, "dated", "whole", "two", "about")


# ---- models ---------------------------------------------------------------------------------------------------------


def make_model(rng: Random, place: Place) -> bytes:
    """A model file with other bytes, another header, or other tensors."""
    name = rng.choice(KINDS)
    if name in ("hierarchical", "auto") and rng.random() < 0.8:  # files that are ten times as large
        name = "deep"
    return spoilt((place.home / f"{name}.metaprior").read_bytes(), rng)


def spoilt(content: bytes, rng: Random) -> bytes:
    """A file of ours, altered: bits, lengths, headers; or its structure or tensors, with a checksum that is right."""
    kind = rng.randrange(8)
    if kind == 0:
        return mutated(content, rng)
    size = int.from_bytes(content[:8], "little")
    head, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    if kind == 1:
        text = dumped(mutated_json(head, rng, 3)).encode()
        return len(text).to_bytes(8, "little") + text + body
    text, _, _ = head["__metadata__"]["metaprior"].partition("\n")
    header, tensors = json.loads(text), tensors_of(content)
    if kind < 5:
        header = mutated_json(header, rng, 3)
    else:
        for _ in range(rng.randint(1, 3)):
            tensors = _other_tensors(tensors, rng)
    return signed(dumped(header), tensors)


def signed(text: str, tensors: Mapping[str, Tensor]) -> bytes:
    """A file with a checksum that is right."""
    safe = text.encode("utf-8", "replace").decode()
    held = {name: value.clone().contiguous() for name, value in tensors.items()}
    return save(held, {"metaprior": f"{safe}\n{_checksum(safe, held)}"})


def _other_tensors(tensors: dict[str, Tensor], rng: Random) -> dict[str, Tensor]:
    if not tensors:
        return {"new": torch.ones(2)}
    name = rng.choice(sorted(tensors))
    value = tensors[name].clone()
    rest = {key: one for key, one in tensors.items() if key != name}
    kind = rng.randrange(6)
    if kind == 0:
        return rest
    if kind == 1:
        return rest | {rng.choice((name + "x", "new", *tensors)): value}
    if kind == 2:
        shape = rng.choice(((), (0,), (1,), (3, 2), (1, 1, 1), (*value.shape, 1), (*value.shape, 2), value.shape[::-1]))
        return rest | {name: torch.ones(shape, dtype=value.dtype)}
    if kind == 3:
        return rest | {name: value.to(rng.choice((torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool)))}
    flat = value.reshape(-1)
    if len(flat) and value.dtype.is_floating_point:
        odd = rng.choice((0.0, -1.0, 1e300, -1e300, 1e-300, float("nan"), float("inf"), -float("inf"), 1e5, -1e5))
        flat[rng.randrange(len(flat)) if kind == 4 else slice(None)] = torch.tensor(odd).to(value.dtype)
    elif len(flat):
        flat[rng.randrange(len(flat))] = rng.choice((0, 1, 255))
    return rest | {name: value}


def attempt_model(given: bytes, place: Place) -> Iterator[Any]:
    """Load it, look at what it says of itself, and predict."""
    path = place.file(given, "given.metaprior")
    yield from answers(load(path), len(given))


def answers(gp: MetaGP, size: int) -> Iterator[Any]:
    """What a model says of one task of two points and of one of none."""
    facts_of(gp.method_, gp.trained_on_, gp.scores_, size)
    columns = gp.trained_on_.columns
    x, y = np.tile([[1.0], [1.7]], len(columns.x)), np.full((2, len(columns.y)), 0.5)
    about = {one.name: one.levels[0] if one.levels else 33.0 for one in columns.task_x} or None
    for count in (2, 0):
        posterior = gp.condition(x[:count], y[:count], task_x=about).at(np.full((3, len(columns.x)), 2.0))
        yield posterior.mean
        yield posterior.sd.sqrt()  # no deviation is below 0
        lower, upper = posterior.interval(0.9)
        yield from (lower, upper, (upper - lower).sqrt())


def make_portrayed(rng: Random, place: Place) -> bytes:
    """A model file whose targets have ends, some of them others than it was learned with."""
    content = (place.home / "whole.metaprior").read_bytes()
    size = int.from_bytes(content[:8], "little")
    text, _, _ = json.loads(content[8 : 8 + size])["__metadata__"]["metaprior"].partition("\n")
    header = json.loads(text)
    if rng.random() < 0.8:
        ends = sorted(rng.choice((-3.0, -1.0, 0.0, 0.5, 2.0)) + rng.choice((0.0, 1e-9, 1e9)) for _ in range(2))
        lower, upper = (
            end if rng.random() < 0.7 else far for end, far in zip(ends, (-math.inf, math.inf), strict=True)
        )
        header["about"]["trained_on"]["possible"] = [[lower.hex(), upper.hex(), rng.random() < 0.5]]
    else:
        header = mutated_json(header, rng)
    return signed(dumped(header), tensors_of(content))


def attempt_portrayed(given: bytes, place: Place) -> Iterator[Any]:
    """Load it, and look at what pictures of it draw: possible values."""
    gp = load(place.file(given, "given.metaprior"))
    curves = portrait(gp.method_, gp.trained_on_)
    lower, upper, _ = (gp.trained_on_.possible or (Possible(),))[0]
    for name in ("mean", "lower", "upper", "draws"):
        if name in curves and not ((curves[name] >= lower) & (curves[name] <= upper)).all():
            raise RuntimeError(f"{name} from {curves[name].min()} to {curves[name].max()}, not {lower} to {upper}")
    for figure in model_figures(curves, {}, ("x", "y")).values():
        for part in figure.axes[0].collections:  # the band of the prior
            low, high = part.get_datalim(figure.axes[0].transData).intervaly
            if low < lower or high > upper:
                raise RuntimeError(f"a band from {low} to {high}, not {lower} to {upper}")
    yield from (curves[name] for name in ("mean", "lower", "upper", "draws", "covariance") if name in curves)


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def make_checkpoint(rng: Random, place: Place) -> bytes:
    name = rng.choice(tuple(RESUMED))
    return name.encode() + b"\n" + spoilt((place.home / f"{name}.checkpoint").read_bytes(), rng)


def attempt_checkpoint(given: bytes, place: Place) -> Iterator[Any]:
    """Go on from it, and ask what was learned."""
    name, _, content = given.partition(b"\n")
    path = place.file(content, "given.checkpoint")
    gp = RESUMED[name.decode()]().fit(past(), task="task", x="x", y="y", checkpoint=path)
    yield from answers(gp, len(content))


# ---- shards ---------------------------------------------------------------------------------------------------------


def make_shards(rng: Random, place: Place) -> bytes:
    """A manifest and a bucket, one of which is spoilt; the manifest may know the bucket's new size and checksum."""
    home = place.home / "shards"
    manifest = (home / "manifest.json").read_bytes()
    found: dict[str, Any] = json.loads(manifest)
    bucket: bytes = (home / found["buckets"][0]["file"]).read_bytes()
    kind = rng.randrange(4)
    if kind == 0:
        manifest = mutated(manifest, rng)
    elif kind == 1:
        manifest = dumped(mutated_json(found, rng, 3)).encode()
    else:
        bucket = mutated(bucket, rng, 3)
        if kind == 2:
            found["buckets"][0] |= {"bytes": len(bucket), "crc32": f"{zlib.crc32(bucket):08x}"}
            manifest = json.dumps(found).encode()
    return b"%d\n" % len(manifest) + manifest + bucket


def attempt_shards(given: bytes, place: Place) -> Iterator[Any]:
    """Open them, and read every bucket's tasks."""
    size, _, content = given.partition(b"\n")
    folder = place.scratch / "shards"
    if not folder.exists():
        shutil.copytree(place.home / "shards", folder)
    (folder / "manifest.json").write_bytes(content[: int(size)])
    (folder / _first_bucket(place.home)).write_bytes(content[int(size) :])
    found = Shards.open(folder, x="x", y="y", task_x=["age", "diet"])
    for k in range(min(found.count, 4)):
        tasks = found.part(k)
        yield from (tasks.x, tasks.y)
    yield found.sample(5).y


def _first_bucket(home: Path) -> str:
    return str(json.loads((home / "shards" / "manifest.json").read_text())["buckets"][0]["file"])


FAMILIES = (
    Family("model files", "bits, lengths, headers, shapes, values, depth", 80_000, 300, make_model, attempt_model),
    Family("portraits", "what a model's targets can be", 2_000, 100, make_portrayed, attempt_portrayed),
    Family("checkpoints", "the same, of trainings that go on", 15_000, 100, make_checkpoint, attempt_checkpoint),
    Family("shards", "manifests and buckets", 40_000, 300, make_shards, attempt_shards),
)
