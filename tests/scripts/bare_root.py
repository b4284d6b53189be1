"""A root folder that has a C and C++ compiler and nothing else, and what runs in it by chroot.

What belongs to the compiler is what it says itself: its programs, the headers that the standard
library's headers include, the files that a link opens, and the shared libraries of all these.
"""
import os
import pathlib
import re
import shutil
import subprocess

from rights import lacks

# What runs in the root, and what is asked of the compiler outside.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
LANGUAGES = {"c": ("gcc", "-std=c99"), "c++": ("g++", "-std=c++17")}
# All headers of C99; those of C++ are libstdc++'s list of them.
C_HEADERS = ["assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale",
             "math", "setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string",
             "tgmath", "time", "wchar", "wctype"]
HEADERS = {"c": "".join(f"#include <{name}.h>\n" for name in C_HEADERS), "c++": "#include <bits/stdc++.h>\n"}
PROGRAMS = ["as", "ld", "cc1", "cc1plus", "collect2", "lto-wrapper", "liblto_plugin.so"]
# One of them in the root would make it less than bare.
STRANGERS = re.compile(r"python|perl|llvm|clang|torch|dnnl|cmake|ninja|pkg-?config|cuda", re.IGNORECASE)


def output(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                          **{"env": ENVIRONMENT, **more})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def program(name):
    found = shutil.which(name, path=ENVIRONMENT["PATH"])
    assert found is not None, f"{name} is not installed"
    return found


def compilers_files(scratch):
    """Paths of all that compiling and linking in C99 and C++17 needs, as the compiler names them."""
    files = {program("sh")}
    for language, (compiler, standard) in LANGUAGES.items():
        files.add(program(compiler))
        for name in PROGRAMS:
            found = output(compiler, f"-print-prog-name={name}").strip()
            if not found.startswith("/"):  # one of the path, or a file beside the programs
                found = output(compiler, f"-print-file-name={name}").strip()
            files.add(found if found.startswith("/") else program(name))
        listed = output(compiler, standard, "-x", language, "-M", "-", input=HEADERS[language])
        files.update(word for word in listed.replace("\\\n", " ").split() if word.startswith("/"))
        linked = output(compiler, standard, "-x", language, "-", "-o", scratch / "a.out", "-lm", "-fopenmp",
                        "-Wl,--no-as-needed,--verbose", input="int main(void) { return 0; }\n")
        opened = re.findall(r"^attempt to open (.*) succeeded$|^opened script file (.*)$", linked, re.MULTILINE)
        files.update(name for names in opened for name in names)
        files.add(output(compiler, "-print-file-name=libgomp.spec").strip())
        files.update(libraries(scratch / "a.out"))
    return {f for f in files if f.startswith("/") and not f.startswith(f"{scratch}/") and os.path.isfile(f)}


def libraries(path):
    """The shared libraries that the loader finds for a program or a library; none for an object file."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode != 0:
        return []
    assert "not found" not in done.stdout, done.stdout
    return re.findall(r"(?:=> |^\s*)(/\S+)", done.stdout, re.MULTILINE)


class BareRoot:
    def __init__(self, folder):
        self.folder = folder / "root"
        # With the rights of root, or of root in a namespace of the user's own.
        self._change_root = [program("chroot")] if os.geteuid() == 0 else [program("unshare"), "-r", program("chroot")]
        for name in sorted(compilers_files(folder)):
            self.add(name)
        (self.folder / "tmp").mkdir()
        done = self.run("sh", "-c", ":")
        if done.returncode != 0:
            lacks(f"no program can be given another root folder here: {done.stderr.strip()}")
        names = [str(p.relative_to(self.folder)) for p in self.folder.rglob("*")]
        assert [name for name in names if STRANGERS.search(name)] == []

    def add(self, path):
        """A file under its own name, with the links that lead to it and the libraries that it needs."""
        path = pathlib.Path(os.path.normpath(path))
        for at in [*reversed(path.parents[:-1]), path]:
            link = self._inside(os.path.realpath(at.parent), at.name)
            if at.is_symlink() and not link.is_symlink():
                link.symlink_to(os.path.realpath(at))
        copy = self._inside(os.path.realpath(path))
        if copy.exists():
            return
        shutil.copy2(path, copy)
        if copy.read_bytes()[:4] == b"\x7fELF":
            for needed in libraries(path):
                self.add(needed)

    def _inside(self, *path):
        place = self.folder / pathlib.Path(*path).relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def run(self, *command, environment=None, **more):
        return subprocess.run([*self._change_root, self.folder, *map(str, command)], capture_output=True, text=True,
                              check=False, env=ENVIRONMENT | (environment or {}), **more)
