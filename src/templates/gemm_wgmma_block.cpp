#include "templates/gemm_wgmma_block.h"

#include <utility>

#include "templates/gemm_body.h"

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

namespace {

constexpr std::int32_t kPageBytes = 1024;  // eight rows under a swizzle of 128 bytes
// 168 for each of 384 threads are what a multiprocessor has.
constexpr std::int32_t kLaunchRegisters = 65536 / (kWarps * kWarp * (kConsumers + 1)) / 8 * 8;

}  // namespace

// --- Small operations

Values Operations::loop(Expr end, kernel::LoopKind kind, const Values& initial,
                        const kernel::Builder::LoopBody& body) {
  return b_.loop(kind, end, initial, body);
}

void Operations::loop(Expr end, kernel::LoopKind kind, const std::function<void(Expr)>& body) {
  loop(end, kind, {}, [&](Expr i, const Values&) {
    body(i);
    return Values();
  });
}

void Operations::when(ValueId condition, const std::function<void()>& then) {
  b_.branch(condition, [&] {
    then();
    return Values();
  });
}

ValueId Operations::is(Opcode opcode, Expr x, Expr y) {
  return b_.compute(opcode, DType::boolean, {b_.index(x), b_.index(y)});
}

void Operations::plain(Op op, std::int64_t amount) {
  kernel::Count detail;
  detail.count = amount;
  b_.operation(op, {}, {}, detail);
}

void Operations::barrier_of_warp() {
  kernel::Barrier barrier;
  barrier.scope = kernel::Scope::warp;
  b_.barrier(barrier);
}

kernel::Type Operations::sums_type(std::int32_t columns) {
  return b_.kernel().fragment_type(
      {DType::f32, kRows, columns, kernel::Holder::warpgroup, kernel::FragmentLayout::wgmma_c});
}

Values Operations::zeros(std::int32_t fragments, std::int32_t columns) {
  const kernel::Type type = sums_type(columns);
  Values made;
  for (std::int32_t f = 0; f < fragments; ++f) {
    made.push_back(b_.operation(Op::fragment_fill, {b_.real(DType::f32, 0)}, {type}, {})[0]);
  }
  return made;
}

Values Operations::map(ValueId fragment, const kernel::TypeList& results, const MapBody& body) {
  const kernel::FragmentType type = b_.kernel().fragments[b_.type_of(fragment).fragment];
  kernel::FragmentMap detail;
  detail.row = b_.context().index(number(type.rows));
  detail.column = b_.context().index(number(type.columns));
  const auto of_element = [&](const Values& elements) {
    return body(elements[0], detail.row, detail.column);
  };
  return b_.operation(Op::fragment_map, {fragment}, results, detail,
                      {{{kernel::scalar_type(type.dtype)}, of_element}});
}

// --- Declarations

Block::Block(const GemmProblem& the_problem, const WgmmaConfig& the_config,
             kernel::Builder& builder)
    : Operations(builder),
      problem(the_problem),
      config(the_config),
      barriers(builder, the_config.stages, the_config.ping_pong),
      parameters(begin_kernel(the_problem, builder)) {
  declare_maps();
  row_tiles_ = sym::ceildiv(problem.rows, config.rows);
  column_tiles_ = sym::ceildiv(problem.columns, config.columns);
  matrix_tiles = row_tiles_ * column_tiles_;
  tiles_ = problem.batch * matrix_tiles * config.parts;
  blocks_ = sym::min(tiles_, number(config.blocks));
  stages_of_tile = sym::ceildiv(sym::ceildiv(problem.terms, config.terms), config.parts);
  index = b_.axis(kernel::AxisKind::grid, blocks_);
  group = b_.axis(kernel::AxisKind::thread, number(kConsumers + 1));
  warp = b_.axis(kernel::AxisKind::thread, number(kWarps));
  lane = b_.axis(kernel::AxisKind::thread, number(kWarp));
  b_.kernel().launch.resident_blocks = 1;
  b_.kernel().launch.registers = kLaunchRegisters;
  declare_shared();
}

void Block::declare_maps() {
  for (std::size_t o = 0; o < problem.boxes.size(); ++o) {
    const GemmBoxes& boxes = problem.boxes[o];
    kernel::Memory map;
    map.name = o == 0 ? "map_a" : "map_b";
    map.space = kernel::Space::map;
    map.dtype = problem.parameters[o].dtype;
    map.shape = boxes.sizes;
    map.of = parameters[o];
    for (const std::int64_t extent : boxes.box) {
      map.box.push_back(static_cast<std::int32_t>(extent));
    }
    map.swizzle = boxes.swizzle;
    maps.push_back(b_.parameter(std::move(map)));
  }
}

MemoryId Block::declare(std::string name, DType dtype, std::vector<Expr> shape,
                        std::int32_t alignment, std::int32_t swizzle, std::int32_t padding) {
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
MemoryId Block::declare_stages(std::string name, std::size_t operand) {
  const GemmBoxes& boxes = problem.boxes[operand];
  std::vector<Expr> shape = {number(config.stages)};
  if (!boxes.terms_last) {
    shape.push_back(number((operand == 0 ? config.rows : config.columns) / kPanel));
  }
  for (const std::int64_t extent : boxes.box) shape.push_back(number(extent));
  return declare(std::move(name), DType::bf16, std::move(shape), kPageBytes, boxes.swizzle, 0);
}

void Block::declare_shared() {
  stages[0] = declare_stages("sa", 0);
  stages[1] = declare_stages("sb", 1);
  sums = declare("sums", DType::f32, {number(kConsumers * kRows), number(config.slice)}, 16, 0,
                 kPadding);
  barriers.declare();
  if (config.ping_pong) turns_to_multiply = declare_barriers(b_, "turns", kConsumers);
}

void Block::init_barriers() {
  const Expr thread = group * (kWarps * kWarp) + warp * kWarp + lane;
  when(is(Opcode::equal, thread, number(0)), [&] {
    const std::int64_t readers = config.ping_pong ? kWarps : kWarps * kConsumers;
    loop(number(config.stages), kernel::LoopKind::unroll,
         [&](Expr s) { barriers.init(s, readers); });
    if (config.ping_pong) {
      loop(number(kConsumers), kernel::LoopKind::unroll,
           [&](Expr g) { init_barrier(b_, turns_to_multiply, g, kWarps); });
    }
    kernel::Fence fence;
    fence.scope = kernel::Scope::block;
    fence.proxy = true;
    b_.operation(Op::fence, {}, {}, fence);
  });
}

// --- Tiles, in groups of so many blocks of rows, down the columns of a group; the parts of a tile
// follow each other

Tile Block::tile_of(Expr turn) const {
  const Expr work = index + turn * blocks_;
  Tile tile;
  tile.number = sym::floordiv(work, config.parts);
  tile.part = sym::mod(work, config.parts);
  tile.batch = sym::floordiv(tile.number, matrix_tiles);
  const Expr in_matrix = sym::mod(tile.number, matrix_tiles);
  const Expr of_group = column_tiles_ * config.group;
  const Expr first = sym::floordiv(in_matrix, of_group) * config.group;
  const Expr in_group = sym::mod(in_matrix, of_group);
  const Expr height = sym::max(sym::min(row_tiles_ - first, number(config.group)), number(1));
  tile.row = (first + sym::mod(in_group, height)) * config.rows;
  tile.column = sym::floordiv(in_group, height) * config.columns;
  tile.turn = turn;
  tile.first_stage = turn * stages_of_tile;
  return tile;
}

Expr Block::first_term(const Tile& tile, Expr stage) const {
  return (tile.part * stages_of_tile + stage) * config.terms;
}

// Fragments lie one behind the other; without ping-pong the second warpgroup's behind the first's.
Expr Block::row_of(std::int32_t fragment) const {
  const Expr within = number(fragment * kRows);
  if (config.ping_pong) return within;
  return (group - 1) * (fragments_of(config) * kRows) + within;
}

}  // namespace inkle::templates::wgmma
