#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fetches the Rust toolchain that examples/rust/rust-toolchain.toml names into build/rust, if it
is not there yet: rustc and the standard library, from where rustup gets them
(RUSTUP_DIST_SERVER), checked against the sums below. Nothing outside of build/ changes.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "rust"
CHANNEL = "nightly-2026-05-20"
SUMS = {
    "rustc": "1cd9bc70d6397e4173f037f05337b086b55269e34e0fe9ca68024b158fcaeafb",
    "rust-std": "041b44852a1242b1d408718283d26a09fce6f1ee0341104a3cc2ef8104c4ea0b",
}


def fetch(component, sum, place):
    """Unpacks a component into a folder."""
    server = os.environ.get("RUSTUP_DIST_SERVER", "https://static.rust-lang.org")
    day = CHANNEL.removeprefix("nightly-")
    url = f"{server}/dist/{day}/{component}-nightly-x86_64-unknown-linux-gnu.tar.xz"
    archive = place / f"{component}.tar.xz"
    try:
        with urllib.request.urlopen(url, timeout=60) as source, open(archive, "wb") as file:
            shutil.copyfileobj(source, file)
    except OSError as error:
        sys.exit(f"rust: {url}: {error}")
    with open(archive, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sum:
            sys.exit(f"rust: {url} is not what it was")
    # ARCHIVE/COMPONENT/{bin,lib}/…, and beside that rustup's and the archive's own files.
    command = ["tar", "-xf", archive, "-C", place, "--no-same-owner", "--strip-components=2", "--wildcards"]
    subprocess.run([*command, "*/*/bin/*", "*/*/lib/*"] if component == "rustc" else [*command, "*/*/lib/*"], check=True)
    archive.unlink()


def main():
    named = (ROOT / "examples" / "rust" / "rust-toolchain.toml").read_text()
    if re.search(r'(?m)^channel = "(.*)"', named)[1] != CHANNEL:
        sys.exit(f"rust: the sums here are those of {CHANNEL}")
    if PLACE.exists() and (PLACE / "channel").read_text() == CHANNEL:
        return
    print(f"rust: fetching {CHANNEL}", flush=True)
    new = PLACE.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for component, sum in SUMS.items():
        fetch(component, sum, new)
    subprocess.run([new / "bin" / "rustc", "--version"], check=True)
    (new / "channel").write_text(CHANNEL)
    shutil.rmtree(PLACE, ignore_errors=True)
    new.rename(PLACE)


if __name__ == "__main__":
    main()
