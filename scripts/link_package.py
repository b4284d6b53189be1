"""Makes the checkout's `inkle` the one of the running environment, as an editable install would:
a path file, the metadata that announces the torch backend, and the command.

    .venv/bin/python scripts/link_package.py    (idempotent; the last checkout wins)
"""
import pathlib
import sys
import sysconfig
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = pathlib.Path(sysconfig.get_path("purelib"))
    command = pathlib.Path(sysconfig.get_path("scripts")) / "inkle"
    metadata = site / f"inkle-{project['version']}.dist-info"
    for old in site.glob("inkle-*.dist-info"):
        if old != metadata:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
    points = ""
    for group, entries in project["entry-points"].items():
        points += f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items())
    files = {
        site / "inkle.pth": f"{ROOT / 'python'}\n",
        metadata / "METADATA": f"Metadata-Version: 2.1\nName: inkle\nVersion: {project['version']}\n"
                               f"Summary: {project['description']}\n",
        metadata / "INSTALLER": "inkle-scripts-setup\n",
        metadata / "entry_points.txt": points,
        metadata / "top_level.txt": "inkle\n",
        command: f'#!/bin/sh\nexec "{ROOT / "build" / "inkle"}" "$@"\n',
    }
    record = metadata / "RECORD"
    names = [f"{pathlib.Path(f).relative_to(site)},," for f in files if f != command]
    files[record] = "".join(f"{name}\n" for name in names + [f"{record.relative_to(site)},,"])
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
    command.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
