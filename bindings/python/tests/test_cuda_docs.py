"""docs/pytorch.md with its blocks for a GPU. Run by `make gpu-check`."""
import torch_case  # noqa: F401  # skips all of it without PyTorch
import test_docs
from test_cuda import setUpModule  # noqa: F401  # ... and without a GPU


class OnGpu(test_docs.Page):
    """The same page."""
