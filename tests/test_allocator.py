"""Freed memory is kept: counted in page faults, which do not depend on how fast or busy the machine is."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys
from ngn.engine.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
libc, block = ctypes.CDLL(None), ctypes.c_void_p()
size = 48 * 2**20  # above every threshold that glibc moves to by itself

def use():  # as torch's allocator asks for a tensor
    libc.posix_memalign(ctypes.byref(block), ctypes.c_size_t(64), ctypes.c_size_t(size))
    ctypes.memset(block, 1, size)
    libc.free(block)

for _ in range(10):  # the leading splinters of aligned blocks fill a small cache first
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    def faults(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True)
        return int(done.stdout)

    assert faults("keep") < 100
    assert faults("free") > 100  # or the setting would be of no use, and this test of none either
