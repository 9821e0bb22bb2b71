# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fetches from Debian what is not committed here: LLVM's sources, and packages
of which only one release can be installed at a time.

    scripts/debian.py 14 15    unpacks these releases' libomp and libomptarget into
                                 build/llvm/RELEASE/packages, if they are not there yet
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build"


class Apt:
    """apt with package lists of its own, sources included; the system's stay as
    they are."""

    def __init__(self, work):
        self.work = work
        shutil.rmtree(work, ignore_errors=True)
        for folder in ("sources", "lists/partial", "cache"):
            (work / folder).mkdir(parents=True)

        # The system's own package sources, mirrors included.
        system = Path("/etc/apt")
        for file in [system / "sources.list", *system.glob("sources.list.d/*")]:
            if not file.is_file():
                continue
            text = file.read_text()
            if file.suffix == ".sources":
                text = re.sub(r"(?m)^Types:.*$", "Types: deb deb-src", text)
            elif file.suffix == ".list":
                # sources.list itself may already have its deb-src lines.
                lines = [line for line in text.splitlines() if re.match(r"deb\s", line)]
                lines += [re.sub(r"^deb\b", "deb-src", line) for line in lines]
                text = "".join(line + "\n" for line in lines)
            else:
                continue
            (work / "sources" / file.name).write_text(text)

        self.command = ["apt-get", "-qq"]
        for option in (
            "Dir::Etc::SourceList=/dev/null",
            f"Dir::Etc::SourceParts={work / 'sources'}",
            f"Dir::State::Lists={work / 'lists'}",
            f"Dir::Cache={work / 'cache'}",
            "APT::Sandbox::User=" + ("root" if os.geteuid() == 0 else ""),
            # Only the package lists: no translations, no file lists of other tools.
            "Acquire::Languages=none",
        ):
            self.command += ["-o", option]
        # A repository that does not answer matters only if it is the one needed.
        subprocess.run([*self.command, "update"], cwd=work, stdin=subprocess.DEVNULL)

    def add_unstable(self):
        """Takes Debian's newest sources too, for releases that the system has from there."""
        targets = subprocess.run(
            [*self.command, "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"],
            cwd=self.work, stdout=subprocess.PIPE, text=True, check=True,
        ).stdout  # fmt: skip
        uris = re.findall(r"(?m)^Debian Debian (.*)$", targets)
        if not uris:
            sys.exit("llvm: apt has no mirror of Debian to fetch sources from; unpack them and set LLVM_SOURCE=DIR")
        (self.work / "sources" / "unstable.list").write_text(f"deb-src [check-valid-until=no] {uris[0]} unstable main\n")
        subprocess.run([*self.command, "update"], cwd=self.work, stdin=subprocess.DEVNULL)

    def has_source(self, name):
        """True if there is a source package of this name."""
        command = ["apt-cache", *self.command[2:], "showsrc", name]
        found = subprocess.run(command, cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True)
        return found.returncode == 0 and found.stdout != b""

    def depends(self, name):
        """The packages that a package needs, by name."""
        command = ["apt-cache", *self.command[2:], "depends", "--important", name]
        found = subprocess.run(command, cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return re.findall(r"(?m)^ *Depends: ([\w.+-]+)$", found.stdout)

    def get(self, *arguments):
        subprocess.run(
            [*self.command, *arguments], cwd=self.work, stdin=subprocess.DEVNULL, check=True
        )


def unpack(apt, packages, place):
    """Puts the files of these binary packages into a folder."""
    apt.get("download", *packages)
    for package in apt.work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, place], check=True)


def fetch_libomptarget(release):
    """`packages` with what the programs of a release need to run: of these packages
    only one release can be installed, and others need theirs. Fetched once."""
    place = BUILD / "llvm" / str(release)
    if (place / "packages").exists():
        return
    apt = Apt(place / "fetch")
    # Whose libomp it is depends on the release: 22's package has a link to another one's.
    headers = f"libomp-{release}-dev"
    packages = headers, *(name for name in apt.depends(headers) if name.startswith("libomp5-"))
    if len(packages) < 2:
        sys.exit(f"llvm: apt knows no package {headers}: this system has no OpenMP of LLVM {release}")
    print("llvm: fetching from Debian:", *packages, flush=True)
    unpack(apt, packages, apt.work / "unpacked")
    # From 17 on it is libLLVM that loads plugins, which looks for them where it was itself found.
    libraries = apt.work / "unpacked" / "usr" / "lib" / f"llvm-{release}" / "lib"
    for library in Path(f"/usr/lib/llvm-{release}/lib").glob("libLLVM[-.]*so.*") if int(release) >= 17 else ():
        (libraries / library.name).symlink_to(library)
    (apt.work / "unpacked").rename(place / "packages")
    shutil.rmtree(apt.work)


def fetch(release, folders):
    """Returns a folder that has `source`, with these folders of LLVM's sources. Fetched once."""
    place = BUILD / "llvm" / str(release)
    if all((place / "source" / folder).exists() for folder in folders):
        return place
    name = f"llvm-toolchain-{release}"
    print(f"llvm: fetching from Debian: the source package {name}", flush=True)
    apt = Apt(place / "fetch")
    if not apt.has_source(name):
        apt.add_unstable()
    apt.get("source", "--download-only", "--tar-only", name)
    (archive,) = apt.work.glob(f"{name}_*.orig.tar.*")
    unpacked = apt.work / "unpacked"
    unpacked.mkdir()
    subprocess.run(
        ["tar", "-xf", archive, "-C", unpacked, "--strip-components=1", "--anchored"]
        + ["--wildcards", "--no-wildcards-match-slash", *(f"*/{folder}" for folder in folders)],
        check=True,
    )
    # An earlier version of this may have fetched less.
    shutil.rmtree(place / "source", ignore_errors=True)
    unpacked.rename(place / "source")
    shutil.rmtree(apt.work)
    return place


if __name__ == "__main__":
    for release in sys.argv[1:]:
        fetch_libomptarget(release)
