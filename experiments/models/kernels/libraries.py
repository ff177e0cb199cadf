"""Compile the C++ files of this package into shared libraries, once per machine, and call their functions.

One file with a plain C interface, and its local headers, needs neither torch's headers nor a build system. So the
module calls the compiler directly, and a library is ready in seconds.

- The file name of a library has a digest of sources, compiler, flags and processor. A change gives another name.
- A second file holds the digest of the library itself. A damaged library would crash the process, so it is compiled
  again.
- Both files are written atomically under a lock, so any number of processes may start at once.

A function takes one struct, ``Job`` of ``training.h``, which is the only declaration. A library contains its text and
the size of the struct. This module makes the ctypes struct from the text and compares the sizes.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock, Timeout
from torch import Tensor

from experiments.core.reading import digest
from ngn.files import remove_stale_files, write_atomically

log = logging.getLogger(__name__)

COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
LINKING = ("-fPIC", "-shared", "-pthread")
"""No flag here changes the meaning of NaN and infinity or reorders sums."""
TUNING = (("-march=native",), ("-mcpu=native",), ())
"""Flags to try in order: not every compiler knows them on every processor."""
BUILD_SECONDS = 900.0
"""Time limit of a build; it takes half a minute on a free core."""


class BuildError(RuntimeError):
    """No compiler was found, or it could not build the library."""


def cache_folder() -> Path:
    """Return ``ngn/lib`` in the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "ngn" / "lib"


def compiler() -> str:
    """Return the path of $CXX, or of the first C++ compiler found.

    Raises:
        BuildError: if there is none.
    """
    asked = os.environ.get("CXX", "").split()
    for name in [asked[0]] if asked else COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    raise BuildError(f"found no C++ compiler (looked for {', '.join(asked[:1] or COMPILERS)}): install one, or set CXX")


def processor() -> str:
    """Return a text that differs between processors for which ``native`` means different instructions."""
    described = [platform.machine(), platform.processor()]
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        lines = facts.read_text(errors="replace").splitlines()
        named = ("model name", "flags", "Features", "CPU part")
        described += sorted({line for line in lines if line.startswith(named)})
    return "\n".join(described)


def _run(command: list[str]) -> str:
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    except OSError as fault:
        raise BuildError(f"{command[0]} failed: {fault}") from fault
    with process:
        try:
            output, errors = process.communicate(timeout=BUILD_SECONDS)
        except BaseException as fault:
            # Kill the process group: the compiler behind a driver would run on alone.
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(fault, subprocess.TimeoutExpired):
                raise BuildError(f"{command[0]} did not finish within {BUILD_SECONDS:.0f} s") from fault
            raise
    if process.returncode:
        raise BuildError(f"{command[0]} failed with exit status {process.returncode}: {errors.strip()[-1000:]}")
    return output


def build_kernel(source: Path) -> Path:
    """Return the path of the shared library of ``source``, from the cache or newly compiled.

    Raises:
        BuildError: if it cannot be built or written.
    """
    command = compiler()
    code = [path.read_text() for path in (source, *sorted(source.parent.glob("*.h")))]
    facts = "\0".join((*code, _run([command, "--version"]), repr((FLAGS, LINKING, TUNING)), processor()))
    folder = cache_folder()
    library = folder / f"{source.stem}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if _intact(library):
        return library
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(library.with_suffix(".lock"), timeout=BUILD_SECONDS):
            if not _intact(library):
                remove_stale_files(folder)
                write_atomically(library, functools.partial(_compile, command, source), replace=True)
                write_atomically(_digest_of(library), digest(library).encode(), replace=True)
    except (OSError, Timeout) as fault:
        raise BuildError(f"{library} could not be written: {fault}") from fault
    return library


def _digest_of(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _intact(library: Path) -> bool:
    """Return whether a library exists and has its recorded digest."""
    try:
        return hashlib.sha256(library.read_bytes()).hexdigest() == _digest_of(library).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def _compile(command: str, source: Path, built: Path) -> None:
    for i, tuning in enumerate(TUNING):
        try:
            _run([command, *FLAGS, *LINKING, *tuning, str(source), "-o", str(built)])
        except BuildError:
            if i == len(TUNING) - 1:
                raise
        else:
            return


def load_library(source: Path) -> ctypes.CDLL | None:
    """Load the library of ``source``. Return None, with a warning in the log, if it cannot be built or loaded here."""
    try:
        return ctypes.CDLL(str(build_kernel(source)))
    except (BuildError, OSError) as fault:
        log.warning("training without the compiled kernel %s, which is several times slower: %s", source.name, fault)
        return None


FOLDER = Path(__file__).parent
_TYPES = {"int64_t": ctypes.c_int64, "double": ctypes.c_double}


def struct_type(declaration: str, size: int) -> type[ctypes.Structure]:
    """Make the ctypes struct of a C declaration, such as ``int64_t n; const float *x, *y;``.

    Args:
        declaration: the fields: int64_t, double, and pointers.
        size: size of the struct in the library, in bytes.

    Raises:
        RuntimeError: if a field has another type, or the struct has another size.
    """
    fields: list[tuple[str, type]] = []
    for line in filter(None, (part.strip() for part in declaration.split(";"))):
        kind, names = re.sub(r"^const ", "", line).split(" ", 1)
        for name in names.split(","):
            pointer = name.strip().startswith("*")
            if not pointer and kind not in _TYPES:
                raise RuntimeError(f"the kernel's struct has a field of an unknown type: {line}")
            fields.append((name.strip(" *"), ctypes.c_void_p if pointer else _TYPES[kind]))
    made = type("Job", (ctypes.Structure,), {"_fields_": fields})
    if ctypes.sizeof(made) != size:
        raise RuntimeError(f"the kernel's struct has {size} bytes, but its declaration {ctypes.sizeof(made)}")
    return made


class Library:
    """A loaded library with the struct that its functions take.

    Raises:
        RuntimeError: if the struct does not match its declaration.
    """

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self.loaded = loaded
        loaded.ngn_job_declaration.restype, loaded.ngn_job_size.restype = ctypes.c_char_p, ctypes.c_int64
        self._job = struct_type(loaded.ngn_job_declaration().decode(), loaded.ngn_job_size())

    def call(self, function: str, values: Mapping[str, int | float | Tensor]) -> None:
        """Call a function with a struct of ``values``. Arrays are contiguous tensors on the CPU.

        Raises:
            RuntimeError: if the values do not match the fields of the struct, or the function refuses them.
            MemoryError: if the function runs out of memory.
        """
        fields = {field[0] for field in self._job._fields_}
        if fields != values.keys():
            raise RuntimeError(f"the kernel's struct and its values differ in {sorted(fields ^ values.keys())}")
        job = self._job(**{n: v.data_ptr() if isinstance(v, Tensor) else v for n, v in values.items()})
        entry = getattr(self.loaded, function)
        entry.restype, entry.argtypes = ctypes.c_int64, [ctypes.c_void_p]
        code = entry(ctypes.byref(job))
        if code:
            if code == 2:
                raise MemoryError("the kernel ran out of memory")
            raise RuntimeError(f"the kernel returned error code {code}")


@functools.cache
def library(name: str) -> Library | None:
    """Return the library of ``<name>.cpp``, or None if it cannot be built. Raises as :class:`Library`."""
    loaded = load_library(FOLDER / f"{name}.cpp")
    return None if loaded is None else Library(loaded)
