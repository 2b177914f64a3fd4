"""The version of this package. It must be that of include/zonal/status.h: _library.py compares."""

__version__ = "0.1.0"
