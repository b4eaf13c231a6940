"""Runs tests of numbers as processors of other kinds would: `python tests/processors.py [pytest's arguments]`.

`python tests/processors.py tests` runs them all in that way.

Libraries choose their code by the processor, and round differently. Each setting asks for that of one kind, at or
below what this machine has. Exit status 1 if any fails.
"""

import os
import subprocess
import sys

import torch

NUMBERS = ["unit/test_rounding", "unit/test_laws", "unit/test_signal", "unit/test_kernels"]

SETTINGS = {  # torch's vectors, and MKL's products
    "DEFAULT": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2"},
    "AVX512": {"ATEN_CPU_CAPABILITY": "avx512", "MKL_CBWR": "AVX512"},
}


def settings():
    """Name and environment of each setting that this machine can run."""
    native = torch.backends.cpu.get_cpu_capability()
    names = list(SETTINGS)
    known = names[: names.index(native) + 1] if native in names else ["DEFAULT"]
    yield from ((name.lower(), SETTINGS[name] | {"OMP_NUM_THREADS": "1"}) for name in known)
    yield "two threads", {"OMP_NUM_THREADS": "2"}


def main(arguments):
    tests = [a for a in arguments if os.path.exists(a.partition("::")[0])]
    arguments = [*arguments, *([] if tests else (f"tests/{name}.py" for name in NUMBERS))]
    failed = []
    for name, environment in settings():
        print(f"{name}: {' '.join(f'{key}={value}' for key, value in environment.items())}", flush=True)
        done = subprocess.run([sys.executable, "-m", "pytest", *arguments], env=os.environ | environment)
        if done.returncode:
            failed.append(name)
    print(f"red under {', '.join(failed)}" if failed else "green under every setting")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
