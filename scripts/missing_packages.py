"""Prints the requirements of a file that the running Python lacks, one a line.

    python scripts/missing_packages.py scripts/packages/python.txt

Knows names and the comparisons >=, <, ==; ends with 2 on a line it cannot read.
"""
import importlib.metadata
import re
import sys

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)((?:(?:>=|<|==)[0-9.]+,?)*)")
CONDITION = re.compile(r"(>=|<|==)([0-9.]+)")


def version_key(text):
    """(2, 15, 0) of 2.15.0+cpu: enough for releases, which is all that the list asks for."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", text).group().split("."))


def satisfied(version, conditions):
    have = version_key(version)
    for relation, wanted in CONDITION.findall(conditions):
        want = version_key(wanted)
        if not {">=": have >= want, "<": have < want, "==": have == want}[relation]:
            return False
    return True


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            line = line.split("#", 1)[0].strip()
            if not line:
                continue
            match = REQUIREMENT.fullmatch(line)
            if match is None:
                print(f"{sys.argv[1]}: cannot read {line}", file=sys.stderr)
                return 2
            try:
                version = importlib.metadata.version(match.group(1))
            except importlib.metadata.PackageNotFoundError:
                version = None
            if version is None or not satisfied(version, match.group(2)):
                print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
