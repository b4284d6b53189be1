#include "schedule/inline.h"

#include <algorithm>

#include "base/error.h"
#include "loop/builder.h"
#include "schedule/linear.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::BufferId;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::Val;

// Limits beyond which a body is kept apart. A fused body of 24 loads still keeps its streams in
// the hardware prefetchers' reach; 256 instructions compile in a few milliseconds.
constexpr std::int64_t kMaxLoads = 24;
constexpr std::size_t kMaxInstructions = 256;
// A producer with several consumers is recomputed in each only if that is no dearer than
// reading its result back: at most this many operations, and loads of its own size.
constexpr std::int64_t kCheapLoads = 1;
constexpr std::int64_t kCheapOperations = 6;
// Of a producer that is read under a condition only (a piece of a concatenation): computing it in
// masked lanes costs less than a round trip through memory up to about this many operations.
constexpr std::int64_t kMaskedOperations = 24;
// One in so many points may be computed without need, as padding.
constexpr std::int64_t kPadding = 64;

bool is_expensive(Opcode opcode) {
  switch (opcode) {
    case Opcode::div:
    case Opcode::floordiv:
    case Opcode::remainder:
    case Opcode::fmod:
    case Opcode::random:
    case Opcode::indirect:
      return true;
    default:
      return opcode >= Opcode::sqrt && opcode <= Opcode::nextafter;
  }
}

// Whether a value of 0, which stands where a condition leaves a load out, may be one that the body
// reports: an index beyond a size, or the divisor of integers.
bool may_report(const loop::Body& body) {
  return std::ranges::any_of(body.instructions, [&](const Instruction& i) {
    if (i.opcode == Opcode::indirect) return true;
    const bool divides = i.opcode >= Opcode::div && i.opcode <= Opcode::fmod;
    return divides && !abi::is_float(i.dtype) && body[i.operands[1]].opcode != Opcode::constant;
  });
}

bool has_body(NestKind kind) {
  return kind == NestKind::pointwise || kind == NestKind::reduction || kind == NestKind::scan ||
         kind == NestKind::scatter;
}

// Loads that fetch another element at every point, rather than a broadcast row or scalar.
std::int64_t full_loads(const Nest& nest) {
  return std::count_if(
      nest.body.instructions.begin(), nest.body.instructions.end(), [&](const Instruction& i) {
        if (i.opcode != Opcode::load) return false;
        return std::all_of(nest.dims.begin(), nest.dims.end(), [&](const loop::Dim& dim) {
          return dim.extent.is_constant(1) ||
                 std::any_of(i.indices.begin(), i.indices.end(),
                             [&](Expr e) { return sym::contains(e, dim.variable); });
        });
      });
}

struct Uses {
  std::vector<std::vector<std::size_t>> readers;  // by buffer
  std::vector<std::vector<std::size_t>> writers;
};

Uses collect_uses(const Program& program) {
  Uses uses;
  uses.readers.resize(program.buffers.size());
  uses.writers.resize(program.buffers.size());
  for (std::size_t n = 0; n < program.nests.size(); ++n) {
    for (const BufferId b : loop::reads(program.nests[n])) uses.readers[b].push_back(n);
    for (const BufferId b : loop::writes(program.nests[n])) uses.writers[b].push_back(n);
  }
  return uses;
}

bool is_returned(const Program& program, BufferId buffer) {
  return std::any_of(program.outputs.begin(), program.outputs.end(), [&](const auto& output) {
    return (output.kind == loop::ProgramOutput::Kind::buffer ||
            output.kind == loop::ProgramOutput::Kind::input) &&
           output.buffer == buffer;
  });
}

// True if a buffer that `producer` reads is written by a nest in (producer, consumer], unless by
// the consumer at just the element that it reads.
bool crosses_mutation(const Program& program, const Uses& uses, std::size_t producer,
                      std::size_t consumer) {
  for (const BufferId b : loop::reads(program.nests[producer])) {
    for (const std::size_t w : uses.writers[b]) {
      if (w > producer && w < consumer) return true;
      if (w == consumer) return true;
    }
  }
  return false;
}

// Indirect indices that are uniform along the last dimension (the row of an embedding): they are
// loaded once a row.
std::int64_t row_lookups(const Nest& nest) {
  if (nest.dims.empty()) return 0;
  const Expr last = nest.dims.back().variable;
  std::vector<bool> varies(nest.body.instructions.size(), false);
  std::int64_t count = 0;
  for (Val v = 0; v < nest.body.instructions.size(); ++v) {
    const Instruction& i = nest.body[v];
    for (const Val operand : i.used()) varies[v] = varies[v] || varies[operand];
    if (i.opcode == Opcode::indirect) {
      count += varies[v] ? 0 : 1;
      continue;
    }
    for (const Expr e : i.indices) varies[v] = varies[v] || sym::contains(e, last);
  }
  return count;
}

class Inliner {
 public:
  Inliner(Program& program, bool keep_roundings)
      : program_(program),
        keep_roundings_(keep_roundings),
        uses_(collect_uses(program)),
        gone_(program.nests.size(), false) {}

  void run() {
    for (std::size_t n = 0; n < program_.nests.size(); ++n) {
      if (should_inline(n)) inline_nest(n);
    }
    std::vector<Nest> kept;
    for (std::size_t n = 0; n < program_.nests.size(); ++n) {
      if (!gone_[n]) kept.push_back(std::move(program_.nests[n]));
    }
    program_.nests = std::move(kept);
  }

 private:
  bool should_inline(std::size_t n) const {
    const Nest& nest = program_.nests[n];
    if (nest.kind != NestKind::pointwise || nest.stores.size() != 1) return false;
    const loop::Store& store = nest.stores.front();
    const loop::Buffer& buffer = program_.buffers[store.buffer];
    if (buffer.role != loop::BufferRole::temporary || buffer.strides || buffer.writes_into) {
      return false;
    }
    if (store.mode != loop::StoreMode::overwrite || uses_.writers[store.buffer].size() != 1 ||
        is_returned(program_, store.buffer) || !is_identity(store.indices, nest.dims)) {
      return false;
    }
    const auto& readers = uses_.readers[store.buffer];
    if (readers.empty() || (keep_roundings_ && rounds_contraction(nest))) return false;
    BodyCost cost = cost_of(nest.body);
    cost.expensive -= row_lookups(nest);
    const bool cheap =
        full_loads(nest) <= kCheapLoads && cost.expensive == 0 && cost.cheap <= kCheapOperations;
    if (readers.size() > 1 && !cheap) return false;
    if (!cheap && readers.size() == 1 && widens_for_several(readers[0])) return false;
    return std::all_of(readers.begin(), readers.end(),
                       [&](std::size_t r) { return may_inline_into(n, r, cost, cheap); });
  }

  // The nest makes a result of f16 or bf16 of the sums of a contraction.
  bool rounds_contraction(const Nest& nest) const {
    if (!abi::is_reduced_float(program_.buffers[nest.stores.front().buffer].dtype)) return false;
    const auto read = loop::reads(nest);
    return std::any_of(read.begin(), read.end(), [&](BufferId b) {
      if (program_.buffers[b].dtype != abi::DType::f32 || uses_.writers[b].size() != 1)
        return false;
      const NestKind kind = program_.nests[uses_.writers[b].front()].kind;
      return kind == NestKind::matmul || kind == NestKind::convolution;
    });
  }

  // The nest does no more than widen f16 or bf16, and several nests read that: each of them can
  // read the narrow values instead, at half the bytes.
  bool widens_for_several(std::size_t n) const {
    const Nest& nest = program_.nests[n];
    const std::vector<Instruction>& body = nest.body.instructions;
    return nest.kind == NestKind::pointwise && nest.stores.size() == 1 && body.size() == 2 &&
           body[0].opcode == Opcode::load && body[1].opcode == Opcode::cast &&
           abi::is_reduced_float(body[0].dtype) && abi::is_float(body[1].dtype) &&
           !abi::is_reduced_float(body[1].dtype) &&
           uses_.readers[nest.stores[0].buffer].size() > 1 && should_inline(n);
  }

  // A vector that is converted, and a reader that adds it to a contraction's result: the library
  // adds a bias in its epilogue if it is in memory.
  bool is_bias_of_contraction(std::size_t n, std::size_t reader) const {
    const Nest& from = program_.nests[n];
    return from.dims.size() == 1 && from.body.instructions.size() == 2 &&
           from.body[1].opcode == Opcode::cast && abi::is_reduced_float(from.body[1].dtype) &&
           rounds_contraction(program_.nests[reader]);
  }

  bool may_inline_into(std::size_t n, std::size_t reader, const BodyCost& cost, bool cheap) const {
    const Nest& from = program_.nests[n];
    const Nest& into = program_.nests[reader];
    if (!has_body(into.kind) || crosses_mutation(program_, uses_, n, reader)) return false;
    if (is_bias_of_contraction(n, reader)) return false;
    const BufferId buffer = from.stores.front().buffer;
    std::int64_t loads_of_it = 0;
    for (const Instruction& i : into.body.instructions) {
      if (i.opcode != Opcode::load || i.buffer != buffer) continue;
      ++loads_of_it;
      if (i.operand_count != 0 && may_report(from.body)) return false;
    }
    const BodyCost target = cost_of(into.body);
    if (target.loads + loads_of_it * (cost.loads - 1) > kMaxLoads) return false;
    if (into.body.instructions.size() +
            static_cast<std::size_t>(loads_of_it) * from.body.instructions.size() >
        kMaxInstructions) {
      return false;
    }
    if (cheap) return true;
    const bool masked =
        cost.expensive == 0 && cost.cheap + cost.loads <= kMaskedOperations && loads_of_it == 1 &&
        std::all_of(into.body.instructions.begin(), into.body.instructions.end(),
                    [&](const Instruction& i) {
                      return i.opcode != Opcode::load || i.buffer != buffer || i.operand_count != 0;
                    });
    if (masked) return true;
    // A dear body must not be evaluated more often than it is now, but for what pads rows.
    const std::int64_t points = extent_hint(into.dims) * extent_hint(into.reduced);
    const std::int64_t now = extent_hint(from.dims);
    return points * loads_of_it <= now + now / kPadding;
  }

  // The producer's value at the indices of `load`, under the load's predicate.
  static Val evaluate(const Nest& producer, BodyBuilder& to, const Instruction& load) {
    std::vector<std::pair<Expr, Expr>> map;
    for (std::size_t d = 0; d < producer.dims.size(); ++d) {
      map.emplace_back(producer.dims[d].variable, load.indices[d]);
    }
    const bool predicated = load.operand_count != 0;
    const auto on_load = [&](BodyBuilder& builder, Instruction inner) {
      if (!predicated) return builder.append(std::move(inner));
      if (inner.operand_count == 0) {
        const Val zero = abi::is_float(inner.dtype)
                             ? builder.constant(inner.dtype, 0.0)
                             : builder.constant(inner.dtype, std::int64_t{0});
        return builder.load_if(load.operands[0], zero, inner.buffer, inner.dtype, inner.indices);
      }
      const Val both = builder.logical_and(load.operands[0], inner.operands[0]);
      return builder.load_if(both, inner.operands[1], inner.buffer, inner.dtype, inner.indices);
    };
    const Val value = loop::inline_body(producer.body, map, to, on_load).front();
    return predicated ? to.select(load.operands[0], value, load.operands[1]) : value;
  }

  void inline_nest(std::size_t n) {
    const Nest& producer = program_.nests[n];
    const BufferId buffer = producer.stores.front().buffer;
    const std::vector<std::size_t> readers = uses_.readers[buffer];
    for (const std::size_t r : readers) {
      Nest& consumer = program_.nests[r];
      loop::Body body;
      BodyBuilder to(body, *program_.context);
      const auto on_load = [&](BodyBuilder& builder, Instruction load) {
        if (load.buffer != buffer) return builder.append(std::move(load));
        return evaluate(producer, builder, load);
      };
      std::vector<std::pair<Expr, Expr>> renamed;
      body.yields = loop::inline_body(consumer.body, {}, to, on_load, &renamed);
      consumer.body = std::move(body);
      for (loop::Store& store_of : consumer.stores) {
        for (Expr& e : store_of.indices) e = sym::substitute(e, renamed);
      }
      add_missing(consumer.checked, producer.checked);
      for (const BufferId b : loop::reads(producer)) {
        auto& list = uses_.readers[b];
        if (std::find(list.begin(), list.end(), r) == list.end()) list.push_back(r);
      }
    }
    for (const BufferId b : loop::reads(producer)) std::erase(uses_.readers[b], n);
    uses_.readers[buffer].clear();
    uses_.writers[buffer].clear();
    gone_[n] = true;
  }

  Program& program_;
  bool keep_roundings_;
  Uses uses_;
  std::vector<bool> gone_;
};

}  // namespace

BodyCost cost_of(const loop::Body& body) {
  BodyCost cost;
  for (const Instruction& i : body.instructions) {
    if (i.opcode == Opcode::load) {
      ++cost.loads;
    } else if (is_expensive(i.opcode)) {
      ++cost.expensive;
    } else if (i.opcode != Opcode::constant && i.opcode != Opcode::index &&
               i.opcode != Opcode::row) {
      ++cost.cheap;
    }
  }
  return cost;
}

std::vector<bool> mutated_buffers(const Program& program) {
  std::vector<int> writes(program.buffers.size(), 0);
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const auto role = program.buffers[b].role;
    if (role == loop::BufferRole::input || role == loop::BufferRole::constant) writes[b] = 1;
  }
  for (const Nest& nest : program.nests) {
    for (const BufferId b : loop::writes(nest)) ++writes[b];
  }
  std::vector<bool> mutated(program.buffers.size());
  for (std::size_t b = 0; b < mutated.size(); ++b) mutated[b] = writes[b] > 1;
  return mutated;
}

void inline_pointwise(Program& program, bool keep_roundings) {
  Inliner(program, keep_roundings).run();
}

void remove_dead_nests(Program& program) {
  std::vector<bool> live(program.buffers.size(), false);
  for (const auto& output : program.outputs) {
    if (output.kind == loop::ProgramOutput::Kind::buffer) live[output.buffer] = true;
  }
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const loop::Buffer& buffer = program.buffers[b];
    if (buffer.role == loop::BufferRole::input || buffer.role == loop::BufferRole::output ||
        buffer.writes_into) {
      live[b] = true;
    }
  }
  std::vector<bool> keep(program.nests.size(), false);
  for (std::size_t n = program.nests.size(); n-- > 0;) {
    const Nest& nest = program.nests[n];
    const auto written = loop::writes(nest);
    keep[n] = nest.kind == NestKind::eager ||
              std::any_of(written.begin(), written.end(), [&](BufferId b) { return live[b]; });
    if (!keep[n]) continue;
    for (const BufferId b : loop::reads(nest)) live[b] = true;
  }
  std::vector<Nest> kept;
  for (std::size_t n = 0; n < program.nests.size(); ++n) {
    if (keep[n]) kept.push_back(std::move(program.nests[n]));
  }
  program.nests = std::move(kept);
}

}  // namespace inkle::schedule
