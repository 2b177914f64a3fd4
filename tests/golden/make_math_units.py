#!/usr/bin/env python3
"""Writes tests/golden/math_units.h: numbers for tests/test_math_units.c.

Run with Python 3 and mpmath (python3-mpmath):  python3 make_math_units.py > math_units.h
It takes a few seconds. Multiplicities are exact integers, Gegenbauer polynomials are summed with 100
digits, fixed-point numbers are exact integers times 2^-1024 (exponentials rounded down from 400 digits).
Normal numbers are made in Python's floats, every sum and product rounded on its own.
"""

import math
import struct

from mpmath import mp, mpf

from make_kernel import multiplicity, polynomials
from make_loss import philox

mp.dps = 400
SCALE = 1 << 1024


def long_double(x):
    return mp.nstr(x, 24, min_fixed=-4, max_fixed=6) + "L"


def fixed(x):
    """x >= 0 as the hexadecimal digits of floor(x 2^1024), the point 256 digits from the end."""
    return '"%x"' % int(mp.floor(x * SCALE))


def log_in_doubles(x):
    m, e = math.frexp(x)  # m from 1/2 to 1
    if 2 * m <= 2 ** 0.5:
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    total = 0.0
    for k in range(23, 2, -2):
        total = total * (s * s) + 1 / k
    return e * 0.6931471805599453 + 2 * s * (1 + total * (s * s))


def turn_in_doubles(x):
    """sin and cos of 2 pi x."""
    quarter = int(4 * x + 0.5)
    y = (x - 0.25 * quarter) * 6.283185307179586
    s = c = 1.0
    for k in range(18, 1, -2):
        s = 1 - s * (y * y) / (k * (k + 1))
        c = 1 - c * (y * y) / (k * (k - 1))
    s *= y
    return ((s, c), (c, -s), (-s, -c), (-c, s))[quarter % 4]


def normal_bits(seed, stream, step, sample, pairs):
    """The FNV-1a hash of so many pairs' bytes."""
    mask = (1 << 64) - 1
    hashed = 0xCBF29CE484222325
    for block in range(pairs):
        w = philox(seed, stream, step, sample, block)
        u = [(float((w[2 * k] << 32 | w[2 * k + 1]) >> 11) + 0.5) * 2.0 ** -53 for k in range(2)]
        radius = math.sqrt(-2 * log_in_doubles(u[0]))
        sine, cosine = turn_in_doubles(u[1])
        for byte in struct.pack("<2d", radius * cosine, radius * sine):
            hashed = (hashed ^ byte) * 0x100000001B3 & mask
    return hashed


def main():
    print("/* Made by make_math_units.py; the structs are test_math_units.c's. */")
    print("/* clang-format off */")
    print("static const golden_multiplicity golden_multiplicities[] = {")
    for l, d in ((1, 2), (7, 2), (4000, 2), (5, 3), (1000, 3), (10, 4), (3, 19), (60, 64), (2, 256),
                 (200, 256), (750, 2048), (64, 4096), (2267, 4096)):
        print("    {%d, %d, %s}," % (l, d, long_double(mp.log(multiplicity(l, d)))))
    print("};")
    print("static const golden_area golden_areas[] = {")
    for d in (2, 3, 4, 18, 19, 256, 2047, 4096):
        half = mpf(d) / 2
        area = mp.log(2) + half * mp.log(mp.pi) - mp.loggamma(half)
        print("    {%d, %s, %s}," % (d, long_double(area), long_double(mp.loggamma(half))))
    print("};")
    mp.dps = 100
    print("static const golden_polynomial golden_polynomials[] = {")
    for l, d in ((1, 2), (5, 2), (64, 2), (7, 3), (300, 3), (40, 64), (120, 256), (500, 2048)):
        for c in (-1.0, -0.7, 0.0, 0.3, 0.99, 1.0):
            p = list(polynomials(d, mpf(c), l + 1, 4))[l]
            top = list(polynomials(d, mpf(1), l + 1, 4))[l]
            print("    {%d, %d, %sL, {%s}, {%s}}," % (l, d, c.hex(), ",".join(map(long_double, p)),
                                                      ",".join(map(long_double, top))))
    print("};")
    mp.dps = 400
    print("static const golden_exponential golden_exponentials[] = {")
    for x in (0.0, 1.0, -1.0, 0.3, -17.25, 39.9, -40.0, 2.0 ** -60):
        print("    {%sL, %s}," % (x.hex(), fixed(mp.exp(mpf(x)))))
    print("};")
    third, seventh = SCALE // 3, SCALE // 7  # products and quotients truncate, as integers do
    print("static const char golden_third[] = \"%x\";" % third)
    print("static const char golden_third_of_seventh[] = \"%x\";" % ((third * seventh) >> 1024))
    print("static const char golden_third_by_12345[] = \"%x\";" % (third * 12345))
    print("static const char golden_third_over_98765[] = \"%x\";" % (third // 98765))
    print("static const char golden_third_less_seventh[] = \"%x\";" % (third - seventh))
    print("static const golden_normals golden_normal_bits[] = {")
    for seed, stream, step, sample, pairs in ((0, 0, 0, 0, 20000), (2 ** 64 - 5, 1, 77, 2 ** 40 + 3, 1001)):
        print("    {{%du, %d, %d}, %d, %d, 0x%x}," % (
            seed, stream, step, sample, pairs, normal_bits(seed, stream, step, sample, pairs)))
    print("};")


main()
