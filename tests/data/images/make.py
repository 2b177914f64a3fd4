#!/usr/bin/env python3
"""Makes the images in this folder: python3 make.py. Needs Pillow.

All show the same 32 x 16 pixels, four rectangles of 16 x 8: red and green above blue and white, as
COLOURS says; the grey ones show GREYS. png_bytes is a PNG encoder of its own, for the kinds that
Pillow does not write; codec_test.py uses it too."""
import os
import struct
import zlib

COLOURS = [[(200, 40, 30), (40, 180, 60)], [(30, 60, 200), (250, 250, 250)]]
GREYS = [[0, 85], [170, 255]]  # exact in 2, 4 and 8 bits
WIDTH, HEIGHT = 32, 16

GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
SAMPLES = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}
# The seven passes of interlaced files: first column, first row, column step, row step.
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(
        ">I", zlib.crc32(kind + data))


def pack_row(values, depth):
    """Samples of 1, 2, 4, 8 or 16 bits, from the high bits of each byte down."""
    bits = "".join(format(value, f"0{depth}b") for value in values)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png_bytes(pixels, depth, colour, interlaced=False, palette=None, transparent=None):
    """pixels[y][x] is a tuple of samples. palette: RGB triples; transparent: the tRNS bytes."""
    height, width = len(pixels), len(pixels[0])
    raw = b""
    for left, top, across, down in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        for y in range(top, height, down):
            row = [sample for x in range(left, width, across) for sample in pixels[y][x]]
            if row:
                raw += b"\0" + pack_row(row, depth)
    data = b"\x89PNG\r\n\x1a\n"
    data += chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    if palette:
        data += chunk(b"PLTE", bytes(value for entry in palette for value in entry))
    if transparent:
        data += chunk(b"tRNS", transparent)
    return data + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def without_segment(jpeg, marker):
    """A JPEG without the segments of that marker."""
    out, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        length = struct.unpack(">H", jpeg[at + 2:at + 4])[0]
        if jpeg[at + 1] != marker:
            out += jpeg[at:at + 2 + length]
        at += 2 + length
    return out + jpeg[at:]


def rectangles(table):
    return [[table[y // (HEIGHT // 2)][x // (WIDTH // 2)] for x in range(WIDTH)]
            for y in range(HEIGHT)]


def main():
    import io

    from PIL import Image, ImageChops

    def save(name, data):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), "wb") as file:
            file.write(data)

    def jpeg(image, **options):
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=95, optimize=True, **options)
        return stream.getvalue()

    colours, greys = rectangles(COLOURS), rectangles(GREYS)
    image = Image.new("RGB", (WIDTH, HEIGHT))
    image.putdata([pixel for row in colours for pixel in row])
    grey = Image.new("L", (WIDTH, HEIGHT))
    grey.putdata([pixel for row in greys for pixel in row])
    exif = Image.Exif()
    exif[0x0112] = 6
    inks = image.convert("CMYK")

    save("colour.jpg", jpeg(image, subsampling=0))
    save("progressive.jpg", jpeg(image, subsampling=2, progressive=True))
    save("grey.jpg", jpeg(grey))
    save("turned.jpg", jpeg(image.transpose(Image.Transpose.ROTATE_90), subsampling=0,
                            exif=exif))
    save("cmyk.jpg", jpeg(inks))
    # Pillow inverts what it saves; inverted before and without the marker, it is plain CMYK.
    save("cmyk_plain.jpg", without_segment(jpeg(ImageChops.invert(inks)), 0xEE))

    save("colour.png", png_bytes(colours, 8, RGB))
    save("grey.png", png_bytes([[(v // 85,) for v in row] for row in greys], 2, GREY,
                               transparent=b"\0\1"))
    save("palette.png", png_bytes(
        [[(2 * (y >= HEIGHT // 2) + (x >= WIDTH // 2),) for x in range(WIDTH)]
         for y in range(HEIGHT)], 4, PALETTE, palette=COLOURS[0] + COLOURS[1],
        transparent=b"\x10\x20"))
    save("interlaced.png", png_bytes([[tuple(v * 256 + 77 for v in pixel) + (1234,)
                                       for pixel in row] for row in colours], 16, RGB_ALPHA, True))

    def other(name, image, **options):
        image.save(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), **options)

    other("lossy.webp", image, quality=95)
    other("lossless.webp", image.convert("RGBA"), lossless=True)
    other("frames.webp", image, save_all=True, lossless=True,
          append_images=[ImageChops.invert(image)])
    other("colour.bmp", image)
    other("palette.bmp", image.quantize(4))
    other("grey.bmp", grey)
    other("frames.gif", image, save_all=True, append_images=[ImageChops.invert(image)])
    other("interlaced.gif", image, interlace=1)
    other("colour.tif", image, compression="tiff_lzw")
    other("jpeg.tif", image, compression="jpeg", quality=95)
    other("grey.tif", grey, compression="tiff_adobe_deflate")


if __name__ == "__main__":
    main()
