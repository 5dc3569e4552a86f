"""What every test starts from: one thread, no network, the same random examples each time."""

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

if "VERIGRAD_CACHE" not in os.environ:
    os.environ["VERIGRAD_CACHE"] = tempfile.mkdtemp(prefix="verigrad-cache-")
    atexit.register(shutil.rmtree, os.environ["VERIGRAD_CACHE"], ignore_errors=True)

settings.register_profile("verigrad", derandomize=True, deadline=None)
settings.load_profile("verigrad")
