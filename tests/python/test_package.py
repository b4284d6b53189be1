"""`inkle build`, `inkle check` and `inkle run` on a package: the bits that the model itself gives."""
import hashlib
import os
import pathlib
import re
import struct
import subprocess

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "pt2" / "data"
COMMAND = ROOT / "build" / "inkle"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")


def inkle(*arguments, code=0, **environment):
    every = os.environ | {name: str(value) for name, value in environment.items()}
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, env=every)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def outputs(model, folder, *arguments):
    inkle("run", model, "--random", "--output", folder, *arguments)
    files = sorted(folder.glob("*.npy"))
    assert files
    return {f.name: f.read_bytes() for f in files}


@pytest.mark.parametrize("name", sorted(p.stem for p in DATA.glob("*.pt2")))
def test_a_package_gives_the_bits_of_its_model(name, tmp_path):
    package = tmp_path / "m.inkle"
    inkle("build", DATA / f"{name}.pt2", "-o", package)
    assert inkle("check", package).stdout.endswith(": ok\n")
    want = outputs(DATA / f"{name}.pt2", tmp_path / "model")
    assert outputs(package, tmp_path / "package") == want


def test_other_targets_and_frozen_weights(tmp_path):
    package = tmp_path / "m.inkle"
    inkle("build", DATA / "residual.pt2", "-o", package, "--target", "x86-64-v3", "--freeze")
    want = outputs(DATA / "residual.pt2", tmp_path / "model", "--freeze")
    got = outputs(package, tmp_path / "package")
    assert want.keys() == got.keys()
    for name in want:
        a, b = (numpy.load(tmp_path / folder / name) for folder in ("model", "package"))
        numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert "plan       x86-64-v3" in inkle("check", package).stdout
    assert "unknown instruction set pentium" in inkle("build", DATA / "tiny.pt2", "-o", package, "--target",
                                                 "pentium", code=1).stderr


def test_building_twice_gives_the_same_bytes_without_paths(tmp_path):
    (tmp_path / "a").mkdir()
    inkle("build", DATA / "encoder.pt2", "-o", tmp_path / "a" / "one.inkle")
    inkle("build", DATA / "encoder.pt2", "-o", tmp_path / "two.inkle", "--threads", "1")
    one = (tmp_path / "a" / "one.inkle").read_bytes()
    assert one == (tmp_path / "two.inkle").read_bytes()
    assert str(ROOT).encode() not in one and str(tmp_path).encode() not in one
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".part"] == []


def test_damage_is_refused_with_a_reason(tmp_path):
    package = tmp_path / "m.inkle"
    inkle("build", DATA / "tiny.pt2", "-o", package)
    good = package.read_bytes()
    for at in (0, 9, 100, 4096 + 40, len(good) - 1):
        package.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        code = {0: "wrong_magic", 9: "other_format"}.get(at, "hash_mismatch")
        assert inkle("check", package, code=1).stderr.startswith(f"error: {package}: {code}: ")
        run = inkle("run", package, "--random", code=1).stderr
        assert run.startswith(f"error: {package}: {code}: " if at != 0 else f"error: {package}: ")
    package.write_bytes(good[:-1])
    assert "truncated: the file has" in inkle("run", package, "--random", code=1).stderr
    assert "a package already" in inkle("build", write(package, good), "-o", tmp_path / "x", code=1).stderr


def table_of(checked):
    """target -> whether it runs here, what it needs, and why it does not run."""
    lines = checked.splitlines()
    rows, target = {}, None
    for line in lines[[line.split()[0] for line in lines].index("target") + 1:]:
        if row := re.fullmatch(r"(\S+) +(yes|no) +(.*)", line):
            target = row[1]
            rows[target] = row[2], row[3], None
        elif line.startswith("  "):
            rows[target] = (*rows[target][:2], line.strip())
    return rows


def test_a_target_for_a_gpu_that_is_not_here(tmp_path):
    inkle("build", DATA / "tiny.pt2", "-o", tmp_path / "m.inkle", "--target", "sm_90a", "--target", "compute_80")
    for target, needs in (("sm_90a", "a GPU of sm_90a"), ("compute_80", "a GPU of sm_80 or later")):
        runs, needed, reason = table_of(inkle("check", tmp_path / "m.inkle", CUDA_VISIBLE_DEVICES="").stdout)[target]
        assert runs == "no" and needed.startswith(needs)
        assert reason.startswith(f"no_gpu: needs {needs}; no GPU is here: ")


@pytest.mark.parametrize("at, code, words", [
    (8, "other_format", "the file's format is version 2, this runtime reads version 1"),
    (12, "other_abi", "the file was built for ABI 2, this runtime has ABI 1: build it again"),
])
def test_a_file_of_another_version(tmp_path, at, code, words):
    """Whole and with right hashes, as docs/package.md has them."""
    package = tmp_path / "m.inkle"
    inkle("build", DATA / "tiny.pt2", "-o", package)
    data = bytearray(package.read_bytes())

    def header_hash():
        (sections,) = struct.unpack_from("<I", data, 16)
        cleared = data[:64] + bytes(32) + data[96:96 + 88 * sections]
        return hashlib.blake2b(cleared, digest_size=32, person=b"inkle header").digest()

    assert data[64:96] == header_hash()
    struct.pack_into("<I", data, at, 2)
    data[64:96] = header_hash()
    package.write_bytes(data)
    for command in (("run", package, "--random"), ("check", package)):
        assert inkle(*command, code=1).stderr.startswith(f"error: {package}: {code}: {words}")


def write(path, content):
    path.write_bytes(content)
    return path


def test_ops_of_a_framework_are_named(tmp_path):
    torch = pytest.importorskip("torch")

    class Sorted(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x)[1] + torch.linalg.eigvalsh(x)

    torch.export.save(torch.export.export(Sorted(), (torch.randn(4, 4),)), tmp_path / "m.pt2")
    message = inkle("build", tmp_path / "m.pt2", "-o", tmp_path / "m.inkle", code=1).stderr
    assert "linalg_svd" in message and "eig" in message and "test_package.py:" in message
    assert not (tmp_path / "m.inkle").exists()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_transposed_convolutions_with_a_bias_on_a_gpu(tmp_path, dtype):
    torch = pytest.importorskip("torch")

    class Up(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = torch.nn.Conv2d(8, 8, 3)
            self.first = torch.nn.ConvTranspose2d(8, 8, 3)
            self.last = torch.nn.ConvTranspose2d(8, 8, 2, 2, groups=2)

        def forward(self, x):
            return self.last(self.first(self.plain(x)).relu())

    model, x = Up().eval().to(getattr(torch, dtype)), torch.randn(2, 8, 12, 12).to(getattr(torch, dtype))
    batch = torch.export.Dim("batch", min=1, max=8)
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=({0: batch},)), tmp_path / "m.pt2")
    inkle("build", tmp_path / "m.pt2", "-o", tmp_path / "m.inkle", "--target", "sm_90a")
    shown = inkle("run", tmp_path / "m.inkle", "--random", "--device", "null:sm_90a").stdout
    assert "2,8,24,24]" in shown


def test_a_package_is_profiled_as_its_model(tmp_path):
    inkle("build", DATA / "encoder.pt2", "-o", tmp_path / "m.inkle")
    tables = [inkle("profile", path, "--seconds", "0.01").stdout for path in
              (tmp_path / "m.inkle", DATA / "encoder.pt2")]
    ends = [sorted(line.split("  ", 1)[-1][-40:] for line in table.splitlines()[2:-1]) for table in tables]
    assert ends[0] == ends[1] and any("layer_norm" in end for end in ends[0])


def test_packages_for_gpus(tmp_path):
    package = tmp_path / "m.inkle"
    inkle("build", DATA / "encoder.pt2", "-o", package, "--target", "sm_90a", "--target", "x86-64-v3")
    first = package.read_bytes()
    sections = inkle("check", package).stdout
    assert "images     sm_90a" in sections and "code       x86-64-v3" in sections
    inkle("build", DATA / "encoder.pt2", "-o", package, "--target", "sm_90a", "--target", "x86-64-v3")
    assert package.read_bytes() == first
    want = outputs(DATA / "encoder.pt2", tmp_path / "model", "--device", "cpu:x86-64-v3")
    assert outputs(package, tmp_path / "package") == want  # the processor takes its own target
    assert "kernels" in inkle("bench", package, "--device", "null:sm_90a", "--seconds", "0.01").stdout
    refused = inkle("run", package, "--random", "--device", "null:sm_80", code=1).stderr
    assert "other_gpu: a GPU of sm_80 runs none of its targets: sm_90a needs a GPU of sm_90a;" in refused
    assert "x86-64-v3 needs to be run by the processor" in refused
    inkle("build", DATA / "encoder.pt2", "-o", package, "--target", "sm_80")
    refused = inkle("run", package, "--random", code=1).stderr
    assert "only_for_gpus: this processor runs none of its targets: sm_80 needs a GPU of sm_80 or a later" in refused
    assert "kernels" in inkle("bench", package, "--device", "null:sm_80", "--seconds", "0.01").stdout
    refused = inkle("build", DATA / "tiny.pt2", "-o", package, "--target", "sm_12", code=1).stderr
    assert "no typical device of architecture 'sm_12'" in refused


def test_ptx_for_later_gpus(tmp_path):
    package = tmp_path / "m.inkle"
    inkle("build", DATA / "encoder.pt2", "-o", package, "--target", "compute_80", "--target", "sm_90a",
          "--target", "x86-64-v3")
    assert b".target sm_80" in package.read_bytes()
    rows = table_of(inkle("check", package).stdout)
    assert rows["compute_80"][1] == "a GPU of sm_80 or later, whose driver compiles it; where no machine code fits"
    assert rows["sm_90a"][1] == "a GPU of sm_90a"
    assert rows["x86-64-v3"][0] == "yes" and rows["x86-64-v3"][2] is None
    for device in ("null:sm_80", "null:sm_90a", "null:sm_100"):
        assert "kernels" in inkle("bench", package, "--device", device, "--seconds", "0.01").stdout
    refused = inkle("build", DATA / "tiny.pt2", "-o", package, "--target", "compute_90a", code=1).stderr
    assert "no typical device of architecture 'compute_90a'" in refused


def test_weights_in_a_file_of_their_own(tmp_path):
    want = outputs(DATA / "encoder.pt2", tmp_path / "model")
    package, weights = tmp_path / "m.inkle", tmp_path / "m.weights"
    inkle("build", DATA / "encoder.pt2", "-o", package, "--weights", "separate")
    assert outputs(package, tmp_path / "beside") == want
    assert f"weights in {weights}\n" in inkle("check", package).stdout
    assert inkle("check", weights).stdout.endswith(": ok\n")
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    for command in (("run", package, "--random"), ("check", package)):
        assert f"{weights}: " in inkle(*command, code=1).stderr
    weights.unlink()
    assert "which is not here" in inkle("check", package).stdout
    assert "missing" in inkle("run", package, code=1).stderr
    assert "the file has no plan" in inkle("run", write(weights, kept), "--random", code=1).stderr


def test_a_page_about_a_package(tmp_path):
    package, page = tmp_path / "m.inkle", tmp_path / "page.html"
    inkle("build", DATA / "encoder.pt2", "-o", package, "--target", "x86-64-v3")
    inkle("inspect", package, "-o", page, "--seconds", "0.01")
    text = page.read_text()
    assert "package for x86-64-v3" in text and "p_words_weight" in text and "leaves" in text
    inkle("inspect", package, "-o", page, "--no-run")
    assert "the program was not run" in page.read_text()


def test_kernels_of_a_package_are_interpreted(tmp_path):
    graph, package, page = (tmp_path / name for name in ("g.ir", "m.inkle", "page.html"))
    graph.write_text("graph @g(%x: f32[64,100]) -> f32[64,100] {\n  %0: f32[64,100] = softmax(%x, 1)\n"
                     "  return %0\n}\n")
    inkle("build", graph, "-o", package, "--target", "x86-64-v4", "--target", "x86-64-v3")
    for target in ("x86-64-v3", "x86-64-v4"):  # the schedules differ, and so do the names
        error = inkle("kernel", "run", package, "--target", target, code=1).stderr
        name = re.search(r"m.inkle: is a package; give --kernel NAME, one of (softmax_[0-9a-f]{8})\n", error)[1]
        done = inkle("kernel", "run", package, "--kernel", name, "--target", target, "--elements", 6400, "--seeds", 1)
        assert re.search(r"^[1-9]\d* runs, [1-9]\d* steps, 0 findings", done.stdout), done.stdout
    done = inkle("kernel", "run", package, "--kernel", name, "--elements", 6399, "--seeds", 1, code=1)
    assert "outside at" in done.stdout
    refused = inkle("kernel", "run", package, "--kernel", name, "--target", "sm_80", code=1).stderr
    assert "no target 'sm_80', only x86-64-v4, x86-64-v3" in refused
    refused = inkle("kernel", "run", package, "--kernel", "other", code=1).stderr
    assert f"has no kernel 'other'; give --kernel NAME, one of {name}" in refused
    refused = inkle("kernel", "run", graph, "--kernel", name, code=1).stderr
    assert "g.ir: is no package, which --kernel, --target and --key are about" in refused
    inkle("inspect", package, "-o", page, "--no-run")
    assert "kernel @softmax_" in page.read_text()


def test_packages_do_not_depend_on_the_cache(tmp_path):
    """Equal kernels are one entry of the cache, whatever their names."""
    names, files = [], []
    for op, cache in (("relu(%x)", tmp_path / "cache"), ("clamp_min(%x, 0)", tmp_path / "cache"), ("clamp_min(%x, 0)", "")):
        graph = tmp_path / "g.ir"
        graph.write_text(f"graph @g(%x: f32[64,100]) -> f32[64,100] {{\n  %0: f32[64,100] = {op}\n  return %0\n}}\n")
        files.append(tmp_path / f"{len(files)}.inkle")
        done = inkle("build", graph, "-o", files[-1], INKLE_CACHE_DIR=cache, INKLE_LOG="cache")
        names.append(re.search(r"one of (\w+)", inkle("kernel", "run", files[-1], code=1).stderr)[1])
        assert ("1 of 1 kernels were made by earlier processes" in done.stderr) == (len(files) == 2)
    assert names[0] != names[1] and names[0][-8:] == names[1][-8:]
    assert files[1].read_bytes() == files[2].read_bytes()


def test_ranges_of_sizes_hold_in_packages(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.ones((65, 4), "f4"))
    numpy.save(tmp_path / "q.npy", numpy.ones(2, "f4"))
    inkle("build", DATA / "mutations.pt2", "-o", tmp_path / "m.inkle")
    refused = inkle("run", tmp_path / "m.inkle", "--input", tmp_path / "x.npy", "--input", tmp_path / "q.npy", code=1)
    assert "expected 4 to 64" in refused.stderr


def test_a_batch_of_one_where_the_batch_varies(tmp_path):
    torch = pytest.importorskip("torch")

    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("places", torch.arange(8)[None])
            self.table = torch.nn.Embedding(8, 4)

        def forward(self, x):
            return x + self.table(self.places.expand(x.shape[0], -1))

    batch = torch.export.Dim("batch", min=1, max=64)
    model = Positions()
    program = torch.export.export(model, (torch.randn(3, 8, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "m.pt2")
    inkle("build", tmp_path / "m.pt2", "-o", tmp_path / "m.inkle")
    for rows in (1, 2, 64):
        x = torch.randn(rows, 8, 4)
        numpy.save(tmp_path / "x.npy", x.numpy())
        inkle("run", tmp_path / "m.inkle", "--input", tmp_path / "x.npy", "--output", tmp_path / f"out{rows}")
        (out,) = (tmp_path / f"out{rows}").glob("*.npy")
        numpy.testing.assert_array_equal(numpy.load(out), model(x).detach().numpy())


def test_a_fat_file_runs_its_best_target(tmp_path, monkeypatch):
    fat, narrow, wide = (tmp_path / f"{name}.inkle" for name in ("fat", "narrow", "wide"))
    both = ("--target", "x86-64-v4", "--target", "x86-64-v3")
    inkle("build", DATA / "encoder.pt2", "-o", fat, *both)
    inkle("build", DATA / "encoder.pt2", "-o", narrow, *both[2:])
    inkle("build", DATA / "encoder.pt2", "-o", wide, *both[:2])
    rows = table_of(inkle("check", fat, INKLE_ISA="avx2").stdout)
    runs, needs, reason = rows["x86-64-v4"]
    assert runs == "no" and {"avx2", "avx512f", "avx512vl"} <= set(needs.split(", "))
    assert reason.startswith("cpu_features_missing: needs avx512f")
    assert "; the processor here is x86-64-v3 with avx, avx2, bmi, " in reason
    runs, needs, reason = rows["x86-64-v3"]
    assert runs == "yes" and reason is None and "avx2" in needs.split(", ") and "avx512" not in needs
    page = tmp_path / "page.html"
    inkle("inspect", fat, "-o", page, "--no-run", INKLE_ISA="avx2")
    assert "package for x86-64-v3" in page.read_text()
    with monkeypatch.context() as narrowed:
        narrowed.setenv("INKLE_ISA", "avx2")
        assert outputs(fat, tmp_path / "a") == outputs(narrow, tmp_path / "b")
    refused = inkle("run", wide, "--random", code=1, INKLE_ISA="avx2").stderr
    assert refused.startswith(f"error: not supported: {wide}: cpu_features_missing: this processor runs none of its")
    assert "x86-64-v4 needs avx512f" in refused and "; the processor here is x86-64-v3 with avx, avx2, " in refused
    if "avx512vl" in pathlib.Path("/proc/cpuinfo").read_text():
        assert outputs(fat, tmp_path / "c") == outputs(wide, tmp_path / "d")
        inkle("inspect", fat, "-o", page, "--no-run")
        assert "package for x86-64-v4" in page.read_text()


@pytest.fixture
def keys(tmp_path):
    for name in ("ours", "theirs"):
        assert "public key in" in inkle("key", tmp_path / name).stdout
    return tmp_path / "ours", tmp_path / "theirs"


def public(key):
    return key.with_name(key.name + ".pub")


def flipped(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_signed_packages(tmp_path, keys):
    ours, theirs = keys
    package, signature = tmp_path / "m.inkle", tmp_path / "m.inkle.sig"
    assert ours.stat().st_mode & 0o777 == 0o600
    inkle("build", DATA / "tiny.pt2", "-o", package, "--sign", ours)
    first = package.read_bytes(), signature.read_bytes()
    inkle("build", DATA / "tiny.pt2", "-o", package, "--sign", ours)
    assert (package.read_bytes(), signature.read_bytes()) == first
    assert "signed by key " in inkle("check", package, "--key", public(ours)).stdout
    want = outputs(DATA / "tiny.pt2", tmp_path / "model")
    assert outputs(package, tmp_path / "signed", "--key", public(ours)) == want
    assert outputs(package, tmp_path / "by_line", "--key", public(ours).read_text()) == want
    assert outputs(package, tmp_path / "unasked") == want

    def refused(reason):
        for command in (("run", package, "--random"), ("check", package), ("bench", package)):
            for how in ({"INKLE_PACKAGE_KEY": public(ours)}, {}):
                option = () if how else ("--key", public(ours))
                said = inkle(*command, *option, code=1, **how).stderr
                assert said.startswith(f"error: {package}: ") and reason in said and said.count("\n") == 1

    inkle("sign", package, "--key", theirs)
    assert "signature in " in inkle("check", package).stdout
    refused("other_key: is signed by key ")
    inkle("sign", package, "--key", ours)
    assert signature.read_bytes() == first[1]
    text = bytearray(first[1])
    text[-10] = ord("B") if text[-10] == ord("A") else ord("A")  # still base64
    signature.write_bytes(text)
    refused("bad_signature: its signature")
    refused("does not match")
    signature.unlink()
    refused("not_signed: is not signed")
    assert "not signed, and no key is required\n" in inkle("check", package).stdout
    signature.write_bytes(first[1])
    flipped(package, 70)
    refused("does not match")
    package.write_bytes(first[0][:-1] + bytes([first[0][-1] ^ 1]))
    assert "is damaged" in inkle("sign", package, "--key", ours, code=1).stderr
    assert signature.read_bytes() == first[1]


def test_a_demanded_key_refuses_what_is_no_package(tmp_path, keys):
    ours, _ = keys
    assert "is not a package" in inkle("run", DATA / "tiny.pt2", "--random", "--key", public(ours), code=1).stderr
    inkle("run", DATA / "tiny.pt2", "--random", INKLE_PACKAGE_KEY=public(ours))


def test_keys_that_are_refused(tmp_path, keys):
    ours, theirs = keys
    package = tmp_path / "m.inkle"
    assert "exists already" in inkle("key", ours, code=1).stderr
    theirs.chmod(0o640)
    said = inkle("build", DATA / "tiny.pt2", "-o", package, "--sign", theirs, code=1).stderr
    assert said.startswith(f"error: {theirs}: other users may read") and "chmod 600" in said
    assert not package.exists()
    inkle("build", DATA / "tiny.pt2", "-o", package, "--sign", ours)
    for key, reason in ((ours, "it starts with inkle-secret-key-1"), (package, "is larger than"),
                        (tmp_path / "none", "cannot be read"), (tmp_path, "is not a file"), ("", "the key is empty")):
        assert reason in inkle("run", package, "--random", "--key", key, code=1).stderr
        assert reason in inkle("run", package, "--random", code=1, INKLE_PACKAGE_KEY=key).stderr
    public(ours).chmod(0o600)
    assert "it starts with inkle-public-key-1" in inkle("sign", package, "--key", public(ours), code=1).stderr


def test_signed_weights_in_a_file_of_their_own(tmp_path, keys):
    ours, _ = keys
    package, weights = tmp_path / "m.inkle", tmp_path / "m.weights"
    inkle("build", DATA / "encoder.pt2", "-o", package, "--weights", "separate", "--sign", ours)
    option = "--key", public(ours)
    assert outputs(package, tmp_path / "out", *option)
    flipped(weights, -1)
    assert f"{weights}: " in inkle("run", package, "--random", *option, code=1).stderr
    (tmp_path / "other").mkdir()
    inkle("build", DATA / "tiny.pt2", "-o", tmp_path / "other" / "m.inkle", "--weights", "separate")
    weights.write_bytes((tmp_path / "other" / "m.weights").read_bytes())
    assert "holds other weights" in inkle("run", package, "--random", *option, code=1).stderr


def test_signed_packages_in_python(tmp_path, keys, monkeypatch):
    import inkle as module

    ours, theirs = keys
    package = tmp_path / "m.inkle"
    inkle("build", DATA / "tiny.pt2", "-o", package, "--sign", ours)
    assert module.load(package, key=public(ours)).inputs
    assert module.load(package, public(ours).read_text()).inputs
    with pytest.raises(module.UserError, match="is signed by key"):
        module.load(package, key=public(theirs))
    with pytest.raises(module.UserError, match="the key is empty"):
        module.load(package, key="")
    monkeypatch.setenv("INKLE_PACKAGE_KEY", str(public(theirs)))
    with pytest.raises(module.UserError, match="INKLE_PACKAGE_KEY="):
        module.load(package)
    assert module.load(package, key=public(ours)).inputs
    (tmp_path / "m.inkle.sig").unlink()
    monkeypatch.delenv("INKLE_PACKAGE_KEY")
    with pytest.raises(module.UserError, match="is not signed"):
        module.load(package, key=public(ours))
    assert module.load(package).inputs


@pytest.mark.parametrize("numerics", ["eager", "batch_invariant"])
def test_a_batch_that_varies_beside_torch_compile(tmp_path, numerics):
    """The same bits; a product that is known to have one row is a kernel, unless its order is fixed."""
    torch = pytest.importorskip("torch")
    import inkle as package

    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 10)).eval()
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(model, (torch.randn(3, 3, 12, 12),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, tmp_path / "m.pt2")
    inkle("build", tmp_path / "m.pt2", "-o", tmp_path / "m.inkle", "--numerics", numerics)
    program = package.load(str(tmp_path / "m.inkle"))
    compiled = torch.compile(model, backend="inkle", dynamic=False, options={"numerics": numerics})
    for rows in (1, 2, 3, 16):
        x = torch.randn(rows, 3, 12, 12)
        with torch.no_grad():
            want = compiled(x).numpy()
        got = program(x.numpy())
        got = got[0] if isinstance(got, tuple) else got
        if rows > 1 or numerics == "batch_invariant":
            assert got.tobytes() == want.tobytes(), rows
        else:
            numpy.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
