"""Sums of points on secp256k1, which recovering a signer's key takes and no library here offers.

Only used with what every reader of a message knows (a signature, what was signed, a public key): it need not
take the same time for all numbers, for no secret key comes here.
"""

from __future__ import annotations

from typing import Final

from pywaku.keys import SECP256K1_ORDER

FIELD: Final = 2**256 - 2**32 - 977
"""Coordinates are numbers modulo this prime; a point (x, y) has y² = x³ + 7."""

Point = tuple[int, int]

GENERATOR: Final[Point] = (
    0x79BE667E_F9DCBBAC_55A06295_CE870B07_029BFCDB_2DCE28D9_59F2815B_16F81798,
    0x483ADA77_26A3C465_5DA4FBFC_0E1108A8_FD17B448_A6855419_9C47D08F_FB10D4B8,
)

_Jacobian = tuple[int, int, int]  # stands for (x / z², y / z³), so that adding takes no division
_NOWHERE: Final[_Jacobian] = (1, 1, 0)  # the neutral element


def point_of(x: int, *, odd: bool) -> Point | None:
    """The point with this x and an odd or even y; None if there is none on the curve."""
    if not 0 <= x < FIELD:
        return None
    square = (x * x * x + 7) % FIELD
    y = pow(square, (FIELD + 1) // 4, FIELD)
    if y * y % FIELD != square:
        return None
    return x, y if y & 1 == odd else FIELD - y


def combine(of_generator: int, of_point: int, point: Point) -> Point | None:
    """`of_generator`·G + `of_point`·P; None where that is the point at infinity."""
    first, second = of_generator % SECP256K1_ORDER, of_point % SECP256K1_ORDER
    steps = (None, GENERATOR, point, _affine(_add((*GENERATOR, 1), point)))
    total = _NOWHERE
    for bit in range(max(first.bit_length(), second.bit_length()) - 1, -1, -1):
        total = _double(total)
        step = steps[first >> bit & 1 | (second >> bit & 1) << 1]
        if step is not None:
            total = _add(total, step)
    return _affine(total)


def _double(point: _Jacobian) -> _Jacobian:
    x, y, z = point
    yy = y * y % FIELD
    s = 4 * x * yy % FIELD
    m = 3 * x * x % FIELD
    x2 = (m * m - 2 * s) % FIELD
    return x2, (m * (s - x2) - 8 * yy * yy) % FIELD, 2 * y * z % FIELD


def _add(point: _Jacobian, other: Point) -> _Jacobian:
    x, y, z = point
    if z == 0:
        return *other, 1
    zz = z * z % FIELD
    h = (other[0] * zz - x) % FIELD
    r = (other[1] * zz * z - y) % FIELD
    if h == 0:
        return _double(point) if r == 0 else _NOWHERE
    hh = h * h % FIELD
    hhh = h * hh % FIELD
    w = x * hh % FIELD
    x3 = (r * r - hhh - 2 * w) % FIELD
    return x3, (r * (w - x3) - y * hhh) % FIELD, z * h % FIELD


def _affine(point: _Jacobian) -> Point | None:
    x, y, z = point
    if z == 0:
        return None
    inverse = pow(z, -1, FIELD)
    square = inverse * inverse % FIELD
    return x * square % FIELD, y * square * inverse % FIELD
