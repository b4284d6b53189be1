"""The corpus finds what it is for: each difference, planted alone, is told in its class."""
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from corpus_parts import cases, comparing, cuda_text, gate, making, sass, stages, texts, timing  # noqa: E402

PRELUDE = "struct Pack { float at[4]; }; float add(float a, float b);\n"
KERNEL = "void kernel(const float* p0, float* p1) {\n  float t0 = add(p0[0], 1.0f);  // model\n  p1[0] = t0;\n}\n"
RENAMED = "void kernel(const float* in, float* out) { float sum = add(in[0], 1.0f); out[0] = sum; }"
OTHER = KERNEL.replace("1.0f", "2.0f")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


class Corpus:
    """A hand-made corpus of one case on two targets."""

    def __init__(self, folder):
        self.folder = folder
        self.gpu = {"case": "a/b", "status": "ok", "passes": "1", "loops": "2", "plan": "p",
                    "steps": [{"kind": "kernel", "label": "add", "kernel": "s", "code": "c",
                               "threads": 256, "shared": 0},
                              {"kind": "matmul", "label": "mm"}]}
        self.cpu = {"case": "a/b", "status": "ok", "passes": "1", "loops": "2", "plan": "p",
                    "steps": [{"kind": "kernel", "label": "add", "kernel": "s", "code": "object"}],
                    "outputs": [{"dtype": "f32", "sizes": [3], "hash": "v"}]}
        self.text, self.prelude, self.values = KERNEL, PRELUDE, {"v": floats(1, 2, 3)}
        self.machine = {"name": "x86", "architecture": "", "threads": 2}
        self.extra = []

    def write(self):
        for target, case in (("sm_90a", self.gpu), ("avx2", self.cpu)):
            folder = self.folder / target
            for kind in ("text", "code", "values"):
                (folder / kind).mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(c) for c in [case, *self.extra]]
            (folder / "cases.jsonl").write_text("\n".join(lines) + "\n")
            machine = {"name": "GPU", "architecture": "sm_90a"} if target == "sm_90a" else self.machine
            (folder / "target.json").write_text(json.dumps(machine))
        (self.folder / "sm_90a" / "prelude.cu").write_text(self.prelude)
        (self.folder / "sm_90a" / "code" / "c.cu").write_text(self.text)
        for name, data in self.values.items():
            (self.folder / "avx2" / "values" / f"{name}.bin").write_bytes(data)
        return self.folder


@pytest.fixture
def two(tmp_path):
    return Corpus(tmp_path / "old"), Corpus(tmp_path / "new")


def differences(two, **options):
    old, new = (c.write() for c in two)
    rows = comparing.compare(old, new, comparing.CLASSES, **options)
    said = []
    status = comparing.report(rows, 10, said.append)
    found = {(r.target, r.which): r.differ for r in rows if r.differ}
    assert status == (1 if found or any(r.missing for r in rows) else 0)
    return found


def test_equal_corpora_have_no_difference(two):
    assert differences(two) == {}


def test_cuda_text_is_compared_after_renaming(two):
    two[1].text = RENAMED
    assert differences(two) == {}


@pytest.mark.parametrize("target, which, plant", [
    ("sm_90a", "code", lambda c: setattr(c, "text", OTHER)),
    ("sm_90a", "status", lambda c: c.gpu.update(status="not supported: no")),
    ("sm_90a", "passes", lambda c: c.gpu.update(passes="3")),
    ("sm_90a", "loops", lambda c: c.gpu.update(loops="3")),
    ("sm_90a", "plan", lambda c: c.gpu.update(plan="q")),
    ("sm_90a", "schedule", lambda c: c.gpu["steps"][0].update(kernel="z")),
    ("sm_90a", "steps", lambda c: c.gpu["steps"][1].update(label="mm relu")),
    ("sm_90a", "prelude", lambda c: setattr(c, "prelude", PRELUDE + "int more;\n")),
    ("avx2", "code", lambda c: c.cpu["steps"][0].update(code="other")),
    ("avx2", "results", lambda c: c.cpu["outputs"][0].update(hash="w")),
])  # fmt: skip
def test_a_planted_difference_is_told_in_its_class(two, target, which, plant):
    plant(two[1])
    assert list(differences(two)) == [(target, which)]


def test_only_the_asked_classes_count(two):
    two[1].gpu["plan"] = "q"
    old, new = (c.write() for c in two)
    rows = comparing.compare(old, new, ["results"])
    assert {r.which for r in rows} == {"results"} and not any(r.differ for r in rows)


def test_a_case_that_only_one_has_fails(two):
    two[1].extra = [{"case": "a/c", "status": "ok"}]
    old, new = (c.write() for c in two)
    rows = comparing.compare(old, new, ["status"])
    assert [r.missing for r in rows] == [1, 1]
    assert comparing.report(rows, 1, lambda _: None) == 1


def test_results_say_how_far_they_are_apart(two):
    two[1].cpu["outputs"][0]["hash"] = "w"
    two[1].values = {"w": floats(1, 2.5, 3)}
    [line] = differences(two)["avx2", "results"]
    assert line == "a/b: result 0: 1 of 3 f32 differ, by at most 0.5 where the largest is 3"


def test_a_failed_run_is_a_difference(two):
    two[1].cpu["outputs"] = "error: out of range"
    assert differences(two)["avx2", "results"][0].endswith("-> error: out of range")


def test_corpora_of_two_machines_are_not_compared(two):
    two[1].machine = {**two[1].machine, "threads": 4}
    with pytest.raises(ValueError, match="avx2 was made on two machines: threads 2 and 4"):
        differences(two)
    assert differences(two, targets=["sm_90a"]) == {}


def test_a_target_that_one_lacks_is_an_error(two):
    with pytest.raises(ValueError, match="targets are"):
        differences(two, targets=["avx512"])


# --- Frozen hashes


def test_frozen_hashes_find_code_and_results(two):
    baseline = comparing.frozen(two[0].write())
    assert comparing.frozen(two[1].write()) == baseline
    two[1].text = OTHER
    two[1].cpu["outputs"][0]["hash"] = "w"
    rows = comparing.compare_frozen(baseline, two[1].write())
    found = {(r.target, r.which): r.differ for r in rows if r.differ}
    assert set(found) == {("sm_90a", "code"), ("avx2", "results")}
    assert comparing.report(rows, 10, lambda _: None) == 1


def test_frozen_hashes_of_another_machine_are_named_and_left_out(two):
    baseline = comparing.frozen(two[0].write())
    two[1].machine = {**two[1].machine, "name": "another"}
    said = []
    rows = comparing.compare_frozen(baseline, two[1].write(), said.append)
    assert said == ["avx2: frozen on another machine, not compared"]
    assert {r.target for r in rows} == {"sm_90a"}


# --- CUDA text and machine code


def test_renaming_is_one_to_one():
    reserved = cuda_text.reserved_words(PRELUDE)
    one = cuda_text.normalised("p = q; r = q;", reserved)
    assert one == cuda_text.normalised("u = v /* x */ ; t=v;", reserved)
    assert one != cuda_text.normalised("u = v; t = u;", reserved)
    assert one != cuda_text.normalised("u = v; u = v;", reserved)


def test_helpers_and_numbers_keep_their_names():
    reserved = cuda_text.reserved_words(PRELUDE)
    assert "add" in cuda_text.normalised("r = add(q, 1e-6f);", reserved).split("\n")
    assert cuda_text.normalised("q = 1e-6f;", reserved) != cuda_text.normalised("q = 1e-5f;", reserved)


SASS = """
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;    /* 0x00000a00ff017b82 */
        /*0010*/                   LDG.E R2, [R2.64] ;       /* 0x0000000402027981 */
        /*0020*/              @!P0 MUFU.EX2 R4, R4 ;         /* 0x0000000400047308 */
        /*0030*/                   SHFL.BFLY PT, R3, R2, 0x1, 0x1f ;
        /*0040*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0050*/                   STG.E [R4.64], R2 ;
        /*0060*/                   EXIT ;
        /*0070*/                   NOP;
"""
USAGE = " Function kernel:\n  REG:40 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:560 TEXTURE:0\n"


def test_metrics_of_machine_code():
    m = sass.parse_sass(SASS, USAGE)
    assert (m.registers, m.spill_bytes, m.shared_bytes, m.instructions) == (40, 16, 1024, 7)
    assert m.counts == {"global": 2, "shared": 0, "local": 0, "constant": 1, "atomic": 0,
                        "barrier": 1, "shuffle": 1, "special": 1}  # fmt: skip
    with pytest.raises(ValueError, match="0 instructions"):
        sass.parse_sass("", USAGE)


@pytest.mark.parametrize("registers, shared, threads, blocks", [
    (32, 0, 256, 8), (33, 0, 256, 6), (255, 0, 256, 1), (16, 0, 32, 32), (32, 100 << 10, 128, 2),
    (32, 0, 1024, 2), (64, 0, 1024, 1), (65, 0, 1024, 0),
])  # fmt: skip
def test_resident_blocks(registers, shared, threads, blocks):
    assert sass.resident_blocks(registers, shared, threads) == blocks


METRICS = dict(registers=32, spill_bytes=0, shared_bytes=0, counts=dict.fromkeys(sass.INSTRUCTIONS, 5),
               instructions=100, hash="a")  # fmt: skip


@pytest.mark.parametrize("change, why", [
    ({"hash": "b"}, None),
    ({"instructions": 102}, None),
    ({"instructions": 103}, "instructions 100 -> 103"),
    ({"spill_bytes": 8}, "spilled bytes 0 -> 8"),
    ({"registers": 40}, "resident blocks 8 of 256 threads -> 6 of 256"),
    ({"counts": {**METRICS["counts"], "special": 6}}, "special instructions 5 -> 6"),
    ({"counts": {**METRICS["counts"], "barrier": 4}}, None),
])  # fmt: skip
def test_the_gate_tells_what_is_worse(change, why):
    kernel = sass.Kernel("c", 256)
    new = sass.Metrics(**{**METRICS, "hash": "b", **change})
    assert sass.worse(sass.Metrics(**METRICS), new, kernel, kernel) == ([why] if why else [])


def test_the_gate_measures_kernels_that_differ(two, monkeypatch):
    old, new = (comparing.load(c.write() / "sm_90a") for c in two)
    assert gate.differing(old, new) == ({}, 1, [])
    two[1].text = OTHER
    new = comparing.load(two[1].write() / "sm_90a")
    pairs, same, unpaired = gate.differing(old, new)
    assert (list(pairs.values()), same, unpaired) == (["a/b, kernel 0"], 0, [])
    two[1].gpu["steps"].pop(0)
    new = comparing.load(two[1].write() / "sm_90a")
    assert gate.differing(old, new)[2] == ["a/b: 1 kernels -> 0"]
    assert gate.judge(old, new, "", "", lambda _: None) == 1


def test_cases_of_other_machine_code(two):
    def differ():
        return comparing.of_other_code(*(comparing.load(c.write() / "avx2") for c in two))

    assert differ() == set()
    two[1].cpu["steps"][0]["code"] = "another"
    assert differ() == {"a/b"}
    two[1].cpu["case"] = "only here"
    assert differ() == set()


# --- Cases


def test_cases_read_back(tmp_path):
    text = "case a/b training no-run\ninput -0.5 2.0\ngraph @g() {\n  return\n}\n"
    [case] = cases.parse(text)
    assert (case.name, case.options, case.inputs) == ("a/b", ("training", "no-run"), [(-0.5, 2.0)])
    assert str(case) == text
    for name in ("one", "two"):
        cases.write(tmp_path / f"{name}.cases.gz", [case])
    assert (tmp_path / "one.cases.gz").read_bytes() == (tmp_path / "two.cases.gz").read_bytes()
    assert cases.read(tmp_path / "one.cases.gz") == [case]
    with pytest.raises(ValueError, match="no case of one has a name like 'z'"):
        cases.select(tmp_path, ["one"], "z")


def test_inputs_of_a_graph():
    text = "graph @g(%x: f32[s0,4]{4,1} param, %s0: int, %i: i64[]) -> f32[4] {\n  return %x\n}\n"
    assert texts.input_types(text) == [("f32", "s0,4"), ("i64", "")]
    assert texts.case_of("n", text).inputs == [(-2.0, 2.0), (0.0, 3.0)]


def test_targets_leave_out_what_takes_them_minutes():
    def taken(target):
        names = ("models/gpt2/f32", "models/gpt2/bf16", "training/vit/bf16.1", "samples/add/m/bf16/fixed")
        return [n for n in names if making.TARGETS[target].takes(cases.Case(n, ""))]

    assert taken("avx512") == taken("sm_90a") and len(taken("avx512")) == 4
    assert taken("avx2") == ["models/gpt2/f32", "samples/add/m/bf16/fixed"]
    assert taken("amx") == ["models/gpt2/f32", "models/gpt2/bf16", "training/vit/bf16.1"]


def test_every_recorded_group_is_there():
    for group in cases.GROUPS:
        found = cases.read(cases.FOLDER / (group + cases.SUFFIX))
        assert found and all(c.name.startswith(group + "/") for c in found)
        assert len({c.name for c in found}) == len(found)
        for case in found:
            assert len(case.inputs) == len(texts.input_types(case.text)), case.name
    sample = [c for g in cases.GROUPS for c in cases.read(cases.FOLDER / (g + cases.SUFFIX)) if cases.is_sampled(c)]
    assert 100 < len(sample) < 600
    size = sum(p.stat().st_size for p in cases.FOLDER.iterdir())
    assert size < 10 << 20


# --- Times and instructions


def test_the_interval_finds_a_slower_build():
    generator = random.Random(1)
    old = [100 + generator.uniform(-1, 1) for _ in range(10)]
    same = [100 + generator.uniform(-1, 1) for _ in range(10)]
    low, ratio, high = timing.interval(old, same)
    assert timing.SLOWER - 0.02 < low <= ratio <= high < 1.02
    low, _, high = timing.interval(old, [1.05 * t for t in same])
    assert low < high < timing.SLOWER
    assert timing.interval(old, same) == timing.interval(old, same)


_TOOL = """#!/usr/bin/env python3
import json, os, sys
for line in open(sys.argv[3]):
    if line.startswith("case "):
        name = line.split()[1]
        if name == "dies" and SLOW > 1:
            os.abort()
        if name == "fails":
            print(json.dumps({"case": name, "error": "no kernel\\nfor it"}), flush=True)
        else:
            print(json.dumps({"case": name, "microseconds": 5.0 * SLOW, "least": 4.0}), flush=True)
"""


def test_cases_are_timed_on_one_processor_of_each_core(tmp_path):
    for number, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert timing.one_processor_a_core({3, 2, 1, 0}, tmp_path) == [0, 1]
    assert timing.one_processor_a_core({2, 3}, tmp_path) == [2, 3]
    assert timing.one_processor_a_core({7, 5}, tmp_path) == [5, 7]  # that the system says nothing of


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_case_without_a_time_is_named_and_the_others_are_timed(tmp_path, jobs):
    if jobs > len(timing.one_processor_a_core(os.sched_getaffinity(0))):
        pytest.skip("one core")
    tools = []
    for number, slow in enumerate([1, 1.25]):
        tools.append(tmp_path / f"tool{number}")
        tools[-1].write_text(_TOOL.replace("SLOW", str(slow)))
        tools[-1].chmod(0o755)
    found = [cases.Case(n, "text\n") for n in ("a", "dies", "b", "fails", "c")]
    said = []
    status = timing.run(*tools, found, 3, 0.0, 1, "microseconds", jobs, said.append)
    text = "\n".join(said)
    assert status == 1
    for name in "abc":
        assert re.search(rf"^{name} +5.0 +6.2 +0.800 +0.800 to 0.800 +may be slower", text, re.M), text
    assert re.search(r"^no time: dies: new: exit status -\d+", text, re.M), text
    assert "no time: fails: old: no kernel\n" in text + "\n" or "no time: fails: new: no kernel\n" in text + "\n"
    assert "geometric mean 0.800, median 0.800" in text
    assert text.endswith("3 of 3 cases may be slower: the interval begins below 0.99")


def test_instructions_by_stage():
    text = """
100,000 (100.0%)  PROGRAM TOTALS
 90,000 (90.00%)  ???:inkle::driver::Compiler::compile(inkle::graph::Graph, inkle::driver::CompileOptions const&) [/b/inkle]
 30,000 (30.00%)  ???:inkle::passes::run_passes(inkle::graph::Graph, std::span<int>) [/b/inkle]
 20,000 (20.00%)  ???:inkle::schedule::schedule(inkle::loop::Program, inkle::schedule::Options const&) [/b/inkle]
  5,000 ( 5.00%)  ???:something::else(inkle::graph::Graph) [/b/inkle]
"""
    assert stages.inclusive(text) == {"all": 90000, "passes": 30000, "schedule": 20000}
    with pytest.raises(ValueError, match="has not seen"):
        stages.inclusive("")


def test_disassembly_has_no_addresses():
    text = """
a.o:     file format elf64-x86-64

0000000000000000 <kernel>:
   0:	push   %rbp
   1:	jne    7 <kernel+0x7>
   3:	mov    0x0(%rip),%rax        # a <kernel+0xa>
   7:	ret
"""
    assert comparing.without_addresses(text) == (
        "  push   %rbp\n  jne    L0\n  mov    0x0(%rip),%rax\nL0:\n  ret")


# --- With the command

TOOL = ROOT / "build" / "inkle"
CASE = """case t/sum
input -1 1
input -1 1
graph @g(%x: f32[40,30], %y: f32[40,30]) -> f32[40], f32[40,30] {
  %0: f32[40,30] = add(%x, %y)
  %1: f32[40] = sum_dim(%0, [1], false)
  return %1, %0
}
case t/large no-run
input -1 1
graph @g(%x: f32[40,30]) -> f32[40,30] {
  %0: f32[40,30] = softmax(%x, 1)
  return %0
}
"""


def everything(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.skipif(not TOOL.exists(), reason="the command is not built")
def test_the_command_makes_the_same_twice_and_other_programs_differ(tmp_path):
    targets = [t for t in making.available() if t in ("avx2", "sm_90a")]
    other = CASE.replace("= add(", "= sub(")
    for name, text in (("one", CASE), ("two", CASE), ("three", other)):
        making.make(TOOL, cases.parse(text), tmp_path / name, targets)
    one = everything(tmp_path / "one")
    assert one == everything(tmp_path / "two")
    making.make(TOOL, cases.parse(other), tmp_path / "two", targets)
    making.make(TOOL, cases.parse(CASE), tmp_path / "two", targets)
    assert one == everything(tmp_path / "two")  # nothing is left of what was there
    for target in targets:
        made = comparing.load(tmp_path / "one" / target).cases
        assert [c["status"] for c in made.values()] == ["ok", "ok"]
        assert made["t/sum"]["steps"][0]["code"]
    rows = comparing.compare(tmp_path / "one", tmp_path / "three", comparing.CLASSES)
    found = {(r.target, r.which) for r in rows if r.differ}
    expected = {(t, c) for t in targets for c in ("passes", "loops", "steps", "schedule", "plan", "code")}
    assert found == expected | ({("avx2", "results")} if "avx2" in targets else set())
    for row in rows:
        assert all(line.startswith("t/sum: ") for line in row.differ)


@pytest.mark.skipif(not TOOL.exists(), reason="the command is not built")
def test_code_that_does_not_run_is_made_on_any_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(making, "processor_flags", lambda: set())
    making.make_target(TOOL, making.TARGETS["avx512"], cases.parse(CASE), tmp_path, 2, False)
    made = comparing.load(tmp_path)
    assert {case["status"] for case in made.cases.values()} == {"ok"}
    assert (made.target["name"], made.target["vector_bytes"]) == ("x86-64-v4", 64)


@pytest.mark.skipif(not TOOL.exists(), reason="the command is not built")
def test_a_graph_that_does_not_parse_is_written_down(tmp_path):
    target = making.TARGETS["sm_90a"]
    bad = cases.parse(CASE.replace("softmax(", "no_such_op("))
    making.make_target(TOOL, target, bad, tmp_path, 2, True)
    made = comparing.load(tmp_path).cases
    assert made["t/sum"]["status"] == "ok"
    assert made["t/large"]["status"].startswith("error: t/large:2:")


def test_a_command_that_ends_is_written_down_for_its_case(tmp_path):
    """A stand-in that writes one line a run, and then dies at the case called t/large."""
    tool = tmp_path / "tool"
    tool.write_text(f"""#!{sys.executable}
import json, os, pathlib, sys
a = sys.argv
out, skip = pathlib.Path(a[a.index("-o") + 1]), int(a[a.index("--skip") + 1])
(out / "target.json").write_text("{{}}")
names = [l.split()[1] for l in open(a[3]) if l.startswith("case ")]
for name in names[skip:]:
    if name == "t/large":
        os.abort()
    with open(out / "cases.jsonl", "a") as file:
        file.write(json.dumps({{"case": name, "status": "ok"}}) + "\\n")
""")
    tool.chmod(0o755)
    found = cases.parse(CASE + CASE.replace("t/", "u/"))
    making.make_target(tool, making.TARGETS["sm_90a"], found, tmp_path / "out", 2, True)
    made = comparing.load(tmp_path / "out").cases
    assert {n: c["status"] for n, c in made.items()} == {
        "t/sum": "ok", "t/large": "crashed: exit status -6", "u/sum": "ok", "u/large": "ok"}


@pytest.mark.skipif(not TOOL.exists(), reason="the command is not built")
@pytest.mark.parametrize("text, message", [
    ("graph @g() {\n", "1: expected 'case NAME'"),
    ("case a fast\n", "1: unknown option 'fast'"),
    ("case a\ncase a\n", "2: a second case a"),
    ("case a\ninput 1 b\n", "2: 'b' is no number"),
    ("case a\ninput 1\n", "2: expected 'input LOW HIGH'"),
])  # fmt: skip
def test_wrong_cases_are_told_with_their_line(tmp_path, text, message):
    file = tmp_path / "cases"
    file.write_text(text)
    done = subprocess.run([TOOL, "corpus", "make", file, "-o", tmp_path / "out", "--device", "null:sm_90a"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and f"{file}:{message}" in done.stderr


@pytest.mark.skipif(not TOOL.exists() or "avx2" not in making.available(), reason="no command, or no AVX2")
def test_a_wrong_number_of_ranges_is_told(tmp_path):
    bad = cases.parse(CASE.replace("input -1 1\ninput", "input"))
    making.make_target(TOOL, making.TARGETS["avx2"], bad, tmp_path, 2, True)
    assert comparing.load(tmp_path).cases["t/sum"]["outputs"] == "error: 1 ranges for 2 tensors"
