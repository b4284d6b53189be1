"""`inkle.load`: packages in Python, with NumPy and DLPack, where there is no torch."""
import pathlib
import subprocess
import sys
import threading

import numpy
import pytest

import inkle

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "pt2" / "data"
COMMAND = ROOT / "build" / "inkle"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")

SCALE = """graph @scale(%x: f32[s0,3], %w: f32[3] param) -> f32[s0,3], int where s0 in 2..64 hint 4 {
  %0: f32[s0,3] = mul(%x, %w)
  return %0, s0*2
}
"""
COUNT = """graph @count(%count: f32[2], %x: f32[2]) -> f32[2] {
  %0: f32[2] = add(%count, %x)
  %1: f32[2]{1} = copy_(%count, %0)
  return %0
}
"""
HALF = """graph @half(%x: f32[4]) -> bf16[4], f16[4] {
  %0: bf16[4] = to_dtype(%x, bf16)
  %1: f16[4] = to_dtype(%x, f16)
  return %0, %1
}
"""
ONES = numpy.ones(3, "f4")


def build(source, to, *arguments):
    done = subprocess.run([COMMAND, "build", source, "-o", to, *arguments], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture
def package(tmp_path):
    def make(text, *arguments):
        (tmp_path / "m.ir").write_text(text)
        return build(tmp_path / "m.ir", tmp_path / "m.inkle", *arguments)

    return make


@pytest.fixture
def scale(package):
    program = inkle.load(package(SCALE))
    program.weights = {"w": numpy.array([1, 10, 100], "f4")}
    return program


def test_description(scale):
    assert repr(scale) == "Program(x: f32[2..64, 3]) -> (output0: f32[2..64, 3], output1: int)"
    assert [repr(p) for p in scale.parameters] == ["w: f32[3]"]
    (x,) = scale.inputs
    assert (x.name, x.dtype, x.least, x.most, x.is_written) == ("x", "f32", [2, 3], [64, 3], False)
    assert scale.target.startswith("x86-64-v")


def test_arrays_by_position_and_name_in_any_strides(scale):
    x = numpy.arange(6, dtype="f4").reshape(2, 3)
    for result, size in (scale(x), scale(x=x), scale(numpy.asfortranarray(x)), scale(x[:, ::-1][:, ::-1])):
        assert isinstance(result, numpy.ndarray) and result.dtype == numpy.float32
        numpy.testing.assert_array_equal(result, x * [1, 10, 100])
        assert size == 4
    numpy.testing.assert_array_equal(scale(numpy.broadcast_to(ONES, (5, 3)))[0], [[1, 10, 100]] * 5)


def test_results_are_arrays_of_their_own(scale):
    first = scale(numpy.ones((2, 3), "f4"))[0]
    kept = first.copy()
    second = scale(numpy.zeros((2, 3), "f4"))[0]
    second += 1
    numpy.testing.assert_array_equal(first, kept)
    del scale
    numpy.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("arguments, message", [
    (([],), "input x: f32[2..64, 3]: expected an array with DLPack or the buffer protocol, got list"),
    ((), "input x: f32[2..64, 3] is missing"),
    ((ONES, ONES), "expected 1 inputs (x: f32[2..64, 3]), got 2"),
    ((ONES,), "argument x: expected f32 of rank 2 on cpu, got f32[3]"),
    ((numpy.ones((2, 3)),), "argument x: expected f32 of rank 2 on cpu, got f64[2,3]"),
    ((numpy.ones((2, 4), "f4"),), "argument x: expected f32[2,3]"),
    ((numpy.ones((1, 3), "f4"),), "argument x, size of dimension 0: 2 <= 1 does not hold"),
    ((numpy.ones((65, 3), "f4"),), "argument x, size of dimension 0: 65 <= 64 does not hold"),
])
def test_wrong_arguments(scale, arguments, message):
    with pytest.raises(inkle.WrongArgument) as caught:
        scale(*arguments)
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_wrong_names(scale):
    x = numpy.ones((2, 3), "f4")
    with pytest.raises(inkle.WrongArgument, match="there is no input y; the inputs are x: f32"):
        scale(y=x)
    with pytest.raises(inkle.WrongArgument, match="input x is given twice"):
        scale(x, x=x)


def test_weights(scale, package):
    x = numpy.ones((2, 3), "f4")
    other = inkle.load(package(SCALE))
    with pytest.raises(inkle.WrongArgument, match="scale has no weights yet: it needs w"):
        other(x)
    with pytest.raises(inkle.WrongArgument, match="no weights yet"):
        _ = other.weights
    other.weights = scale.weights
    numpy.testing.assert_array_equal(other(x)[0], [[1, 10, 100]] * 2)
    scale.weights = {"w": numpy.array([2, 2, 2], "f4"), "unused": ONES}
    numpy.testing.assert_array_equal(scale(x)[0], x * 2)
    numpy.testing.assert_array_equal(other(x)[0], [[1, 10, 100]] * 2)
    for weights, message in (({}, "weights are missing: w"),
                             ({"w": ONES[:2]}, r"weight w: expected f32\[3\], got f32\[2\]"),
                             ({"w": None}, "weight w: expected an array")):
        with pytest.raises(inkle.WrongArgument, match=message):
            scale.weights = weights
    numpy.testing.assert_array_equal(scale(x)[0], x * 2)


def test_what_the_program_writes(package):
    program = inkle.load(package(COUNT))
    state = numpy.array([1, 2], "f4")
    result = program(state, ONES[:2])
    numpy.testing.assert_array_equal(state, [2, 3])
    numpy.testing.assert_array_equal(result, [2, 3])
    result += 5
    numpy.testing.assert_array_equal(state, [2, 3])
    state.flags.writeable = False
    with pytest.raises(inkle.WrongArgument, match=r"input count: f32\[2\]: expected a writable array"):
        program(state, ONES[:2])
    strided = numpy.ones(4, "f4")[::2]
    with pytest.raises(inkle.WrongArgument, match=r"argument count: expected f32\[2\] with strides"):
        program(strided, ONES[:2])


def test_dtypes_that_numpy_lacks_come_by_dlpack(package):
    torch = pytest.importorskip("torch")
    x = torch.randn(4)
    brief, half = inkle.load(package(HALF))(x)
    assert half.dtype == numpy.float16
    assert torch.equal(torch.from_dlpack(brief), x.bfloat16())


def test_threads_share_a_program(scale):
    wrong = []

    def calls(value):
        x = numpy.full((8, 3), value, "f4")
        for _ in range(200):
            if not (scale(x)[0] == x * [1, 10, 100]).all():
                wrong.append(value)

    threads = [threading.Thread(target=calls, args=(v,)) for v in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_files_that_are_refused(tmp_path, package):
    with pytest.raises(inkle.UserError, match="cannot be read"):
        inkle.load(tmp_path / "none.inkle")
    path = package(COUNT)
    data = bytearray(path.read_bytes())
    data[4096 + 40] ^= 1
    path.write_bytes(data)
    with pytest.raises(inkle.UserError, match="section plan is damaged"):
        inkle.load(path)


WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else found(name, *more)
import numpy, inkle
program = inkle.load(sys.argv[1])
print(program(numpy.zeros(2, "f4"), numpy.ones(2, "f4")), "torch" in sys.modules)
"""


def test_torch_is_not_needed(package):
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, package(COUNT)], capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1. 1.] False\n"


@pytest.mark.parametrize("name", sorted(p.stem for p in DATA.glob("*.pt2")))
def test_the_bits_of_the_command(name, tmp_path):
    package = build(DATA / f"{name}.pt2", tmp_path / "m.inkle")
    program = inkle.load(package)
    arguments, random = [], numpy.random.default_rng(0)
    kinds = {"f32": "f4", "i64": "i8", "bool": "?", "f16": "f2", "f64": "f8"}
    sizes = {}
    for declared in program.inputs:
        if declared.dtype == "int":
            arguments.append(-3)
            sizes[declared.name] = -3
            continue
        shape = [low if low == most else max(low, 4) for low, most in zip(declared.least, declared.most)]
        array = random.integers(0, 2, shape).astype(kinds[declared.dtype])
        arguments.append(array)
        numpy.save(tmp_path / f"{declared.name}.npy", array)
    command = [COMMAND, "run", package, "--output", tmp_path / "out"]
    for declared, value in zip(program.inputs, arguments):
        command += (["--size", f"s86={value}"] if declared.dtype == "int"
                    else ["--input", f"{declared.name}={tmp_path / declared.name}.npy"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = program(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    for path in done.stdout.split():
        number = int(pathlib.Path(path).name.split("_")[0])
        assert numpy.load(path).tobytes() == numpy.ascontiguousarray(results[number]).tobytes()


def test_weights_beside_the_package(tmp_path):
    path = build(DATA / "encoder.pt2", tmp_path / "m.inkle", "--weights", "separate")
    ids = numpy.ones((2, 5), "i8")
    want = inkle.load(path)(ids, ids)
    (tmp_path / "m.weights").rename(tmp_path / "elsewhere")
    program = inkle.load(path)
    with pytest.raises(inkle.WrongArgument, match="no weights yet: it needs p_words_weight.*or m.weights beside it"):
        program(ids, ids)
    (tmp_path / "elsewhere").rename(tmp_path / "m.weights")
    program.weights = inkle.load(path).weights
    numpy.testing.assert_array_equal(program(ids, ids), want)


def test_on_a_gpu_that_runs_nothing(package):
    path = package(SCALE, "--target", "sm_90a")
    program = inkle.load(path, device="null:sm_90a")
    assert (program.device, program.target) == ("null:sm_90a", "sm_90a")
    x = numpy.ones((4, 3), "f4")
    with pytest.raises(inkle.WrongArgument, match="no weights yet"):
        program(x)
    program.weights = {"w": ONES}
    y, n = program(x)
    assert n == 8
    assert (y.shape, y.dtype, y.device) == ((4, 3), "f32", "cuda:0")
    assert y.__dlpack_device__() == (2, 0) and repr(y) == "DeviceArray(f32[4, 3] on cuda:0)"
    assert y.numpy().shape == numpy.asarray(y).shape == (4, 3)
    assert numpy.asarray(y, "f8").dtype == numpy.float64
    assert "dltensor" in repr(y.__dlpack__(stream=1))
    z, _ = program.run_on(0, x)
    assert z.numpy().shape == (4, 3)
    # What lies on a GPU is taken where it lies, for work of the call's stream.
    again, _ = program(y)
    assert again.shape == (4, 3)
    with pytest.raises(inkle.WrongArgument, match="expected a CUDA stream"):
        program.run_on("default", x)
    with pytest.raises(inkle.WrongArgument, match=r"expected f32 of rank 2"):
        program(numpy.ones(3, "f4"))


def test_devices_that_are_not_there(package):
    of_gpu = package(SCALE, "--target", "sm_90a")
    with pytest.raises(inkle.Unsupported, match="this processor runs none of its targets: sm_90a"):
        inkle.load(of_gpu)
    with pytest.raises(inkle.Unsupported, match="a GPU of sm_80 runs none of its targets: sm_90a"):
        inkle.load(of_gpu, device="null:sm_80")
    with pytest.raises(inkle.WrongArgument, match="device 'tpu': expected cpu, cuda or cuda:NUMBER"):
        inkle.load(of_gpu, device="tpu")
    program = inkle.load(package(SCALE))
    program.weights = {"w": ONES}
    with pytest.raises(inkle.WrongArgument, match="runs on the processor, which has no streams"):
        program.run_on(0, numpy.ones((4, 3), "f4"))
