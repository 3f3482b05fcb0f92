"""Faults: processes killed at random moments, full disks, files that vanish, little memory. Nothing may be lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from campaign.faults.jobs import JOBS
from campaign.faults.planted import PLANTED
from campaign.faults.warm import asked_of_a_process
from campaign.parts import Check, Effort, Section, Table

KILLS, FRESH, OTHERS = 900, 102, 540
"""Kills of children of a process that has imported everything, kills of fresh processes, and tries of other faults."""

EACH = 65
"""Kills, or tries of other faults, that one process and its children do."""

LEAST = 3
"""Kills, and tries of other faults, of the smallest campaign."""

PLANTED_KILLS = 60
"""Kills by which an error that was put in on purpose has to be found."""

HOW = """Small jobs are killed (SIGKILL) at random moments: {kills:,} of them in children of a process that has imported
everything, which run the real command line, at a moment that is uniform over the time that the job takes, or (four in
ten) when a file is about to be touched, which is left empty if it was to be written anew; and {fresh:,} of them in
fresh processes and their workers (`benchmarks/scale.py --kills`). Often the run that goes on is killed as well. After
each kill every file has to be absent, the old one or the new one, a folder that says it is complete has to be, and a
training that was kept once must be kept still, or the model be there. In the end the command is given again: it has to
come to the bytes of a run without a kill, but for what clocks say, and how pictures are drawn. Small jobs write
checkpoints at every step (usually: every five seconds) and shards in chunks of 60 rows. Then {others:,} tries of other
faults: a small disk that is full ({disk}), a folder that cannot be written, a file that vanishes or is cut short while
it is read, little memory (`RLIMIT_DATA`), signals, two processes that write one model. After each the command has to
have done what it was asked, or to say why not (exit code 2, a line that begins with "error:"; 130 and 143 where it was
asked to end), with what was there before still there; and, given again, to come to the same. (Where memory is short,
numbers of a table may differ in their last digits: products are taken another way then.)"""


def run(effort: Effort) -> Section:
    kills = effort.of(KILLS, LEAST)
    killed = _kills(effort, kills)
    fresh, fresh_wrong = _fresh(effort)
    tried = _others(effort)
    planted = _planted(effort)
    wrong = [said for one in killed.values() for said in one["wrong"]]
    counted = sum(one["kills"] for one in killed.values()) + fresh
    checks = [
        Check(
            "nothing is lost by a kill, and what goes on ends with the same bytes",
            not wrong + fresh_wrong,
            _because(counted, "kills", wrong + fresh_wrong),
        ),
        *_other_checks(tried),
        *(
            Check(f"found, when it is put in: {name}", bool(found), found[0] if found else f"{PLANTED_KILLS} kills")
            for name, found in planted.items()
        ),
    ]
    disk = " and ".join(sorted({one["how"].split(",")[0] for one in tried if one["fault"] == "full disk"})) or "none"
    how = HOW.format(kills=counted - fresh, fresh=fresh, others=len(tried), disk=disk)
    counts = {"kills": counted, "tries of other faults": len(tried)}
    tables = [_kill_table(killed, fresh, not fresh_wrong), _other_table(tried)]
    return Section("Faults", how, checks, tables, _notes(killed), counts)


def _because(count: int, what: str, wrong: list[str]) -> str:
    return f"{count:,} {what}, {len(wrong)} faults" + "".join(f"; {said}" for said in wrong[:5])


def _kills(effort: Effort, kills: int) -> dict[str, Any]:
    """By job, what came of so many kills; every process has some of all jobs."""
    parts = max(1, round(kills / EACH))
    found: dict[str, Any] = {}
    work = partial(_killed, kills, parts, effort.seed_of(0))
    for _, some in effort.each(work, parts, "kills"):
        for name, one in some.items():
            known = found.setdefault(name, {"wrong": []})
            known["wrong"] += one.pop("wrong")
            for key in ("kills", "ends", "with_checkpoint", "litter"):
                known[key] = known.get(key, 0) + one[key]
    return found


def _killed(kills: int, parts: int, seed: int, part: int) -> Any:
    """The share of one process: kills of each job in turn."""
    own = range(kills * part // parts, kills * (part + 1) // parts)
    wanted = Counter(JOBS[5 * number % len(JOBS)].name for number in own)
    return asked_of_a_process({"what": "kills", "kills": wanted, "seed": seed + part})


def _fresh(effort: Effort) -> tuple[int, list[str]]:
    """Kills of fresh processes: shards made, learned from and predicted, by two workers."""
    parts = effort.of(FRESH, 0) // 6
    kills, wrong = 0, []
    for _, said in effort.each(partial(_killed_fresh, effort.seed_of(1)), parts, "kills of fresh processes"):
        kills += sum(int(count) for count in re.findall(r"(\d+) kills, \d+ times", said))
        wrong += re.findall(r".*, after \d+ kills: exit code.*", said)
    return kills, wrong


def _killed_fresh(seed: int, part: int) -> str:
    script = Path(__file__).parents[2] / "benchmarks" / "scale.py"
    words = [sys.executable, "-W", "ignore", str(script), "--kills", "2", "--tasks", "4500", "--rows", "18000"]
    words += ["--buckets", "12", "--seed", str((seed + part) % 2**31)]
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path)
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    if done.returncode and "other bytes" not in done.stderr:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


def _others(effort: Effort) -> list[dict[str, Any]]:
    tries = effort.of(OTHERS, LEAST)
    parts = max(1, round(tries / EACH))
    work = partial(_tried, tries, parts, effort.seed_of(2))
    return [one for _, some in effort.each(work, parts, "other faults") for one in some]


def _tried(tries: int, parts: int, seed: int, part: int) -> Any:
    numbers = [17 * number for number in range(tries * part // parts, tries * (part + 1) // parts)]
    return asked_of_a_process({"what": "others", "numbers": numbers, "seed": seed})


def _planted(effort: Effort) -> dict[str, list[str]]:
    names = list(PLANTED)[: effort.of(300)]
    work = partial(_found_planted, effort.seed_of(3))
    return {names[k]: found for k, found in effort.each(work, len(names), "planted errors")}


def _found_planted(seed: int, number: int) -> list[str]:
    name = list(PLANTED)[number]
    job = PLANTED[name][1]
    asked = {"what": "kills", "kills": {job: PLANTED_KILLS}, "seed": seed, "planted": name}
    found: list[str] = asked_of_a_process(asked)[job]["wrong"]
    return found


def _other_checks(tried: list[dict[str, Any]]) -> list[Check]:
    checks = []
    for fault in dict.fromkeys(one["fault"] for one in tried):
        own = [one for one in tried if one["fault"] == fault]
        wrong = [f"{one['job']} ({one['how']}): {one['wrong']}" for one in own if one["wrong"]]
        checks.append(Check(f"{fault}: told clearly, and nothing lost", not wrong, _because(len(own), "tries", wrong)))
    return checks


def _kill_table(killed: dict[str, Any], fresh: int, fresh_holds: bool) -> Table:
    rows = [
        (name, one["kills"], one["ends"], one["with_checkpoint"], one["litter"], not one["wrong"])
        for name, one in killed.items()
    ]
    columns = ("job", "kills", "gone on with to the end", "kills after a checkpoint", "left a hidden file", "holds")
    rows.append(("shard, fit and predict of shards, fresh processes", fresh, None, None, None, fresh_holds))
    return Table("Kills", columns, tuple(rows))


def _other_table(tried: list[dict[str, Any]]) -> Table:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in tried:
        ended = "done" if one["code"] == 0 else "told" if one["code"] in (2, 130, 143) else "other"
        counts.setdefault((one["fault"], one["job"]), Counter())[ended if not one["wrong"] else "other"] += 1
    rows = tuple((*pair, found["done"], found["told"], found["other"]) for pair, found in sorted(counts.items()))
    return Table("Other faults", ("fault", "job", "done all the same", "told", "neither"), rows)


def _notes(killed: dict[str, Any]) -> list[str]:
    left = sum(one["litter"] for one in killed.values())
    return [
        "A process that is killed while it writes leaves a hidden file (`.NUMBER.NAME`) beside the one it was writing: "
        f"{left} of the folders had one in the end. No later run reads it or trips over it, and none removes it, but "
        "in folders of shards and of predictions.",
        "Nothing is asked of the disk (`fsync`) before a file is moved to its place: what holds here holds for "
        "processes that end, not for machines that lose their power.",
        "A table of text that is cut short while it is read may be taken for a smaller table: nothing in it says where "
        "it ends. `shard` notices by the file's time, other formats by their own ends.",
    ]
