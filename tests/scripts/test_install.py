"""`cmake --install`: the runtime library by itself, and the examples built with what it gives."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest
from bare_root import BareRoot, libraries

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
DATA = ROOT / "tests" / "pt2" / "data"
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(not (BUILD / "libinkle_runtime.so").exists() or not (BUILD / "inkle").exists(),
                                reason="the command and the runtime library are not built")

# What a compiler brings along; nothing of the caller's environment.
BARE = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
MOST_BYTES = 4 << 20
# Libraries of the C and C++ compiler, and no other.
OF_THE_COMPILER = re.compile(r"(ld-linux-x86-64|libc|libm|libgcc_s|libstdc\+\+|libgomp|libpthread|libdl)\.so.*")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "a", "dog", "ran", "##s",
         "##ning", ".", ",", "to", "park", "is", "rain", "run", "in", "it", "##ed", "sleep", "very",
         "##ly", "quick", "!", "bird", "sing", "tree"]
SENTENCES = ["The cat sat on the mat.", "A dog ran to the park!", "It is raining", "the bird sings in a tree",
             "Sleeping dogs, quickly", "the cat sat on a mat", ""]
INPUT = "".join(s + "\n" for s in SENTENCES)


def run(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                          **{"env": BARE, **more})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    first = tmp_path_factory.mktemp("install") / "first"
    run("cmake", "--install", BUILD, "--prefix", first, "--component", "runtime", env=None)
    moved = first.with_name("moved")  # no file names the folder that it was installed to
    first.rename(moved)
    return moved


@pytest.fixture(scope="module")
def library(prefix):
    (found,) = prefix.glob("lib*/**/libinkle_runtime.so")
    return found


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    run(BUILD / "inkle", "build", DATA / "encoder.pt2", "-o", folder / "m.inkle", "--target", "x86-64-v3", env=None)
    (folder / "vocab.txt").write_text("".join(word + "\n" for word in WORDS))
    return folder


def tokens(text, most):
    """WordPiece, in other words than the examples'."""
    ids = [WORDS.index("[CLS]")]
    for word in re.findall(r"[a-z]+|[^\sa-z]", text.lower()):
        pieces, rest = [], word
        while rest:
            size = next((n for n in range(len(rest), 0, -1)
                         if ("##" if pieces else "") + rest[:n] in WORDS), 0)
            if size == 0:
                pieces = ["[UNK]"]
                break
            pieces.append(("##" if pieces else "") + rest[:size])
            rest = rest[size:]
        ids += [WORDS.index(p) for p in pieces]
    return ids[: most - 1] + [WORDS.index("[SEP]")]


@pytest.fixture(scope="module")
def expected(work):
    """What the examples print: the best matches by the model itself, run by the compiler."""
    rows = [tokens(text, 16) for text in SENTENCES]
    length = max(map(len, rows))
    ids = numpy.array([r + [0] * (length - len(r)) for r in rows])
    mask = numpy.array([[1] * len(r) + [0] * (length - len(r)) for r in rows])
    numpy.save(work / "ids.npy", ids)
    numpy.save(work / "mask.npy", mask)
    run(BUILD / "inkle", "run", DATA / "encoder.pt2", "--input", work / "ids.npy", "--input", work / "mask.npy",
        "--output", work / "out", env=None)
    (vectors,) = (numpy.load(p).astype("f8") for p in (work / "out").glob("*.npy"))
    unit = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    numpy.fill_diagonal(cosines, -2)
    return [(text, cosines[i].max(), SENTENCES[cosines[i].argmax()]) for i, text in enumerate(SENTENCES)]


def check_output(program, work, expected, **more):
    check_lines(run(program, work / "m.inkle", work / "vocab.txt", input=INPUT, **more), expected)


def check_lines(text, expected):
    lines = text.splitlines()
    assert len(lines) == 2 * len(SENTENCES)
    for i, (sentence, score, match) in enumerate(expected):
        assert lines[2 * i] == sentence
        number, _, other = lines[2 * i + 1].strip().partition(" ")
        assert other == match and abs(float(number) - score) < 2e-4


def test_the_library_is_small_and_needs_the_compilers_libraries_alone(library):
    assert library.resolve().stat().st_size < MOST_BYTES
    dynamic = run("readelf", "-d", library)
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert "libc.so.6" in needed
    assert [n for n in needed if not OF_THE_COMPILER.fullmatch(n)] == []
    assert "[libinkle_runtime.so.0]" in dynamic
    names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
    assert "inkle_run" in names and all(n.startswith("inkle_") for n in names)
    assert str(ROOT).encode() not in library.read_bytes()


def test_only_a_cpp_compiler(prefix, library, work, expected, tmp_path):
    program = tmp_path / "embeddings"
    run("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", EXAMPLES / "embeddings.cpp", "-o", program,
        f"-I{prefix}/include", f"-L{library.parent}", "-linkle_runtime", f"-Wl,-rpath,{library.parent}")
    check_output(program, work, expected)
    assert len((EXAMPLES / "embeddings.cpp").read_text().splitlines()) < 100
    failed = subprocess.run([program, work / "vocab.txt", work / "vocab.txt"], capture_output=True, text=True,
                            env=BARE, input="", check=False)
    assert failed.returncode == 1 and "this is no .inkle file" in failed.stderr


STATUS = """
#include <inkle.h>
#include <stdio.h>

int main(int count, char** arguments) {
  const int64_t ids[2] = {2, 3}, sizes[2] = {1, 2};
  const inkle_value input = {INKLE_TENSOR, 0, {(void*)ids, INKLE_I64, 2, sizes, NULL}};
  const inkle_value inputs[2] = {input, input};
  inkle_program* program = NULL;
  inkle_results* results = NULL;
  if (count != 2 || inkle_load(arguments[1], &program) != INKLE_OK) return 1;
  if (inkle_results_new(&results) != INKLE_OK) return 1;
  printf("%d\\n", inkle_run(program, inputs, 2, results) == INKLE_UNSUPPORTED);
  inkle_results_release(results);
  inkle_program_release(program);
  return 0;
}
"""


@pytest.fixture(scope="module")
def bare(prefix, library, work, tmp_path_factory):
    """A root with a compiler, an installed Inkle, the examples built there, and packages from outside."""
    folder = tmp_path_factory.mktemp("bare")
    root = BareRoot(folder)
    shutil.copytree(prefix, root.folder / "opt" / "inkle", symlinks=True)
    place = root.folder / "examples"
    place.mkdir()
    for file in (EXAMPLES / "embeddings.cpp", EXAMPLES / "embeddings.c", work / "vocab.txt"):
        shutil.copy(file, place)
    (place / "status.c").write_text(STATUS)
    for products in ("template", "library"):
        run(BUILD / "inkle", "build", DATA / "encoder.pt2", "-o", place / f"{products}.inkle", "--target", "x86-64-v3",
            env=os.environ | {"INKLE_GEMM": products})
    libraries_of_inkle = f"/opt/inkle/{library.parent.relative_to(prefix)}"
    flags = ["-Wall", "-Wextra", "-Werror", "-I/opt/inkle/include", f"-L{libraries_of_inkle}", "-linkle_runtime",
             f"-Wl,-rpath,{libraries_of_inkle}", "-lm"]
    for compiler, standard, source, program in (("g++", "-std=c++17", "embeddings.cpp", "embeddings"),
                                                ("gcc", "-std=c99", "embeddings.c", "embeddings_c"),
                                                ("gcc", "-std=c99", "status.c", "status")):
        done = root.run(compiler, standard, f"/examples/{source}", "-o", f"/examples/{program}", *flags)
        assert done.returncode == 0, done.stderr
    yield root
    shutil.rmtree(folder)


def run_bare(root, program, products, **more):
    return root.run(f"/examples/{program}", f"/examples/{products}.inkle", "/examples/vocab.txt", input=INPUT, **more)


@pytest.mark.parametrize("program", ["embeddings", "embeddings_c"])
def test_a_root_with_a_compiler_alone(program, bare, library, expected):
    """The compiler's own products need no oneDNN; the same package prints the same outside."""
    done = run_bare(bare, program, "template")
    assert done.returncode == 0, done.stderr
    check_lines(done.stdout, expected)
    place = bare.folder / "examples"
    assert done.stdout == run(place / program, place / "template.inkle", place / "vocab.txt", input=INPUT,
                              env=BARE | {"LD_LIBRARY_PATH": str(library.parent)})


@pytest.mark.parametrize("program", ["embeddings", "embeddings_c"])
def test_a_root_without_onednn(program, bare, expected):
    """The library's products name what is missing, and run where it is."""
    done = run_bare(bare, program, "library")
    assert done.returncode == 1 and done.stdout == ""
    missing = re.search(r"cannot be opened: (libdnnl\.so\.\d+): cannot open shared object file", done.stderr)
    assert missing is not None, done.stderr
    assert "install it (Debian: libdnnl2), or add its folder to LD_LIBRARY_PATH" in done.stderr
    assert bare.run("/examples/status", "/examples/library.inkle").stdout == "1\n"

    folder = bare.folder / "opt" / "onednn"
    folder.mkdir(exist_ok=True)
    onednn = run("g++", f"-print-file-name={missing[1]}").strip()
    for needed in [onednn, *libraries(onednn)]:
        shutil.copy(needed, folder)
    done = run_bare(bare, program, "library", environment={"LD_LIBRARY_PATH": "/opt/onednn"})
    assert done.returncode == 0, done.stderr
    check_lines(done.stdout, expected)


def test_pkg_config(prefix, library, work, expected, tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    environment = BARE | {"PKG_CONFIG_PATH": str(library.parent / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "inkle", env=environment).split()
    assert run("pkg-config", "--modversion", "inkle", env=environment).strip() == "0.1.0"
    assert f"-L{library.parent.resolve()}" in [f[:2] + os.path.realpath(f[2:]) for f in flags]
    program = tmp_path / "embeddings"
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", EXAMPLES / "embeddings.c", "-o", program,
        *flags, "-lm")
    check_output(program, work, expected, env=BARE | {"LD_LIBRARY_PATH": str(library.parent)})


def test_find_package(prefix, work, expected, tmp_path):
    run("cmake", "-S", EXAMPLES, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    for name in ("embeddings", "embeddings_c"):
        check_output(tmp_path / "build" / name, work, expected)
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\nfind_package(inkle 0.2 REQUIRED)\n")
    refused = subprocess.run(["cmake", "-S", tmp_path / "newer", "-B", tmp_path / "newer" / "build",
                              f"-DCMAKE_PREFIX_PATH={prefix}"], capture_output=True, text=True, env=BARE,
                             check=False)
    assert refused.returncode != 0 and "0.1.0" in refused.stderr


def test_a_model_on_a_gpu(prefix, library, tmp_path):
    """Compiled where there is nothing of CUDA; without a GPU, what is missing is said."""
    (tmp_path / "m.ir").write_text("graph @m(%x: f32[s0,8]) -> f32[s0,8] where s0 in 3..64 {\n"
                                   "  %0: f32[s0,8] = exp(%x)\n  return %0\n}\n")
    run(BUILD / "inkle", "build", tmp_path / "m.ir", "-o", tmp_path / "m.inkle", "--target", "sm_90a", env=None)
    flags = [f"-I{prefix}/include", f"-L{library.parent}", "-linkle_runtime", f"-Wl,-rpath,{library.parent}"]
    run("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", EXAMPLES / "gpu.cpp", "-o", tmp_path / "gpu", *flags)
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", EXAMPLES / "gpu.c", "-o", tmp_path / "gpu_c",
        *flags)
    lines = run(tmp_path / "gpu", tmp_path / "m.inkle", "null:sm_90a", "5").splitlines()
    assert lines[0].startswith("null:sm_90a for sm_90a: ") and lines[1].startswith("output0: 3 8, first ")
    assert run(tmp_path / "gpu_c", tmp_path / "m.inkle", "null:sm_90a").splitlines() == \
        ["null:sm_90a for sm_90a", "result 0: f32 of rank 2"]
    for program in ("gpu", "gpu_c"):
        done = subprocess.run([tmp_path / program, tmp_path / "m.inkle", "null:sm_80"], capture_output=True, text=True,
                              env=BARE, check=False)
        assert done.returncode == 1
        assert "a GPU of sm_80 runs none of its targets: sm_90a needs a GPU of sm_90a" in done.stderr
        done = subprocess.run([tmp_path / program, tmp_path / "m.inkle"], capture_output=True, text=True, env=BARE,
                              check=False)
        if done.returncode != 0:
            assert "no NVIDIA driver on this machine (libcuda.so.1)" in done.stderr or "GPU" in done.stderr


ONCE = """
import ctypes, sys

class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int32),
                ("sizes", ctypes.c_void_p), ("strides", ctypes.c_void_p)]

class Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("integer", ctypes.c_int64), ("tensor", Tensor)]

library = ctypes.CDLL(sys.argv[1])
library.inkle_last_error.restype = ctypes.c_char_p
program, results = ctypes.c_void_p(), ctypes.c_void_p()
numbers, sizes = (ctypes.c_float * 4096)(), (ctypes.c_int64 * 2)(64, 64)
x = Value(1, 0, Tensor(ctypes.addressof(numbers), 9, 2, ctypes.addressof(sizes), None))
assert library.inkle_load(sys.argv[2].encode(), ctypes.byref(program)) == 0, library.inkle_last_error()
assert library.inkle_results_new(ctypes.byref(results)) == 0
assert library.inkle_run(program, ctypes.byref(x), ctypes.c_size_t(1), results) == 0, library.inkle_last_error()
print("libdnnl" in open("/proc/self/maps").read())
"""


@pytest.mark.parametrize("body, opens", [("exp(%x)", False), ("mm(%x, %x)", True)])
def test_onednn_is_opened_where_the_plan_calls_it(body, opens, library, tmp_path):
    (tmp_path / "m.ir").write_text(f"graph @m(%x: f32[64,64]) -> f32[64,64] {{\n  %0: f32[64,64] = {body}\n"
                                   "  return %0\n}\n")
    run(BUILD / "inkle", "build", tmp_path / "m.ir", "-o", tmp_path / "m.inkle", env=None)
    assert run(sys.executable, "-c", ONCE, library, tmp_path / "m.inkle") == f"{opens}\n"
