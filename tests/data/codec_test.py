#!/usr/bin/env python3
"""The image codecs against Pillow, which stands on the same libraries, and, for PNG, against the
samples that an encoder of our own (images/make.py) has put into the file.

    codec_test.py decode_image         the program of decode_image.c"""
import os
import struct
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "images"))
sys.dont_write_bytecode = True

try:
    import numpy as np
    from PIL import Image, ImageChops, ImageOps
except ImportError as error:
    print(f"ok 1 - all # SKIP {error}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)

import make
from harness import finish, report, skip

warnings.simplefilter("ignore")  # Pillow's, about transparency that is dropped
PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""


class Refused(Exception):
    pass


def decode(path, channels=0, min_side=0):
    """The probe's answer as a list, and the image as an array [height][width][channels]."""
    done = subprocess.run([PROGRAM, str(channels), str(min_side), path], capture_output=True,
                          timeout=60, check=True)
    head, pixels = done.stdout.split(b"\n", 1)
    words = head.decode().split(" ")
    if words[0] != "ok":
        raise Refused(head.decode())
    width, height, depth = map(int, words[6:9])
    return words[1:2] + list(map(int, words[2:6])), np.frombuffer(pixels, np.uint8).reshape(
        height, width, depth)


def refused(name, path, text):
    try:
        decode(path)
        report(False, name, "it was accepted")
    except Refused as why:
        report(text in str(why) and "FORMAT" in str(why), name, why)


def array(image):
    x = np.asarray(image)
    return x[:, :, None] if x.ndim == 2 else x


def compare(name, path, want, tolerance, channels=0, min_side=0, probe=None):
    """Decodes and compares with the array "want": the largest difference against the tolerance."""
    try:
        found, got = decode(path, channels, min_side)
    except Refused as why:
        return report(False, name, why)
    if got.shape != want.shape:
        return report(False, name, f"shape {got.shape}, want {want.shape}")
    worst = int(np.abs(got.astype(int) - want.astype(int)).max())
    good = worst <= tolerance and (probe is None or found == probe)
    return report(good, name, f"off by {worst}, allowed {tolerance}; probe {found}, want {probe}")


def photograph(width, height, seed=0):
    """Smooth colours with edges and some grain: what JPEG is made for."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / (7.0 + 3 * c) + c) + np.cos(y / (11.0 - 2 * c)) for c in range(3)]
    image = 128 + 45 * np.stack(waves, axis=-1) + generator.normal(0, 4, (height, width, 3))
    image[height // 3:height // 2, width // 4:width // 2] = (220, 30, 60)
    return Image.fromarray(image.clip(0, 255).astype(np.uint8))


# The same library decodes on both sides, but it need not be the same build of it, and its builds may
# round differently in the colour conversion and the transform: 2 of 255.
JPEG_TOLERANCE = 2


def test_jpeg():
    image = photograph(93, 61)
    kinds = [("4:4:4", image, {"subsampling": 0}), ("4:2:2", image, {"subsampling": 1}),
             ("4:2:0", image, {"subsampling": 2}), ("grey", image.convert("L"), {}),
             ("progressive", image, {"progressive": True}),
             ("progressive grey", image.convert("L"), {"progressive": True}),
             ("quality 10", image, {"quality": 10}),
             ("1 x 1", image.crop((0, 0, 1, 1)), {}), ("1 x 61", image.crop((5, 0, 6, 61)), {})]
    for name, original, options in kinds:
        original.save("x.jpg", **options)
        want = Image.open("x.jpg")
        depth = len(want.getbands())
        compare(f"JPEG {name}", "x.jpg", array(want), JPEG_TOLERANCE,
                probe=["JPEG", want.width, want.height, depth, 1])
        compare(f"JPEG {name} to RGB", "x.jpg", array(want.convert("RGB")), JPEG_TOLERANCE, 3)
        # Pillow's grey of a JPEG is the file's luma, if asked for in time.
        luma = Image.open("x.jpg")
        luma.draft("L", luma.size)
        compare(f"JPEG {name} to grey", "x.jpg", array(luma.convert("L")), JPEG_TOLERANCE, 1)


def test_scaled_jpeg():
    image = photograph(203, 150)
    image.save("x.jpg", subsampling=2)
    for min_side, by in [(0, 1), (150, 1), (76, 1), (75, 2), (39, 2), (38, 4), (20, 4), (19, 8),
                           (1, 8)]:
        want = Image.open("x.jpg")
        size = (-(-203 // by), -(-150 // by))
        want.draft("RGB", (203 // by, 150 // by))
        report(want.size == size, f"Pillow scales by {by}", f"{want.size}, want {size}")
        compare(f"JPEG, least side {min_side}: 1/{by}", "x.jpg", array(want), JPEG_TOLERANCE, 0,
                min_side, ["JPEG", 203, 150, 3, 1])


def test_orientation():
    image = photograph(40, 24)
    for orientation in range(1, 9):
        exif = Image.Exif()
        for endian, order in (("little", "<"), ("big", ">")):
            exif.endian = order
            exif[0x0112] = orientation
            exif[0x010E] = "a text before"
            exif[0x0131] = "a text after"
            image.save("x.jpg", exif=exif, subsampling=0)
            want = ImageOps.exif_transpose(Image.open("x.jpg"))
            name = f"orientation {orientation}, {endian} endian"
            compare(name, "x.jpg", array(want), JPEG_TOLERANCE,
                    probe=["JPEG", *want.size, 3, orientation])
        turned = Image.open("x.jpg")
        turned.draft("RGB", (20, 12))
        want = ImageOps.exif_transpose(turned)
        compare(f"orientation {orientation}, scaled", "x.jpg", array(want), JPEG_TOLERANCE, 0, 12)


def test_inks():
    image = photograph(50, 33).convert("CMYK")
    for quality in (75, 95):
        image.save("x.jpg", quality=quality)
        want = Image.open("x.jpg")
        compare(f"CMYK at {quality}", "x.jpg", array(want.convert("RGB")), JPEG_TOLERANCE,
                probe=["JPEG", 50, 33, 3, 1])
        # Grey of the colours: Pillow's weights are ours to 1/65536, so one more for the rounding.
        compare(f"CMYK at {quality} to grey", "x.jpg", array(want.convert("RGB").convert("L")),
                JPEG_TOLERANCE + 1, 1)
    # The same bytes under Adobe's transform 2 are YCCK, as Photoshop writes it.
    with open("x.jpg", "rb") as file:
        data = bytearray(file.read())
    data[data.index(b"Adobe") + 11] = 2
    with open("x.jpg", "wb") as file:
        file.write(data)
    compare("YCCK", "x.jpg", array(Image.open("x.jpg").convert("RGB")), JPEG_TOLERANCE)
    # Pillow takes every CMYK file for Adobe's; without the marker the inks are plain.
    ImageChops.invert(image).save("x.jpg")
    inks = Image.open("x.jpg")
    want = ImageChops.invert(inks).convert("RGB")
    with open("x.jpg", "rb") as file:
        plain = make.without_segment(file.read(), 0xEE)
    with open("x.jpg", "wb") as file:
        file.write(plain)
    compare("CMYK without Adobe's marker", "x.jpg", array(want), JPEG_TOLERANCE)


def write(data):
    with open("x.png", "wb") as file:
        file.write(data)


def png_kinds():
    for colour, depths in ((make.GREY, (1, 2, 4, 8, 16)), (make.RGB, (8, 16)),
                           (make.PALETTE, (1, 2, 4, 8)), (make.GREY_ALPHA, (8, 16)),
                           (make.RGB_ALPHA, (8, 16))):
        for depth in depths:
            yield colour, depth


def test_png():
    generator = np.random.default_rng(1)
    names = {make.GREY: "grey", make.RGB: "RGB", make.PALETTE: "palette",
             make.GREY_ALPHA: "grey and alpha", make.RGB_ALPHA: "RGB and alpha"}
    for colour, depth in png_kinds():
        for interlaced, (width, height) in ((False, (21, 13)), (True, (21, 13)), (True, (1, 1)),
                                            (True, (3, 2))):
            samples = generator.integers(0, 1 << depth, (height, width, make.SAMPLES[colour]))
            palette = generator.integers(0, 256, (1 << min(depth, 8), 3))
            if colour == make.PALETTE:
                want, options = palette[samples[:, :, 0]], {"palette": palette.tolist()}
            else:
                colours = samples[:, :, :1 if colour in (make.GREY, make.GREY_ALPHA) else 3]
                want = colours >> 8 if depth == 16 else colours * (255 // ((1 << depth) - 1))
                options = {}
            for transparent in (None, b"\0\0" * (3 if colour == make.RGB else 1)):
                if transparent and colour in (make.GREY_ALPHA, make.RGB_ALPHA):
                    continue
                write(make.png_bytes(samples.tolist(), depth, colour, interlaced,
                                     transparent=transparent, **options))
                name = (f"PNG {names[colour]}, {depth} bits, {width} x {height}"
                        f"{', interlaced' * interlaced}{', transparent' * bool(transparent)}")
                compare(name, "x.png", want, 0, probe=["PNG", width, height, want.shape[2], 1])
            if width == 21 and not (colour == make.GREY and depth == 16):  # Pillow clips those
                compare(f"{name}, as Pillow's RGB", "x.png",
                        array(Image.open("x.png").convert("RGB")), 0, 3)


def test_png_by_pillow():
    image = photograph(70, 45)
    for mode in ("RGB", "RGBA", "L", "LA", "P", "1"):
        image.convert(mode).save("x.png")
        original = Image.open("x.png")
        compare(f"Pillow's PNG, {mode}", "x.png", array(original.convert("RGB")), 0, 3)
        # Rounded weights in thousandths against Pillow's in 65536ths.
        compare(f"Pillow's PNG, {mode}, to grey", "x.png",
                array(original.convert("RGB").convert("L")), 1, 1)


def test_writing():
    for mode in ("RGB", "L"):
        image = photograph(37, 29).convert(mode)
        image.save("x.png")
        subprocess.run([PROGRAM, "--png", "x.png", "y.png"], check=True, timeout=60)
        again = Image.open("y.png")
        again.load()
        report(again.mode == mode and again.tobytes() == image.tobytes(),
               f"Pillow reads our PNG, {mode}", again)
        os.remove("y.png")


def both(name, path, tolerance=0, probe=None):
    """As RGB against Pillow's, and as grey against the grey of that (1 more for the rounding)."""
    want = Image.open(path).convert("RGB")
    compare(name, path, array(want), tolerance, 3, probe=probe)
    compare(f"{name}, to grey", path, array(want.convert("L")), tolerance + 1, 1)


def test_webp():
    image = photograph(93, 61)
    see_through = image.convert("RGBA")
    see_through.putalpha(image.convert("L"))
    for name, original, options in (("lossy", image, {}), ("lossless", image, {"lossless": True}),
                                    ("lossy with alpha", see_through, {}),
                                    ("lossless with alpha", see_through,
                                     {"lossless": True, "exact": True}),
                                    ("1 x 1", image.crop((0, 0, 1, 1)), {})):
        original.save("x.webp", **options)
        both(f"WebP {name}", "x.webp", JPEG_TOLERANCE, ["WebP", *original.size, 3, 1])
    image.save("x.webp", save_all=True, lossless=True,
                 append_images=[ImageChops.invert(image)])
    both("WebP, two frames", "x.webp", 0, ["WebP", 93, 61, 3, 1])


def bmp_16(pixels, masks=None, header=40, from_above=False):
    """A BMP of 16 bits, which Pillow does not write."""
    height, width = pixels.shape
    rows = [row.astype("<u2").tobytes() + bytes(width % 2 * 2) for row in pixels]
    data = b"".join(rows if from_above else rows[::-1])
    extra = struct.pack("<3I", *masks) if masks else b""
    head = struct.pack("<IiiHHIIiiII", header, width, -height if from_above else height, 1, 16,
                       3 if masks else 0, len(data), 0, 0, 0, 0)
    at = 14 + len(head) + len(extra)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + head + extra + data


def test_bmp():
    image = photograph(91, 61)
    for mode in ("RGB", "RGBA", "L", "P", "1"):
        image.convert(mode).save("x.bmp")
        depth = 1 if mode in ("L", "1") else 3
        both(f"BMP {mode}", "x.bmp", 0, ["BMP", 91, 61, 3, 1][:3] + [depth, 1])
    image.quantize(13).save("x.bmp")
    both("BMP, 4 bits", "x.bmp")
    samples = np.random.default_rng(2).integers(0, 1 << 16, (9, 7))
    for masks, shifts in ((None, (10, 5, 0)), ((0x7c00, 0x3e0, 0x1f), (10, 5, 0)),
                          ((0xf800, 0x7e0, 0x1f), (11, 5, 0))):
        for from_above in (False, True):
            open("x.bmp", "wb").write(bmp_16(samples, masks, from_above=from_above))
            most = [(m >> s) for m, s in zip(masks or (0x7c00, 0x3e0, 0x1f), shifts)]
            want = np.stack([np.floor((samples >> s & m) * 255 / m + 0.5)
                             for s, m in zip(shifts, most)], axis=-1)
            compare(f"BMP, 16 bits, {masks}, from above {from_above}", "x.bmp",
                    want.astype(np.uint8), 0)
            both(f"BMP, 16 bits, {masks}, from above {from_above}, as Pillow", "x.bmp", 1)
    good = open("x.bmp", "rb").read()
    image.convert("L").save("x.bmp")
    packed = bytearray(open("x.bmp", "rb").read())
    packed[30] = 1
    for name, data, text in (("cut off", good[:-1], "it ends early"),
                             ("run-length", bytes(packed), "is a compressed BMP")):
        open("x.bmp", "wb").write(data)
        refused(f"BMP {name}", "x.bmp", text)


def test_gif():
    image = photograph(93, 61)
    for name, original, options in (
            ("plain", image.quantize(256), {}), ("few colours", image.quantize(5), {}),
            ("interlaced", image.quantize(64), {"interlace": 1}), ("grey", image.convert("L"), {}),
            ("transparent", image.quantize(64), {"transparency": 3}),
            ("two frames", image.quantize(64), {"save_all": True, "append_images": [
                ImageChops.invert(image).quantize(64)]})):
        original.save("x.gif", **options)
        both(f"GIF {name}", "x.gif", 0, ["GIF", 93, 61, 3, 1])
    # A first frame that does not fill the screen.
    data = bytearray(open("x.gif", "rb").read())
    data[6:10] = struct.pack("<HH", 120, 70)
    open("x.gif", "wb").write(data)
    both("GIF on a larger screen", "x.gif", 0, ["GIF", 120, 70, 3, 1])
    data[6:10] = struct.pack("<HH", 92, 61)
    open("x.gif", "wb").write(data)
    refused("GIF whose frame does not fit", "x.gif", "its first frame does not fit")
    open("x.gif", "wb").write(data[:400])
    refused("GIF cut off", "x.gif", "is a damaged GIF")


def test_tiff():
    image = photograph(93, 61)
    see_through = image.convert("RGBA")
    see_through.putalpha(image.convert("L"))
    for mode, original in (("RGB", image), ("RGBA", see_through), ("L", image.convert("L")),
                           ("P", image.quantize(64)), ("1", image.convert("1"))):
        for packing in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
            original.save("x.tif", compression=packing)
            depth = 1 if mode in ("L", "1") else 3
            both(f"TIFF {mode}, {packing}", "x.tif", 0, ["TIFF", 93, 61, depth, 1])
    turns = Image.Transpose
    for orientation, turn in enumerate((turns.FLIP_LEFT_RIGHT, turns.ROTATE_180,
                                        turns.FLIP_TOP_BOTTOM, turns.TRANSPOSE, turns.ROTATE_270,
                                        turns.TRANSVERSE, turns.ROTATE_90), 2):
        image.save("x.tif", tiffinfo={274: orientation})
        want = image.transpose(turn)
        compare(f"TIFF, orientation {orientation}", "x.tif", array(want), 0,
                probe=["TIFF", *want.size, 3, orientation])
    image.save("x.tif", save_all=True, append_images=[ImageChops.invert(image)])
    both("TIFF, two images", "x.tif")
    data = open("x.tif", "rb").read()
    open("x.tif", "wb").write(data[:3000])
    refused("TIFF cut off", "x.tif", "x.tif")
    Image.fromarray(np.zeros((5, 5), np.float32)).save("x.tif")
    refused("TIFF of real numbers", "x.tif", "cannot be decoded")


def test_bombs():
    """A few bytes that claim many pixels: refused by the head."""
    Image.new("1", (9000, 9000)).save("x.tif", compression="tiff_adobe_deflate")
    refused("TIFF of 81 million pixels", "x.tif", "more than 67108864 pixels")
    Image.new("1", (16, 16)).save("x.gif")
    data = bytearray(open("x.gif", "rb").read())
    data[6:10] = b"\xff\xff\xff\xff"
    open("x.gif", "wb").write(data)
    refused("GIF of 65535 x 65535", "x.gif", "claims 65535 x 65535 pixels")


def test_kept_images():
    """The files in images/ are what make.py says they are."""
    folder = os.path.dirname(make.__file__)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") or name == "lossy.webp":
            continue
        path = os.path.join(folder, name)
        grey = name.startswith("grey")
        want = np.array(make.rectangles(make.GREYS if grey else make.COLOURS), np.uint8)
        want = want.reshape(make.HEIGHT, make.WIDTH, -1)
        if name == "progressive.jpg":  # colours at half the size run over the edges
            want = array(Image.open(path))
        # Rectangles of whole 8 x 8 blocks lose to the quantisation of quality 95 only.
        compare(f"images/{name}", path, want, 4 if name.endswith(".jpg") or name == "jpeg.tif" else 0)


def main():
    if not os.access(PROGRAM, os.X_OK):
        sys.exit("codec_test: give the program decode_image")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        photograph(8, 8).save("x.jpg")
        photograph(8, 8).save("x.png")
        for name in ("x.webp", "x.bmp", "x.gif", "x.tif"):
            photograph(8, 8).save(name)
        parts = {"x.jpg": (test_jpeg, test_scaled_jpeg, test_orientation, test_inks),
                 "x.png": (test_png, test_png_by_pillow, test_writing),
                 "x.webp": (test_webp,), "x.bmp": (test_bmp,), "x.gif": (test_gif,),
                 "x.tif": (test_tiff, test_bombs)}
        everything = True
        for path, tests in parts.items():
            try:
                decode(path)
            except Refused as why:
                if "UNSUPPORTED" not in str(why):
                    raise
                everything = False
                for test in tests:
                    skip(test.__name__, "this build has no library for it")
                continue
            for test in tests:
                test()
        if everything:
            test_kept_images()
        os.chdir("/")
    finish()


main()
