// Launches that need more than buffers: dynamic shared memory beyond 48 KB, tensors copied in
// boxes, blocks that wait for each other. On a card of sm_90 where there is one, else on the null
// device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "abi/plan_text.h"
#include "base/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/host.h"
#include "runtime/cuda/null_device.h"

namespace inkle::runtime::cuda {
namespace {

// y[r, c] = x[r, c] for the 8 rows of a block, which one box brings to shared memory, 1024 bytes
// aligned, in rows of 128 bytes that are swizzled; rows that x does not have must come as zeros.
// Then each block counts itself and waits until all have, and y's last element is their number.
constexpr const char* kBoxes = R"(
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 raw[];
.visible .entry boxes(.param .u64 x, .param .u64 y, .param .u64 count, .param .u64 rows,
                      .param .align 64 .b8 map[128], .param .u64 status)
.maxntid 256, 1, 1
{
  .reg .pred %first, %p;
  .reg .b32 %at, %bar, %t, %b, %r, %c, %v, %a, %n;
  .reg .b64 %y, %count, %rows, %map, %status, %row, %to;
  ld.param.u64 %y, [y];
  ld.param.u64 %count, [count];
  ld.param.u64 %rows, [rows];
  ld.param.u64 %status, [status];
  cvta.to.global.u64 %y, %y;
  cvta.to.global.u64 %count, %count;
  cvta.to.global.u64 %status, %status;
  mov.u32 %t, %tid.x;
  mov.u32 %b, %ctaid.x;
  mov.u32 %at, raw;
  add.s32 %at, %at, 1023;
  and.b32 %at, %at, -1024;
  add.s32 %bar, %at, 61440;
  setp.eq.s32 %first, %t, 0;
  @!%first bra COPIED;
  mbarrier.init.shared.b64 [%bar], 1;
  fence.mbarrier_init.release.cluster;
  mov.u32 %v, 1024;
  mbarrier.arrive.expect_tx.shared.b64 _, [%bar], %v;
  mov.b64 %map, map;
  cvta.param.u64 %map, %map;
  mov.u32 %c, 0;
  shl.b32 %r, %b, 3;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
      [%at], [%map, {%c, %r}], [%bar];
COPIED:
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;
  @!%p bra WAIT;
  shr.u32 %r, %t, 5;           // the row of the box
  and.b32 %c, %t, 31;          // and the word in it
  shr.u32 %a, %c, 2;
  xor.b32 %a, %a, %r;          // its 16 bytes, swizzled
  shl.b32 %a, %a, 4;
  shl.b32 %v, %r, 7;
  add.s32 %a, %a, %v;
  and.b32 %v, %c, 3;
  shl.b32 %v, %v, 2;
  add.s32 %a, %a, %v;
  add.s32 %a, %a, %at;
  ld.shared.u32 %v, [%a];
  shl.b32 %a, %b, 3;
  add.s32 %a, %a, %r;
  cvt.u64.u32 %row, %a;
  setp.lt.s64 %p, %row, %rows;
  @!%p bra BEYOND;
  shl.b64 %to, %row, 5;
  cvt.u64.u32 %row, %c;
  add.s64 %to, %to, %row;
  shl.b64 %to, %to, 2;
  add.s64 %to, %to, %y;
  st.global.u32 [%to], %v;
  bra THROUGH;
BEYOND:
  setp.eq.s32 %p, %v, 0;
  @%p bra THROUGH;
  st.global.u32 [%status], 1;
THROUGH:
  bar.sync 0;
  @!%first bra END;
  membar.gl;
  atom.global.add.u32 %v, [%count], 1;
  mov.u32 %n, %nctaid.x;
ALL:
  ld.volatile.global.u32 %v, [%count];
  setp.lt.u32 %p, %v, %n;
  @%p bra ALL;
  membar.gl;
  setp.ne.s32 %p, %b, 0;
  @%p bra END;
  shl.b64 %to, %rows, 7;
  add.s64 %to, %to, %y;
  st.global.u32 [%to], %n;
END:
  ret;
}
)";

// x: i32[rows,32], count: i32[1] of 0 -> y: i32[rows*32 + 1].
constexpr const char* kPlan = R"(
plan name="boxes" slots=13
argument name="x" dtype=i32 sizes=[0,1] strides=[1,2] alignment=16 device=(kind=cuda)
argument name="count" dtype=i32 sizes=[2] strides=[2] written device=(kind=cuda)
size op=size
size result=1 immediate=32
size result=2 immediate=1
size result=3 immediate=128
size result=4 op=mul a=0 b=3
size result=5 immediate=4
size result=6 op=mul a=0 b=1
size result=7 op=add a=6 b=2
size result=8 op=mul a=7 b=5
size result=9 immediate=7
size result=10 op=add a=0 b=9
size result=11 immediate=8
size result=12 op=floordiv a=10 b=11
buffer name="x" kind=argument dtype=i32 sizes=[0,1] strides=[1,2] bytes=4 device=(kind=cuda)
buffer name="count" kind=argument index=1 dtype=i32 sizes=[2] strides=[2] bytes=5 device=(kind=cuda)
buffer name="y" kind=output dtype=i32 sizes=[7] strides=[2] bytes=8 device=(kind=cuda)
kernel name="boxes" device=(entry="boxes" threads=256 shared_bytes=62592 can_fail co_resident)
step launch=(buffers=[0,2,1] sizes=[0] extent=12 maps=[(dtype=i32 sizes=[0,1] strides=[1,2] box=[8,32] swizzle=128)])
output index=2 sizes=[7] strides=[2] offset=0
)";

class Host final : public DeviceHost {
 public:
  explicit Host(Device& device) : device_(device) {}
  ~Host() override {
    const Scope scope(device_);
    for (void* memory : made_) device_.free(memory);
  }
  abi::TensorView tensor(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
    Tensor& t = tensors_.emplace_back(Tensor{std::move(sizes), std::move(strides)});
    std::int64_t elements = 1;
    for (const std::int64_t size : t.sizes) elements *= size;
    return {.data = allocate(std::max<std::int64_t>(elements * 4, 4)),
            .dtype = abi::DType::i32,
            .device = {abi::DeviceKind::cuda, 0},
            .rank = static_cast<std::int32_t>(t.sizes.size()),
            .sizes = t.sizes.data(),
            .strides = t.strides.data()};
  }
  common::HostTensor make_output(abi::DType, std::span<const std::int64_t> sizes,
                                 std::span<const std::int64_t> strides) override {
    result = tensor({sizes.begin(), sizes.end()}, {strides.begin(), strides.end()});
    return {this, result};
  }
  void* allocate(std::int64_t bytes) override {
    const Scope scope(device_);
    return made_.emplace_back(device_.allocate(bytes));
  }
  Stream stream() override { return nullptr; }
  void call(std::uint32_t, std::span<const common::EagerOperand>,
            std::span<common::HostTensor>) override {}
  void give(std::uint32_t, const common::Output&) override {}
  void release(common::Handle) override {}
  void copy(const abi::TensorView&, const abi::TensorView&) override {}
  std::optional<common::HostTensor> convolution(const ConvolutionArguments&) override { return {}; }
  std::optional<common::HostTensor> attention(const AttentionArguments&) override { return {}; }

  abi::TensorView result;

 private:
  struct Tensor {
    std::vector<std::int64_t> sizes, strides;
  };
  Device& device_;
  std::deque<Tensor> tensors_;
  std::vector<void*> made_;
};

abi::DeviceDescription hopper() {
  abi::DeviceDescription d;
  d.kind = abi::DeviceKind::cuda;
  d.architecture = "sm_90a";
  d.parallelism = 4;
  d.l1_bytes = 227 << 10;
  d.shared_bytes = 228 << 10;
  d.block_threads = 1024;
  d.resident_threads = 2048;
  return d;
}

abi::PlanAndCode boxes() {
  const std::string text = kBoxes;
  std::vector<std::byte> bytes(text.size() + 1);
  std::transform(text.begin(), text.end(), bytes.begin(), [](char c) { return std::byte(c); });
  auto code = std::make_shared<abi::Code>();
  code->functions.resize(1);
  code->images.push_back(
      {"sm_90a", std::make_shared<const std::vector<std::byte>>(std::move(bytes))});
  return {std::make_shared<const abi::Plan>(abi::parse_plan(kPlan, "boxes.plan")), code};
}

void run(Executable& program, Host& host, std::int64_t rows, const abi::TensorView& count) {
  const std::vector<abi::TensorView> views = {host.tensor({rows, 32}, {32, 1}), count};
  program.run({.tensors = views, .host = &host});
}

TEST(LaunchTest, BoxesAreDescribedOncePerTensorAndSizes) {
  const auto device = make_null_device(hopper());
  Executable program(boxes(), device);
  Host host(*device);
  const abi::TensorView count = host.tensor({1}, {1});
  const std::vector<abi::TensorView> views = {host.tensor({95, 32}, {32, 1}), count};
  for (int i = 0; i < 2; ++i) program.run({.tensors = views, .host = &host});
  const auto maps = device->take_maps();
  ASSERT_EQ(maps.size(), 1U);
  EXPECT_EQ(maps[0], (MapShape{.dtype = abi::DType::i32,
                               .sizes = {95, 32},
                               .strides = {32, 1},
                               .box = {8, 32},
                               .swizzle = 128}));
  const auto launches = device->take_launches();
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].shape.blocks, 12U);
  EXPECT_EQ(launches[0].shape.shared_bytes, 62592U);
  EXPECT_TRUE(launches[0].shape.co_resident);
  run(program, host, 80, count);
  EXPECT_EQ(device->take_maps().size(), 1U);
}

TEST(LaunchTest, MoreBlocksThanAreResidentAreRefused) {
  const auto device = make_null_device(hopper());
  Executable program(boxes(), device);
  Host host(*device);
  const abi::TensorView count = host.tensor({1}, {1});
  run(program, host, 12 * 8, count);  // 4 processors, 3 blocks of 62,592 bytes on each
  try {
    run(program, host, 12 * 8 + 1, count);
    FAIL() << "launched";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("13 blocks that wait for each other, the device "
                                                 "holds 12 at once"));
  }
}

TEST(LaunchTest, WhatTheCopyEngineCannotTakeIsNamed) {
  const MapShape good{.dtype = abi::DType::bf16,
                      .sizes = {7, 64},
                      .strides = {64, 1},
                      .box = {8, 64},
                      .swizzle = 128};
  alignas(16) static std::byte at[32];
  const auto why = [](const MapShape& shape, const void* place) -> std::string {
    try {
      check_map(shape, place, "k");
    } catch (const UserError& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_EQ(why(good, at), "taken");
  EXPECT_THAT(why(good, at + 8), testing::HasSubstr("multiple of 16 bytes"));
  const auto with = [&](auto change) {
    MapShape shape = good;
    change(shape);
    return why(shape, at);
  };
  using testing::HasSubstr;
  EXPECT_THAT(with([](MapShape& s) { s.strides[0] = 65; }), HasSubstr("dimension 0 is 130 bytes"));
  EXPECT_THAT(with([](MapShape& s) { s.strides[1] = 2; }), HasSubstr("last stride is 2"));
  EXPECT_THAT(with([](MapShape& s) { s.box[0] = 257; }), HasSubstr("257 elements in dimension 0"));
  EXPECT_THAT(with([](MapShape& s) { s.box[1] = 4; }), HasSubstr("has 8 bytes, no multiple"));
  EXPECT_THAT(with([](MapShape& s) { s.box[1] = 128; }), HasSubstr("more than the swizzle of 128"));
  EXPECT_THAT(with([](MapShape& s) { s.sizes[0] = 0; }), HasSubstr("dimension 0 has 0 elements"));
  EXPECT_THAT(with([](MapShape& s) { s.sizes.resize(1); }), HasSubstr("for each dimension"));
}

TEST(LaunchTest, PlansThatHaveNoSuchLaunchAreRefused) {
  const auto why = [](std::string_view from, std::string_view to) -> std::string {
    std::string text = kPlan;
    text.replace(text.find(from), from.size(), to);
    abi::PlanAndCode made = boxes();
    made.plan = std::make_shared<const abi::Plan>(abi::parse_plan(text, "boxes.plan"));
    try {
      const Executable program(std::move(made), make_null_device(hopper()));
    } catch (const UserError& error) {
      return error.what();
    }
    return "taken";
  };
  using testing::HasSubstr;
  EXPECT_THAT(why("swizzle=128", "swizzle=48"), HasSubstr("a swizzle of 48 bytes"));
  EXPECT_THAT(why("box=[8,32]", "box=[8]"), HasSubstr("1 to 5 dimensions and a box"));
  EXPECT_THAT(why("co_resident", "waits co_resident"), HasSubstr("wait for each other"));
  EXPECT_THAT(why("maps=[(dtype", "maps=[(buffer=9 dtype"), HasSubstr("buffer 9 of 3"));
}

TEST(LaunchTest, OnACard) {
  std::string why_not;
  if (device_count(why_not) == 0) GTEST_SKIP() << why_not;
  const auto device = open_device(0);
  if (device->description().architecture != "sm_90a") GTEST_SKIP() << "no GPU of sm_90";
  Executable program(boxes(), device);
  Host host(*device);
  for (const std::int64_t rows : {100, 8, 1, 803}) {
    const Scope scope(*device);
    const abi::TensorView x = host.tensor({rows, 32}, {32, 1}), count = host.tensor({1}, {1});
    std::vector<std::int32_t> in(static_cast<std::size_t>(rows * 32)), out(in.size() + 1);
    std::iota(in.begin(), in.end(), 7);
    device->copy(x.data, in.data(), rows * 128, nullptr);
    device->zero(count.data, 4, nullptr);
    const std::vector<abi::TensorView> views = {x, count};
    program.run({.tensors = views, .host = &host});
    device->copy(out.data(), host.result.data, static_cast<std::int64_t>(out.size()) * 4, nullptr);
    device->synchronize(nullptr);
    EXPECT_EQ(out.back(), (rows + 7) / 8);
    out.pop_back();
    EXPECT_EQ(out, in) << rows;
  }
}

TEST(Architectures, AreThoseOfTheOpenedDevices) {
  std::string why_not;
  const std::vector<std::string> all = architectures_here(why_not);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(device_count(why_not)));
  EXPECT_EQ(all.empty(), !why_not.empty()) << why_not;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], open_device(static_cast<std::int32_t>(i))->description().architecture);
  }
}

}  // namespace
}  // namespace inkle::runtime::cuda
