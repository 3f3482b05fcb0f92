"""How inputs are spoilt: bytes, and values of JSON, by a seeded generator."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

LARGEST = 1 << 16
"""Bytes of a mutated input; what is meant to be larger says so."""

SIGNS = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b'"',
    b"'",
    b",",
    b";",
    b"\t",
    b"|",
    b"\n",
    b"\r",
    b"\r\n",
    b" ",
    b"\\",
    b"=",
)
STARTS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"ARROW1\0", b"{", b"[", b"#")
WHOLE = (
    0, 1, -1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
NUMBERS = (
    "0", "1", "-1", "3", "0.5", "-0.0", "1e-320", "5e-324", "1e300", "-1e300", "1e308", "1e309", "1e400", "-1e400",
    "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e", "1e+", "+", "-", ".", "0x1F", "1_000", "1,5", "1.2.3",
    "00007", "1e5000", "9007199254740993", "9223372036854775808", "1e22", "1e-400", "１２", "٣", "½", "²", "1٫5", "−3",
    "1e1000000000", "NA", "N/A", "null", "None", "true", "FALSE", "#N/A", "1f", "1d", "0b1", "0o7", "1j", "12:30",
    "1/3", "1%", "$5",
)  # fmt: skip
MOMENTS = (
    "2020-02-29", "2021-02-29", "2020-13-01", "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "-0044-03-15",
    "2020-01-01T24:00", "2020-01-01T23:59:60", "2020-01-01T00:00:00.000000001", "2020-01-01T00:00Z",
    "2020-01-01T00:00+25:00", "1970-01-01", "2020-03", "2020", "28.03.2020", "03/04/2020", "31/12/2020", "12/31/2020",
    "Mar,2020", "24:00", "23:59:59.9999999", "-1:00", "00:00", "1677-09-21", "2262-04-12", "NaT",
)  # fmt: skip
TEXTS = (
    "", " ", "a", "a b", '"', '""', '"a', "a\nb", "a,b", "\ufeff", "\u202e", "\u0000", "é", "𝕏", "\u2028", "=1+1", "'",
    "../..", "/etc/passwd", "-", "--", "--out", "%s%n", "{}", "{0}", "[red]", "[/]", "\x1b[31m", "task", "x", "y",
    "mean", "sd", "lower", "nan", "None", "\\", "\t", "a" * 300, "9" * 400, "ß" * 40,
)  # fmt: skip
ODD_BYTES = (b"\xed\xa0\x80", b"\xff", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe9", b"\0\0\0\0", b"\x1a")


def token(rng: Random) -> str:
    """A value as nobody should write it."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind == 3:
        return rng.choice(MOMENTS)
    if kind == 4:
        return rng.choice(TEXTS)
    if kind == 5:
        return str(rng.choice((1, -1)) * rng.random() * 10.0 ** rng.randint(-320, 308))
    if kind == 6:
        return str(rng.randint(-(10 ** rng.randint(1, 30)), 10 ** rng.randint(1, 30)))
    return "".join(rng.choice("0123456789.eE+-:T/ ,;\"'\n\tnaif") for _ in range(rng.randint(1, 12)))


def token_bytes(rng: Random) -> bytes:
    """The same, at times in no encoding."""
    return rng.choice(ODD_BYTES) if rng.random() < 0.1 else token(rng).encode("utf-8", "surrogatepass")


def mutated(content: bytes, rng: Random, most: int = 4) -> bytes:
    """Bytes with one to some changes."""
    for _ in range(rng.randint(1, most)):
        content = rng.choice(CHANGES)(content, rng)[:LARGEST]
    return content


def _place(content: bytes, rng: Random) -> int:
    return rng.randrange(len(content)) if content else 0


def _part(content: bytes, rng: Random) -> tuple[int, int]:
    start = _place(content, rng)
    return start, min(len(content), start + 1 + int(rng.expovariate(1 / 12)))


def _flipped(content: bytes, rng: Random) -> bytes:
    if not content:
        return content
    at = _place(content, rng)
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def _replaced(content: bytes, rng: Random) -> bytes:
    start, stop = _part(content, rng)
    return content[:start] + _new(rng) + content[stop:]


def _inserted(content: bytes, rng: Random) -> bytes:
    at = rng.choice((0, len(content), _place(content, rng)))
    return content[:at] + _new(rng) + content[at:]


def _new(rng: Random) -> bytes:
    return rng.choice((rng.choice(SIGNS), rng.choice(STARTS), token_bytes(rng), rng.randbytes(rng.randint(1, 8))))


def _dropped(content: bytes, rng: Random) -> bytes:
    start, stop = _part(content, rng)
    return content[:start] + content[stop:]


def _cut(content: bytes, rng: Random) -> bytes:
    return content[: _place(content, rng)] if rng.random() < 0.7 else content[_place(content, rng) :]


def _repeated(content: bytes, rng: Random) -> bytes:
    start, stop = _part(content, rng)
    return content[:stop] + content[start:stop] * rng.choice((1, 2, 10, 1000)) + content[stop:]


def _moved(content: bytes, rng: Random) -> bytes:
    (a, b), (c, _) = _part(content, rng), _part(content, rng)
    taken, rest = content[a:b], content[:a] + content[b:]
    return rest[:c] + taken + rest[c:]


def _number(content: bytes, rng: Random) -> bytes:
    """A whole number of 1 to 8 bytes that may be a length, a count or a place."""
    size, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
    value = (rng.choice(WHOLE) + rng.choice((0, 0, 1, -1))) % (1 << 8 * size)
    at = _place(content, rng)
    return content[:at] + value.to_bytes(size, order) + content[at + size :]  # type: ignore[arg-type]


CHANGES = (_flipped, _flipped, _replaced, _inserted, _dropped, _cut, _repeated, _moved, _number, _number)


def odd_value(rng: Random) -> Any:
    """A value of JSON that is not expected."""
    return rng.choice(
        (
            None, True, False, 0, 1, -1, 2, 0.5, -2.5, 1e308, -1e308, 1e-320, float("nan"), float("inf"), float("-inf"),
            10**30, 2**63, 2**31, 100_000_000, "", "a", "0x1p+4", "deep", "\ud800", "a" * 1000, [], {}, [[]], [None],
            {"a": 1}, [1, 2, 3], token(rng), token(rng), rng.choice(DEEP),
        )
    )  # fmt: skip


DEEP = ("<deep 3>", "<deep 60>", "<deep 3000>", "<deep 200000>")
"""What stands for lists in lists, which no encoder writes."""


def dumped(value: Any, *, ascii_only: bool = True) -> str:
    """A value as JSON, with its lists in lists."""
    found = json.dumps(value, ensure_ascii=ascii_only)
    return re.sub(r'"<deep (\d+)>"', lambda match: "[" * int(match[1]) + "1" + "]" * int(match[1]), found)


def mutated_json(value: Any, rng: Random, most: int = 2) -> Any:
    """The same tree with one to some values, keys or parts of lists that are others."""
    for _ in range(rng.randint(1, most)):
        value = _changed_at(value, rng.choice(_paths(value)), rng)
    return value


def _paths(value: Any) -> list[tuple[Any, ...]]:
    """The ways to all values of a tree."""
    found: list[tuple[Any, ...]] = [()]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        found += [(key, *path) for path in _paths(part)]
        if len(found) > 3000:
            break
    return found


def _changed_at(value: Any, path: Sequence[Any], rng: Random) -> Any:
    if path:
        key, rest = path[0], path[1:]
        if isinstance(value, dict):
            if not rest and rng.random() < 0.3:
                return _changed_key(value, key, rng)
            return value | {key: _changed_at(value[key], rest, rng)}
        if not rest and rng.random() < 0.3:
            return rng.choice((value[:key], value[:key] + value[key + 1 :], [*value, value[key]], value[::-1]))
        return [*value[:key], _changed_at(value[key], rest, rng), *value[key + 1 :]]
    return _changed_value(value, rng)


def _changed_key(value: dict[str, Any], key: str, rng: Random) -> dict[str, Any]:
    rest = {name: one for name, one in value.items() if name != key}
    if rng.random() < 0.5:
        return rest
    return rest | {rng.choice((token(rng), key + "_", key.upper(), *value)): value[key]}


def _changed_value(value: Any, rng: Random) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        with_more = (value + 1, value - 1, -value, 2 * value + 1, value * 1_000_000, float(value), str(value), [value])
        return rng.choice(with_more)
    if isinstance(value, str) and value and rng.random() < 0.5:
        return rng.choice((value[:-1], value + value, value.upper(), value + "\n", value.replace("0", "9"), [value]))
    return odd_value(rng)


def packed_number(value: int, size: str = "<I") -> bytes:
    """A whole number as a file has it."""
    return struct.pack(size, value % (1 << 8 * struct.calcsize(size)))
