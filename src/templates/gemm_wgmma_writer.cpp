// What all of a kernel of gemm_wgmma shares, and the producer. Stages are counted through all tiles
// of a block, so that copies for the next tile go on while the sums of this one are stored.
#include "templates/gemm_wgmma_writer.h"

#include <algorithm>

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

namespace {

// Registers of a thread: 168 for each of 384 are what a multiprocessor has; multiplied sums take
// most of those, and the producer needs few.
constexpr std::int32_t kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr std::int32_t kLaunchRegisters = 65536 / (kWarps * kWarp * (kConsumers + 1)) / 8 * 8;

// Bytes of registers that hold what is loaded ahead.
std::int32_t bytes_ahead(const WgmmaConfig& config) {
  constexpr std::int32_t kFree = 232 - 72;  // of sums and what else is computed
  const std::int32_t sums = fragments_of(config) * config.columns / 2;
  return std::max(kFree - sums, 0) * 4;
}

}  // namespace

Writer::Writer(const GemmProblem& problem, const WgmmaConfig& config, kernel::Kernel& made,
               sym::Context& context)
    : problem_(problem),
      config_(config),
      b_(made, context),
      barriers_(b_, config.stages, config.ping_pong) {
  parameters_ = begin_kernel(problem, b_);
  declare_maps();
  row_tiles_ = sym::ceildiv(problem.rows, config.rows);
  column_tiles_ = sym::ceildiv(problem.columns, config.columns);
  matrix_tiles_ = row_tiles_ * column_tiles_;
  tiles_ = problem.batch * matrix_tiles_ * config.parts;
  blocks_ = sym::min(tiles_, number(config.blocks));
  stages_of_tile_ = sym::ceildiv(sym::ceildiv(problem.terms, config.terms), config.parts);
  block_ = b_.axis(kernel::AxisKind::grid, blocks_);
  group_ = b_.axis(kernel::AxisKind::thread, number(kConsumers + 1));
  warp_ = b_.axis(kernel::AxisKind::thread, number(kWarps));
  lane_ = b_.axis(kernel::AxisKind::thread, number(kWarp));
  made.launch.resident_blocks = 1;
  made.launch.registers = kLaunchRegisters;
  declare_shared();
}

void Writer::run() {
  init_barriers();
  b_.barrier({});
  plain(Op::dependency_wait);
  kernel::Roles roles;
  roles.roles = {{"producer", 0, kWarps, kProducerRegisters},
                 {"consumers", kWarps, kWarps * kConsumers, kConsumerRegisters}};
  const auto body = [](auto f) {
    return [f](const Values&) {
      f();
      return Values();
    };
  };
  b_.operation(Op::roles, {}, {}, roles,
               {{{}, body([this] { produce(); })}, {{}, body([this] { consume(); })}});
}

// --- Declarations

void Writer::declare_maps() {
  for (std::size_t o = 0; o < problem_.boxes.size(); ++o) {
    const GemmBoxes& boxes = problem_.boxes[o];
    kernel::Memory map;
    map.name = o == 0 ? "map_a" : "map_b";
    map.space = kernel::Space::map;
    map.dtype = problem_.parameters[o].dtype;
    map.shape = boxes.sizes;
    map.of = parameters_[o];
    for (const std::int64_t extent : boxes.box) {
      map.box.push_back(static_cast<std::int32_t>(extent));
    }
    map.swizzle = boxes.swizzle;
    maps_.push_back(b_.parameter(std::move(map)));
  }
}

Writer::MemoryId Writer::shared(std::string name, DType dtype, Indices shape,
                                std::int32_t alignment, std::int32_t swizzle,
                                std::int32_t padding) {
  kernel::Memory memory;
  memory.name = std::move(name);
  memory.space = kernel::Space::shared;
  memory.dtype = dtype;
  memory.shape = std::move(shape);
  memory.alignment = alignment;
  memory.swizzle = swizzle;
  memory.padding = padding;
  return b_.memory(std::move(memory));
}

// [stage][box], or where terms come before rows or columns [stage][panel][box].
Writer::MemoryId Writer::stages_of(std::string name, std::size_t operand) {
  const GemmBoxes& boxes = problem_.boxes[operand];
  Indices shape = {number(config_.stages)};
  if (!boxes.terms_last) {
    shape.push_back(number((operand == 0 ? config_.rows : config_.columns) / kPanel));
  }
  for (const std::int64_t extent : boxes.box) shape.push_back(number(extent));
  return shared(std::move(name), DType::bf16, std::move(shape), kPageBytes, boxes.swizzle, 0);
}

void Writer::declare_shared() {
  stages_[0] = stages_of("sa", 0);
  stages_[1] = stages_of("sb", 1);
  sums_ = shared("sums", DType::f32, {number(kConsumers * kRows), number(config_.slice)}, 16, 0,
                 kPadding);
  barriers_.declare();
  if (config_.ping_pong) turns_ = declare_barriers(b_, "turns", kConsumers);
  if (config_.parts > 1) {
    kernel::Memory tickets;
    tickets.name = "tickets";
    tickets.space = kernel::Space::workspace;
    tickets.dtype = DType::i32;
    tickets.shape = {problem_.batch * matrix_tiles_ * (kConsumers * kWarps)};
    tickets.alignment = 16;
    tickets_ = b_.memory(std::move(tickets));
  }
  const std::vector<loop::Val> loads = loads_ahead(problem_);
  const std::int32_t passes = config_.slice * kRows / kWarps / (kWarp * kLanes);
  std::int32_t bytes = 0;  // of a slice
  for (const loop::Val v : loads) {
    bytes += passes * kLanes * static_cast<std::int32_t>(abi::size_of(problem_.epilogue[v].dtype));
  }
  if (bytes == 0) return;
  slices_ahead_ = std::min(bytes_ahead(config_) / bytes, std::min(slices(), 4));
  if (slices_ahead_ == 0) return;
  for (const loop::Val v : loads) {
    kernel::Memory memory;
    memory.name = fmt::format("ahead{}", ahead_.size());
    memory.space = kernel::Space::registers;
    memory.dtype = problem_.epilogue[v].dtype;
    memory.shape = {number(slices_ahead_), number(passes), number(kLanes)};
    ahead_.push_back({v, b_.memory(std::move(memory))});
  }
}

// --- Small operations

void Writer::loop(Expr end, kernel::LoopKind kind, const std::function<void(Expr)>& body) {
  loop(end, kind, {}, [&](Expr i, const Values&) {
    body(i);
    return Values();
  });
}

void Writer::when(ValueId condition, const std::function<void()>& then) {
  b_.branch(condition, [&] {
    then();
    return Values();
  });
}

Writer::ValueId Writer::is(Opcode opcode, Expr x, Expr y) {
  return b_.compute(opcode, DType::boolean, {b_.index(x), b_.index(y)});
}

void Writer::plain(Op op, std::int64_t amount) {
  kernel::Count detail;
  detail.count = amount;
  b_.operation(op, {}, {}, detail);
}

void Writer::barrier_of_warp() {
  kernel::Barrier barrier;
  barrier.scope = kernel::Scope::warp;
  b_.barrier(barrier);
}

void Writer::init_barriers() {
  const Expr thread = group_ * (kWarps * kWarp) + warp_ * kWarp + lane_;
  when(is(Opcode::equal, thread, number(0)), [&] {
    const std::int64_t readers = config_.ping_pong ? kWarps : kWarps * kConsumers;
    loop(number(config_.stages), kernel::LoopKind::unroll,
         [&](Expr s) { barriers_.init(s, readers); });
    if (config_.ping_pong) {
      loop(number(kConsumers), kernel::LoopKind::unroll,
           [&](Expr g) { init_barrier(b_, turns_, g, kWarps); });
    }
    kernel::Fence fence;
    fence.scope = kernel::Scope::block;
    fence.proxy = true;
    b_.operation(Op::fence, {}, {}, fence);
  });
}

// --- Tiles, in groups of so many blocks of rows, down the columns of a group; the parts of a tile
// follow each other

Writer::Tile Writer::tile_of(Expr turn) {
  const Expr work = block_ + turn * blocks_;
  Tile tile;
  tile.number = sym::floordiv(work, config_.parts);
  tile.part = sym::mod(work, config_.parts);
  tile.batch = sym::floordiv(tile.number, matrix_tiles_);
  const Expr in_matrix = sym::mod(tile.number, matrix_tiles_);
  const Expr of_group = column_tiles_ * config_.group;
  const Expr first = sym::floordiv(in_matrix, of_group) * config_.group;
  const Expr in_group = sym::mod(in_matrix, of_group);
  const Expr height = sym::max(sym::min(row_tiles_ - first, number(config_.group)), number(1));
  tile.row = (first + sym::mod(in_group, height)) * config_.rows;
  tile.column = sym::floordiv(in_group, height) * config_.columns;
  tile.turn = turn;
  tile.first_stage = turn * stages_of_tile_;
  return tile;
}

// --- Producer

void Writer::copy(std::size_t operand, MemoryId to, const Tile& tile, Expr term,
                  Expr stage_number) {
  const GemmBoxes& boxes = problem_.boxes[operand];
  const bool has_batch = boxes.sizes.size() == 3;
  const Expr first = operand == 0 ? tile.row : tile.column;
  const auto copy_box = [&](Expr panel) {
    kernel::Bulk bulk;
    bulk.map = maps_[operand];
    bulk.shared.memory = to;
    bulk.shared.indices = {barriers_.slot(stage_number)};
    if (!panel.is_null()) bulk.shared.indices.push_back(panel);
    bulk.shared.indices.resize(bulk.shared.indices.size() + boxes.box.size(), number(0));
    bulk.barrier.memory = barriers_.full();
    bulk.barrier.indices = {barriers_.slot(stage_number)};
    Values at;
    if (has_batch) at.push_back(b_.index(tile.batch));
    if (panel.is_null()) at.push_back(b_.index(first));
    at.push_back(b_.index(term));
    if (!panel.is_null()) at.push_back(b_.index(first + panel * kPanel));
    b_.operation(Op::tma_load, at, {}, bulk);
  };
  if (boxes.terms_last) return copy_box({});
  const std::int32_t extent = operand == 0 ? config_.rows : config_.columns;
  loop(number(extent / kPanel), kernel::LoopKind::unroll, copy_box);
}

void Writer::produce() {
  when(is(Opcode::equal, warp_ * kWarp + lane_, number(0)), [&] {
    const std::int64_t bytes = (config_.rows + config_.columns) * config_.terms * kElement;
    loop(turns(), kernel::LoopKind::serial, [&](Expr turn) {
      const Tile tile = tile_of(turn);
      loop(stages_of_tile_, kernel::LoopKind::serial, [&](Expr s) {
        const Expr n = tile.first_stage + s;
        const Expr term = (tile.part * stages_of_tile_ + s) * config_.terms;
        barriers_.wait_free(n);
        barriers_.fill(n, bytes);
        for (std::size_t o : {0, 1}) copy(o, stages_[o], tile, term, n);
      });
    });
  });
}

}  // namespace inkle::templates::wgmma
