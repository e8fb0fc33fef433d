"""The field with 256 elements in which parity is computed, its elements written as Leopard FF8 writes them.

An element is a byte whose bits are coordinates over a Cantor basis v0 … v7 (where v_i² + v_i = v_(i-1), and
v0 = 1); addition is xor. In this writing the polynomial x² + x is a shift by one bit, which is what makes the
transform in `leopard` so cheap.
"""

from __future__ import annotations

from functools import cache
from typing import Final

_POLYNOMIAL: Final = 0x11D
_CANTOR_BASIS: Final = (1, 214, 152, 146, 86, 200, 88, 230)
_ORDER: Final = 255
"""Of the multiplicative group."""


def _logarithms() -> tuple[list[int], list[int]]:
    usual = [0] * 256  # the element in the usual writing, as a polynomial
    for element in range(256):
        for bit, vector in enumerate(_CANTOR_BASIS):
            if element >> bit & 1:
                usual[element] ^= vector
    element_of = {polynomial: element for element, polynomial in enumerate(usual)}
    log, exp = [0] * 256, [0] * _ORDER
    power = 1
    for exponent in range(_ORDER):
        element = element_of[power]
        exp[exponent], log[element] = element, exponent
        power <<= 1
        if power > 255:
            power ^= _POLYNOMIAL
    return log, exp


_LOG, _EXP = _logarithms()


def multiply(left: int, right: int) -> int:
    """The product of two elements."""
    if not left or not right:
        return 0
    return _EXP[(_LOG[left] + _LOG[right]) % _ORDER]


def divide(left: int, right: int) -> int:
    """The quotient of two elements; `right` is not zero."""
    if not right:
        raise ZeroDivisionError("zero has no inverse")
    return 0 if not left else _EXP[(_LOG[left] - _LOG[right]) % _ORDER]


@cache  # at most 256 tables of 256 bytes
def products_with(factor: int) -> bytes:
    """The products of `factor` with every element: what `bytes.translate` takes to multiply a whole shard."""
    return bytes(multiply(factor, element) for element in range(256))
