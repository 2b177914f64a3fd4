#!/usr/bin/env python3
"""Writes tests/golden/textures.h: small textures of every family, pixel by pixel.

Run with Python 3 and numpy (python3-numpy):  python3 make_textures.py > textures.h
and lay the file out with make format.

Written from the formulas in src/data/texture.h, in double precision and by other ways than the
library's: Philox4x32-10 and Box and Muller from their papers, the tangent and the powers of numpy,
the filters by numpy's Fourier transform of a field wide enough that nothing wraps around, the cloud
as the plain sum over its coefficients, the saturation by sorting, Perlin's noise corner by corner.
"""

import numpy as np

STREAM_TEXTURE = 4
FAMILIES = ["cloud", "disk", "flake", "wood"]
DEFAULTS = dict(size=256, saturation=0.01, alpha=1, radius=5, arms=6, arm_width=5, exponent=1.5, blur=2,
                spacing=20, line=0.25, period=90, stretch=1, waviness=60, octaves=2, roughness=0.35)

CASES = [  # text, seed, number
    ("cloud,size=24", 1, 0),
    ("cloud,size=25,exponent=1,blur=0.5,saturation=0.1", 2, 2**41 + 7),
    ("disk,size=24,radius=3", 1, 0),
    ("disk,size=24,alpha=1.5,radius=2.5", 2**63 + 5, 12345),
    ("flake,size=28", 3, 2**40 + 3),
    ("flake,size=24,alpha=0.7,radius=6,arms=5,arm_width=3", 4, 9),
    ("wood,size=32", 1, 0),
    ("wood,size=32,spacing=6,period=10,stretch=2.5,waviness=9,octaves=3,roughness=0.6,line=0.4", 5, 17),
]


# ---- random numbers -----------------------------------------------------------------------------

def philox(seed, step, sample, blocks):
    """Four words for each block: Salmon and others, 2011, with the library's counter layout."""
    mask = np.uint64(0xFFFFFFFF)
    full = lambda word: np.full(blocks, word, np.uint64)
    key = [seed & 0xFFFFFFFF, seed >> 32]
    counter = [np.arange(blocks, dtype=np.uint64), full(sample & 0xFFFFFFFF), full(step),
               full(STREAM_TEXTURE << 24 | sample >> 32)]
    for _ in range(10):
        first = counter[0] * np.uint64(0xD2511F53)
        second = counter[2] * np.uint64(0xCD9E8D57)
        counter = [second >> np.uint64(32) ^ counter[1] ^ np.uint64(key[0]), second & mask,
                   first >> np.uint64(32) ^ counter[3] ^ np.uint64(key[1]), first & mask]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(counter, axis=1)


def uniform(words):
    """Two numbers of 53 bits for each block."""
    bits = (words[:, 0::2] << np.uint64(32) | words[:, 1::2]) >> np.uint64(11)
    return (bits.astype(float) + 0.5) / 2.0**53


def normal(words):
    u = uniform(words)
    return np.sqrt(-2 * np.log(u[:, 0])) * np.exp(2j * np.pi * u[:, 1])


def stable(words, alpha):
    u = ((words.astype(float) + 0.5) / 2.0**32).reshape(-1)
    if alpha == 1:
        return np.tan(np.pi * (u - 0.5))
    v, w = np.pi * (u[0::2] - 0.5), -np.log(u[1::2])
    return (np.sin(alpha * v) / np.cos(v) ** (1 / alpha)
            * (np.cos((1 - alpha) * v) / w) ** ((1 - alpha) / alpha))


# ---- the families -------------------------------------------------------------------------------

def saturated(value, share):
    ordered = np.sort(np.abs(value).reshape(-1))[::-1]
    limit = ordered[max(int(share * value.size + 0.5), 1) - 1]
    return np.floor(127.5 * (1 + np.clip(value / limit, -1, 1)) + 0.5)


def cloud(s, seed, number):
    n = s["size"] + s["size"] // 4
    while not five_smooth(n):
        n += 1
    f = np.minimum(np.arange(n), n - np.arange(n)) / n
    f = np.hypot(f[:, None], f[None, :])
    f[0, 0] = 1
    amplitude = (n * f) ** -s["exponent"] * np.exp(-2 * (np.pi * s["blur"] * f) ** 2)
    amplitude[0, 0] = 0
    coefficient = amplitude * normal(philox(seed, 0, number, n * n)).reshape(n, n)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(s["size"]), np.arange(n)) / n)
    value = (waves @ coefficient @ waves.T).real
    return saturated(value - value.mean(), s["saturation"])


def five_smooth(n):
    for p in (2, 3, 5):
        while n % p == 0:
            n //= p
    return n == 1


def shape(s, family, reach):
    """The share of each pixel inside the disk or the star, from 8 x 8 points in it."""
    at = np.arange(-reach - 0.5 + 1 / 16, reach + 0.5, 1 / 8)
    x, y = np.meshgrid(at, at)
    if family == "disk":
        inside = x * x + y * y <= s["radius"] ** 2
    else:  # a triangle for each arm, the first one up: base arm_width at the centre, tip at radius
        inside = np.zeros(x.shape, bool)
        for k in range(s["arms"]):
            turn = -np.pi / 2 + 2 * np.pi * k / s["arms"]
            along = x * np.cos(turn) + y * np.sin(turn)
            across = np.abs(y * np.cos(turn) - x * np.sin(turn))
            nearest = across <= along * np.tan(np.pi / s["arms"]) * (1 + 1e-12)
            inside |= nearest & (2 * across <= s["arm_width"] * (1 - along / s["radius"]))
    side = 2 * reach + 1
    return inside.reshape(side, 8, side, 8).mean(axis=(1, 3))


def filtered(s, family, seed, number):
    reach = int(np.ceil(s["radius"] + 0.5))
    side = s["size"] + 2 * reach
    draws = 4 if s["alpha"] == 1 else 2
    words = philox(seed, FAMILIES.index(family) << 8, number, (side * side + draws - 1) // draws)
    noise = stable(words, s["alpha"])[:side * side].reshape(side, side)
    kernel = shape(s, family, reach)
    wide = side + 2 * reach  # both shapes are summed unmirrored, hence the conjugate
    value = np.fft.ifft2(np.fft.fft2(noise, (wide, wide)) * np.conj(np.fft.fft2(kernel, (wide, wide)))).real
    return saturated(value[:s["size"], :s["size"]], s["saturation"])


def wood(s, seed, number):
    noise = np.zeros((s["size"], s["size"]))
    for octave in range(s["octaves"]):
        down = s["period"] / 2**octave
        across = down * s["stretch"]
        columns, rows = int(s["size"] / across) + 3, int(s["size"] / down) + 3
        u = uniform(philox(seed, 3 << 8 | octave, number, 1 + rows * columns))
        angle = 2 * np.pi * u[1:, 0].reshape(rows, columns)
        y, x = np.meshgrid(u[0, 1] + (np.arange(s["size"]) + 0.5) / down,
                           u[0, 0] + (np.arange(s["size"]) + 0.5) / across, indexing="ij")
        i, j = np.floor(y).astype(int), np.floor(x).astype(int)
        fade = lambda t: 6 * t**5 - 15 * t**4 + 10 * t**3
        for di in (0, 1):
            for dj in (0, 1):
                dy, dx, a = y - i - di, x - j - dj, angle[i + di, j + dj]
                noise += (s["roughness"] ** octave * (dx * np.cos(a) + dy * np.sin(a))
                          * fade(1 - np.abs(dy)) * fade(1 - np.abs(dx)))
    phase = (np.arange(s["size"])[:, None] + s["waviness"] * noise) / s["spacing"]
    off = np.abs(phase - np.round(phase))
    white = np.clip((off - s["line"] / 2) * s["spacing"] / 2 + 0.5, 0, 1)
    return np.floor(255 * fade(white) + 0.5)


# ---- the file -----------------------------------------------------------------------------------

def make(text, seed, number):
    family, *words = text.split(",")
    s = dict(DEFAULTS, radius=12 if family == "flake" else 5)
    for word in words:
        name, value = word.split("=")
        s[name] = float(value) if "." in value else int(value)
    if family == "cloud":
        return cloud(s, seed, number)
    if family == "wood":
        return wood(s, seed, number)
    return filtered(s, family, seed, number)


def main():
    print("/* Made by make_textures.py: do not edit. */")
    for k, case in enumerate(CASES):
        pixels = make(*case).astype(int).reshape(-1)
        print(f"static const uint8_t golden_pixels_{k}[] = {{")
        for i in range(0, len(pixels), 16):
            print("    " + " ".join(f"{p}," for p in pixels[i:i + 16]))
        print("};")
    print("static const struct {\n    const char *spec;\n    uint64_t seed;\n    int64_t number;\n"
          "    const uint8_t *pixels;\n} golden_textures[] = {")
    for k, (text, seed, number) in enumerate(CASES):
        print(f'    {{"{text}",\n     {seed}u, {number}, golden_pixels_{k}}},')
    print("};")


main()
