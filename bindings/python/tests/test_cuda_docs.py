"""docs/pytorch.md with its blocks for a GPU. Run by `make gpu-check`."""
import torch_case  # noqa: F401  # skips all of it without PyTorch
from test_cuda import setUpModule  # noqa: F401  # ... and without a GPU
from test_docs import Page  # noqa: F401
