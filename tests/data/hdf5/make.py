#!/usr/bin/env python3
"""Writes the HDF5 files of this folder, from which fuzz/fuzz_hdf5.c starts. Each has 6 images of
3 x 2, element j of image i being 40 i + j, and the labels 0 to 5."""
import os

import h5py
import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
IMAGES = (40 * np.arange(6)[:, None] + np.arange(18)).astype(np.uint8).reshape(6, 3, 2, 3)


def write(name, libver=None, **storage):
    with h5py.File(os.path.join(FOLDER, name), "w", libver=libver) as file:
        file.create_dataset("images", data=IMAGES, **storage)
        file["ans"] = np.arange(6, dtype=np.int16)


write("plain.h5")
write("latest.h5", "latest")
write("packed.h5", chunks=(4, 3, 1, 3), compression="gzip", shuffle=True, fletcher32=True)
