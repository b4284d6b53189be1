#!/usr/bin/env python3
"""Checks that no class of the scheduler, the kernel IR, the templates and the generators has more
than 25 methods: distinct names, as universal-ctags sees them.

    scripts/check_classes.py

Prints one line a class that has more and ends with 1 if there is any.
"""
import collections
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("schedule", "codegen", "kernel", "templates")
MOST = 25
# Classes that may have more, and how many at most.
EXCEPTIONS: dict[str, int] = {}


def read_tags(root, folders):
    """What ctags says of functions, one dictionary each."""
    ctags = shutil.which("ctags-universal") or shutil.which("ctags")
    if ctags is None:
        sys.exit("scripts/check_classes.py: universal-ctags is missing; run scripts/setup")
    command = [ctags, "--output-format=json", "--languages=C++", "--langmap=C++:+.h", "--kinds-C++=fpcs",
               "--fields=+KZs", "-f", "-", "-R", *(f"src/{folder}" for folder in folders)]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        sys.exit(f"scripts/check_classes.py: {found.stderr.strip() or 'ctags failed'}")
    return [json.loads(line) for line in found.stdout.splitlines()]


def count_methods(tags):
    """class -> (distinct names, files)"""
    names, files = collections.defaultdict(set), collections.defaultdict(set)
    for tag in tags:
        if tag.get("kind") in ("function", "prototype") and tag.get("scopeKind") in ("class", "struct"):
            names[tag["scope"]].add(tag["name"])
            files[tag["scope"]].add(tag["path"])
    return {scope: (len(names[scope]), sorted(files[scope])) for scope in names}


def readable(scope):
    """Without the names that ctags gives to anonymous namespaces."""
    return "::".join(part for part in scope.split("::") if not part.startswith("__anon"))


def main(root=ROOT, folders=FOLDERS, exceptions=None):
    exceptions = EXCEPTIONS if exceptions is None else exceptions
    classes = count_methods(read_tags(root, folders))
    bad = 0
    for scope, (count, files) in sorted(classes.items()):
        most = max(MOST, exceptions.get(readable(scope), 0))
        if count <= most:
            continue
        print(f"{files[-1]}: {readable(scope)} has {count} methods; at most {most}")
        bad += 1
    print(f"classes: {len(classes)} classes, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
