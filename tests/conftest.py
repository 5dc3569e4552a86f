"""What every test starts from: one thread, no network, the same random examples each time."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile("verigrad", derandomize=True, deadline=None)
settings.load_profile("verigrad")
