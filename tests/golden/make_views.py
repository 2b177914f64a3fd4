#!/usr/bin/env python3
"""Writes tests/golden/views.h: views made by torchvision's functional operations.

Run with Python 3, torch and torchvision (0.14 made the stored numbers):
    python3 make_views.py > views.h

Sources are filled by a hash that backend/test_views.c repeats, so only parameters and results are
stored. Parameters are rounded to float first, since that is what zonal__view holds; the operations
then run on float64 tensors. torchvision is exact there to about 1e-15 but for gaussian_blur, whose
taps it computes in float32.
"""

import math

import numpy as np
import torch
import torch.nn.functional as nnf
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


def f32(x):
    return float(np.float32(x))


def source_image(width, height, channels):
    """Every element from its index by a 32-bit hash; blocks of 3 x 3 pixels share most of theirs,
    so that there are flat parts, edges and noise."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")

    def mix(n):
        n = n.astype(np.uint64)
        n = (n * 2654435761 + 974711) & 0xFFFFFFFF
        n = ((n ^ (n >> 15)) * 2246822519) & 0xFFFFFFFF
        return (n ^ (n >> 13)) & 0xFFFFFFFF

    block = mix((y // 3 * 4096 + x // 3) * 4 + c) % 224
    noise = mix(((y * 4096 + x) * 4 + c) + 7) % 32
    return (block + noise).astype(np.uint8)


def tensor(pixels):
    return torch.from_numpy(pixels.astype(np.float64) / 255).permute(2, 0, 1)


def to_channels(image, channels):
    if channels == image.shape[0]:
        return image
    return F.rgb_to_grayscale(image) if channels == 1 else image.expand(3, -1, -1)


def photograph(case):
    left, top, width, height = case["crop"]
    out_width, out_height, channels = case["view"]
    x = to_channels(tensor(source_image(*case["source"])), channels)
    x = F.resized_crop(x, top, left, height, width, [out_height, out_width],
                       InterpolationMode.BILINEAR, antialias=True)
    if case.get("flip"):
        x = F.hflip(x)
    for which, factor in case.get("adjust", []):
        operation = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue]
        x = operation[which](x, f32(factor))
    if case.get("grey"):
        x = F.rgb_to_grayscale(x, channels)
    if case.get("blur"):
        taps = case["taps"]
        x = F.gaussian_blur(x, [taps, taps], [f32(case["blur"])] * 2)
    if case.get("solarise"):
        x = F.solarize(x, 0.5)
    return x


def texture(case):
    source_width, source_height, _ = case["source"]
    out_width, out_height, channels = case["view"]
    a = [f32(v) for v in case["affine"]]
    x = to_channels(tensor(source_image(*case["source"])), channels)
    j = torch.arange(out_width, dtype=torch.float64) + 0.5
    i = torch.arange(out_height, dtype=torch.float64)[:, None] + 0.5
    # grid_sample's coordinates run from -1 to 1 over the whole source
    grid = torch.stack([2 * (a[0] * j + a[1] * i + a[2]) / source_width - 1,
                        2 * (a[3] * j + a[4] * i + a[5]) / source_height - 1], dim=-1)
    x = nnf.grid_sample(x[None], grid[None], mode="bilinear", padding_mode="zeros",
                        align_corners=False)[0]
    x = (x + f32(case.get("brightness", 0))).clamp(0, 1)
    x = (x * f32(case.get("contrast", 1))).clamp(0, 1)
    if case.get("erase"):
        left, top, width, height = case["erase"]
        value = torch.tensor(f32(case["erase_value"]), dtype=torch.float64)
        x = F.erase(x, top, left, height, width, value)
    return x


def turned(source, view, degrees, scale, shear=0.0, shift=(0.0, 0.0)):
    """The inverse of shear, turn, scale, shift about the centres, by inverting a matrix."""
    angle = math.radians(degrees)
    shearing = np.array([[1, shear, 0], [0, 1, 0], [0, 0, 1]])
    turning = np.array([[math.cos(angle), -math.sin(angle), 0],
                        [math.sin(angle), math.cos(angle), 0], [0, 0, 1]])
    scaling = np.diag([scale, scale, 1])
    to_centre = np.array([[1, 0, -source[0] / 2], [0, 1, -source[1] / 2], [0, 0, 1]])
    shifting = np.array([[1, 0, shift[0] * source[0]], [0, 1, shift[1] * source[1]], [0, 0, 1]])
    to_view = np.diag([view[0] / source[0], view[1] / source[1], 1])
    back = np.array([[1, 0, source[0] / 2], [0, 1, source[1] / 2], [0, 0, 1]])
    forward = to_view @ back @ shifting @ scaling @ turning @ shearing @ to_centre
    return list(np.linalg.inv(forward)[:2].ravel())


WHOLE = {"source": (12, 10, 3), "crop": (0, 0, 12, 10), "view": (9, 7, 3)}


def one(name, **changes):
    return dict(WHOLE, name=name, **changes)


PHOTOGRAPHS = [
    # crops: growing, shrinking, both at once, at every border, single pixels
    dict(name="same size", source=(7, 6, 3), crop=(0, 0, 7, 6), view=(7, 6, 3)),
    dict(name="grow by 3.3", source=(9, 8, 3), crop=(2, 1, 3, 3), view=(10, 10, 3)),
    dict(name="shrink by 6", source=(61, 50, 3), crop=(1, 2, 60, 48), view=(10, 8, 3)),
    dict(name="shrink by 1.3", source=(20, 20, 3), crop=(3, 4, 13, 12), view=(10, 9, 3)),
    dict(name="shrink by 2.7", source=(30, 30, 3), crop=(3, 4, 27, 26), view=(10, 9, 3)),
    dict(name="wider and lower", source=(40, 9, 3), crop=(5, 2, 33, 4), view=(7, 9, 3)),
    dict(name="lower right corner", source=(17, 13, 3), crop=(11, 8, 6, 5), view=(8, 8, 3)),
    dict(name="one pixel", source=(5, 5, 3), crop=(3, 2, 1, 1), view=(4, 3, 3)),
    dict(name="to one pixel", source=(9, 7, 3), crop=(0, 1, 9, 6), view=(1, 1, 3)),
    dict(name="grey source, grey view", source=(15, 11, 1), crop=(1, 1, 13, 9), view=(8, 8, 1)),
    dict(name="grey source, RGB view", source=(15, 11, 1), crop=(1, 1, 13, 9), view=(6, 5, 3)),
    dict(name="RGB source, grey view", source=(15, 11, 3), crop=(1, 1, 13, 9), view=(8, 8, 1)),
    one("flip", flip=True),
    # each adjustment alone, factors below and above 1
    one("brightness 0.6", adjust=[(BRIGHTNESS, 0.6)]),
    one("brightness 1.7", adjust=[(BRIGHTNESS, 1.7)]),
    one("contrast 0.6", adjust=[(CONTRAST, 0.6)]),
    one("contrast 1.9", adjust=[(CONTRAST, 1.9)]),
    one("contrast 0", adjust=[(CONTRAST, 0.0)]),
    one("saturation 0.3", adjust=[(SATURATION, 0.3)]),
    one("saturation 1.9", adjust=[(SATURATION, 1.9)]),
    one("hue 0.1", adjust=[(HUE, 0.1)]),
    one("hue -0.3", adjust=[(HUE, -0.3)]),
    one("hue 0.5", adjust=[(HUE, 0.5)]),
    dict(name="hue of grey pixels", source=(6, 6, 1), crop=(0, 0, 6, 6), view=(5, 5, 3),
         adjust=[(HUE, 0.2), (SATURATION, 1.5)]),
    dict(name="adjustments of a grey view", source=(12, 10, 1), crop=(0, 0, 12, 10), view=(9, 7, 1),
         adjust=[(SATURATION, 0.3), (HUE, 0.2), (CONTRAST, 1.4), (BRIGHTNESS, 1.2)]),
    one("grey", grey=True),
    one("solarise", solarise=True),
    one("blur 0.1", blur=0.1, taps=5),
    one("blur 0.8", blur=0.8, taps=5),
    one("blur 2, as wide as it may be", blur=2.0, taps=13),
    dict(name="blur of a grey view", source=(12, 10, 1), crop=(0, 0, 12, 10), view=(11, 5, 1),
         blur=1.3, taps=9),
    # whole pipelines
    dict(name="pipeline 1", source=(50, 37, 3), crop=(7, 3, 31, 29), view=(14, 14, 3), flip=True,
         adjust=[(HUE, -0.08), (CONTRAST, 1.35), (BRIGHTNESS, 0.71), (SATURATION, 1.17)],
         blur=1.37, taps=5),
    dict(name="pipeline 2", source=(50, 37, 3), crop=(20, 11, 9, 8), view=(14, 14, 3),
         adjust=[(SATURATION, 0.84), (BRIGHTNESS, 1.31), (HUE, 0.09), (CONTRAST, 0.66)],
         blur=0.62, taps=5, solarise=True),
    dict(name="pipeline 3", source=(50, 37, 3), crop=(0, 0, 50, 37), view=(14, 14, 3), flip=True,
         adjust=[(CONTRAST, 0.8), (SATURATION, 1.2), (BRIGHTNESS, 1.4), (HUE, 0.02)],
         grey=True, blur=1.9, taps=9, solarise=True),
]

TEXTURES = [
    dict(name="identity", source=(8, 6, 1), view=(8, 6, 1), affine=[1, 0, 0, 0, 1, 0]),
    dict(name="half a pixel", source=(8, 6, 1), view=(8, 6, 1), affine=[1, 0, 0.5, 0, 1, -0.25]),
    dict(name="turned by 30", source=(12, 12, 1), view=(9, 9, 1),
         affine=turned((12, 12), (9, 9), 30, 1)),
    dict(name="turned, sheared, shifted", source=(16, 12, 1), view=(10, 9, 1),
         affine=turned((16, 12), (10, 9), -143, 0.8, 0.2, (0.15, -0.1))),
    dict(name="magnified", source=(12, 12, 3), view=(7, 6, 3),
         affine=turned((12, 12), (7, 6), 77, 3.1, -0.1, (0.02, 0.1))),
    dict(name="RGB source, grey view", source=(12, 12, 3), view=(7, 6, 1),
         affine=turned((12, 12), (7, 6), 10, 1.1)),
    dict(name="grey source, RGB view", source=(12, 12, 1), view=(5, 6, 3),
         affine=turned((12, 12), (5, 6), 10, 1.1)),
    dict(name="all outside", source=(6, 6, 1), view=(4, 4, 1), affine=[1, 0, 100, 0, 1, -100]),
    dict(name="brightness", source=(12, 12, 1), view=(8, 8, 1), brightness=-0.2,
         affine=turned((12, 12), (8, 8), 45, 1)),
    dict(name="contrast", source=(12, 12, 1), view=(8, 8, 1), contrast=1.3,
         affine=turned((12, 12), (8, 8), 45, 1)),
    dict(name="brightness, contrast, erase", source=(12, 12, 1), view=(8, 8, 1), brightness=0.17,
         contrast=0.75, erase=(1, 3, 4, 2), erase_value=0.3,
         affine=turned((12, 12), (8, 8), -20, 1.2)),
]


def numbers(values, form):
    return "{" + ", ".join(form(v) for v in values) + "}"


def single(x):
    """A float that reads back as itself."""
    text = np.format_float_positional(np.float32(x), unique=True, trim="0")
    return text + "f"


def line(case, texture_case, at):
    adjust = case.get("adjust", [])
    factor = [0.0] * 4
    for which, value in adjust:
        factor[which] = value
    whole = str
    fields = [
        f'.name = "{case["name"]}"',
        f".source = {numbers(case['source'], whole)}",
        f".size = {numbers(case['view'], whole)}",
        f".blur_taps = {case.get('taps', 0)}",
        f".at = {at}",
    ]
    view = [f".kind = {int(texture_case)}"]
    if texture_case:
        view.append(f".affine = {numbers(case['affine'], single)}")
        view.append(f".brightness = {single(case.get('brightness', 0))}")
        view.append(f".contrast = {single(case.get('contrast', 1))}")
        if "erase" in case:
            for name, value in zip(("left", "top", "width", "height"), case["erase"]):
                view.append(f".erase_{name} = {value}")
            view.append(f".erase_value = {single(case['erase_value'])}")
    else:
        for name, value in zip(("left", "top", "width", "height"), case["crop"]):
            view.append(f".{name} = {value}")
        for name in ("flip", "grey", "solarise"):
            view.append(f".{name} = {int(case.get(name, False))}")
        view.append(f".adjustments = {len(adjust)}")
        if adjust:
            view.append(f".order = {numbers([which for which, _ in adjust], whole)}")
            view.append(f".factor = {numbers(factor, single)}")
        view.append(f".blur = {single(case.get('blur', 0))}")
    return "    {" + ", ".join(fields) + ",\n     .view = {" + ", ".join(view) + "}},"


def main():
    values, lines = [], []
    for case in PHOTOGRAPHS + TEXTURES:
        is_texture = "affine" in case
        result = (texture if is_texture else photograph)(case)
        lines.append(line(case, is_texture, len(values)))
        values += result.permute(1, 2, 0).reshape(-1).tolist()
    print("/* Made by make_views.py with torchvision; do not edit. */")
    print("/* clang-format off */")
    print("static const golden_view golden_views[] = {")
    print("\n".join(lines))
    print("};\n")
    print("/* [height][width][channels] of every view, from element .at on */")
    print("static const double golden_values[] = {")
    for i in range(0, len(values), 8):
        print("    " + ", ".join(f"{v:.10g}" for v in values[i:i + 8]) + ",")
    print("};")
    print("/* clang-format on */")


main()
