#!/usr/bin/env python3
"""Checks what the compiler does not: who includes whom, and the rules that every source file keeps.

    scripts/check_layers.py             includes against src/LAYERS, rules of the sources
    scripts/check_layers.py --headers   also compiles each header alone (a minute)

Prints one line a violation and ends with 1 if there is any.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Prefix of an include in angle brackets -> third party as named in LAYERS.
THIRD_PARTIES = {
    "llvm/": "llvm", "llvm-c/": "llvm", "oneapi/": "dnnl", "dnnl": "dnnl", "omp.h": "omp",
    "spdlog/": "spdlog", "fmt/": "fmt", "nlohmann/": "nlohmann", "zlib.h": "zlib",
    "sqlite3.h": "sqlite", "hiredis/": "hiredis", "openssl/": "openssl", "CLI/": "CLI", "nanobind/": "nanobind",
    "Python.h": "nanobind",
    "cuda": "cuda", "nvrtc.h": "nvrtc", "cublas": "cublas", "cudnn": "cudnn", "nccl.h": "nccl",
    "torch/": "torch", "ATen/": "torch", "c10/": "torch", "google/protobuf/": "protobuf",
    "flatbuffers/": "flatbuffers", "inkle_plan_generated.h": "flatbuffers", "sodium": "sodium",
}
# What the C library and the compiler bring along.
SYSTEM = re.compile(
    r"(sys/\w+|unistd|fcntl|dlfcn|pthread|sched|signal|poll|spawn|immintrin|x86intrin|cpuid|arm_neon|"
    r"cxxabi|execinfo|link|elf|errno|alloca|time|stddef|stdint|netdb|netinet/\w+|arpa/inet)\.h|[a-z_]+")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# (pattern, message, files it holds for); comments count too, strings as well.
PRINTS = re.compile(r"std::(cout|cerr|clog)\b|(?<![\w:.>])(std::)?(printf|puts|fputs|putchar|perror)\(|"
                    r"\bfmt::print\(")
ENDS = re.compile(r"(?<![\w.>])(std::)?(abort|exit|quick_exit|terminate)\(")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE = re.compile(r"(?<![\w./~}-])/(root|home|work|mnt|Users)/")
SPEAKERS = {"base/log.cpp"}  # may print


def read_layers(path):
    """folder -> (allowed folders, transitively, and third parties); fails on an unknown folder."""
    direct, parties, order = {}, {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        folder, colon, rest = line.partition(":")
        if not colon:
            sys.exit(f"{path}:{number}: expected 'folder: folders | third parties'")
        folders, _, third = rest.partition("|")
        for name in folders.split():
            if name not in direct:
                sys.exit(f"{path}:{number}: {name} is not a folder named above")
        order.append(folder)
        direct[folder] = set(folders.split())
        parties[folder] = set(third.split()) | {"fmt"}
    closed = {}
    for folder in order:
        closed[folder] = {folder, "base"} | direct[folder]
        for name in direct[folder]:
            closed[folder] |= closed[name]
    return closed, parties


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def third_party(name):
    for prefix, party in THIRD_PARTIES.items():
        if name.startswith(prefix):
            return party
    return None


class Checker:
    def __init__(self, root=ROOT):
        self.root = root
        self.src = root / "src"
        self.layers, self.parties = read_layers(self.src / "LAYERS")
        self.problems = []
        self.files = sorted(p for p in self.src.rglob("*") if p.suffix in (".h", ".cpp"))
        # Headers that bring in a third party, by their own include: for their folder only.
        self.inner = {}
        for path in self.files:
            if path.suffix == ".h":
                found = {third_party(n) for _, own, n in includes(path.read_text()) if not own}
                found -= {None, "fmt"}
                if found:
                    self.inner[path.relative_to(self.src).as_posix()] = sorted(found)

    def report(self, path, number, message):
        self.problems.append(f"{path.relative_to(self.root)}:{number}: {message}")

    def check_includes(self, path, text):
        relative = path.relative_to(self.src)
        folder = relative.parent.as_posix()
        if folder not in self.layers:
            self.report(path, 1, f"folder {relative.parent} is not in src/LAYERS")
            return
        for number, own, name in includes(text):
            if own:
                self.check_own(path, number, folder, name)
            else:
                self.check_foreign(path, number, folder, name)

    def check_own(self, path, number, folder, name):
        target = pathlib.PurePosixPath(name)
        if not (self.src / target).is_file():
            self.report(path, number, f'"{name}" is not a header of src/ (write "folder/file.h")')
            return
        other = target.parent.as_posix()
        if other not in self.layers[folder]:
            self.report(path, number, f"{folder} may not include {other}")
        if name in self.inner and other != folder:
            self.report(path, number, f"{name} brings in {', '.join(self.inner[name])}, "
                                      f"which stays inside {other}")

    def check_foreign(self, path, number, folder, name):
        party = third_party(name)
        if party is None:
            if not SYSTEM.fullmatch(name):
                self.report(path, number, f"<{name}> is of no known third party")
        elif party not in self.parties[folder]:
            allowed = [f for f in self.parties if party in self.parties[f]]
            self.report(path, number, f"<{name}>: {party} is for {', '.join(allowed) or 'nobody'}")

    def check_rules(self, path, text):
        relative = path.relative_to(self.src).as_posix()
        folder = path.relative_to(self.src).parent.as_posix()
        if path.suffix == ".h" and "#pragma once" not in text:
            self.report(path, 1, "a header starts with #pragma once")
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//", 1)[0]
            if folder != "cli" and relative not in SPEAKERS and PRINTS.search(code):
                self.report(path, number, "the library never prints (base/log.h)")
            if folder != "cli" and ENDS.search(code):
                self.report(path, number, "the library never ends the process")
            if path.suffix == ".h" and code.startswith("using namespace"):
                self.report(path, number, "no using namespace in a header")

    def check_words(self):
        """No leftovers and no machine's paths, in any file that git knows."""
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.root,
                                capture_output=True, text=True, check=False)
        suffixes = {".h", ".cpp", ".py", ".md", ".txt", ".cmake", ".json", ".ir", ".toml", ""}
        this = pathlib.Path(__file__).resolve()
        for name in listed.stdout.splitlines():
            path = self.root / name
            if path == this or path.suffix not in suffixes or not path.is_file():
                continue
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if UNFINISHED.search(line):
                    self.report(path, number, "finish it, or throw Unsupported with a test")
                if MACHINE.search(line):
                    self.report(path, number, "a path of one machine")

    def check_headers(self):
        flags = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-x", "c++", f"-I{self.src}"]
        for version in range(22, 17, -1):
            if os.path.isdir(f"/usr/lib/llvm-{version}/include"):
                flags += ["-isystem", f"/usr/lib/llvm-{version}/include"]
                break
        headers = [p for p in self.files if p.suffix == ".h"]

        def compile_alone(path):
            done = subprocess.run(flags + [str(path)], capture_output=True, text=True, check=False)
            return path, [l for l in done.stderr.splitlines() if "#pragma once in main" not in l
                          and "error" in l][:1] if done.returncode else []

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for path, errors in pool.map(compile_alone, headers):
                for error in errors:
                    self.report(path, 1, f"does not compile alone: {error}")

    def run(self, headers):
        for path in self.files:
            text = path.read_text()
            self.check_includes(path, text)
            self.check_rules(path, text)
        self.check_words()
        if headers:
            self.check_headers()
        return self.problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headers", action="store_true", help="compile each header alone")
    arguments = parser.parse_args()
    checker = Checker()
    problems = checker.run(arguments.headers)
    for problem in problems:
        print(problem)
    print(f"layers: {len(checker.files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
