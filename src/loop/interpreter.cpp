#include "loop/interpreter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "loop/reference.h"

namespace inkle::loop {
namespace {

void run_pointwise(Machine& m, const Nest& nest) {
  m.for_each_point(nest.dims, [&] {
    const std::vector<Scalar> values = m.run_body(nest.body);
    for (const Store& store : nest.stores) {
      const Val v = nest.body.yields[store.result];
      m.write(store, values[v], nest.body[v].dtype);
    }
  });
}

void run_reduction(Machine& m, const Nest& nest) {
  m.for_each_point(nest.dims, [&] {
    Accumulator accumulator(nest.reduce, nest.accumulator);
    m.for_each_point(nest.reduced,
                     [&] { accumulator.add(m.run_body(nest.body)[nest.body.yields[0]]); });
    for (const Store& store : nest.stores) {
      m.write(store, accumulator.result(store.result), accumulator.result_dtype());
    }
  });
}

void run_scan(Machine& m, const Nest& nest) {
  m.for_each_point(nest.dims, [&] {
    Accumulator accumulator(nest.reduce, nest.accumulator);
    m.for_each_point(nest.reduced, [&] {
      accumulator.add(m.run_body(nest.body)[nest.body.yields[0]]);
      for (const Store& store : nest.stores) {
        m.write(store, accumulator.result(0), accumulator.result_dtype());
      }
    });
  });
}

abi::TensorView view_of(const Memory& memory) {
  return {.data = memory.data,
          .dtype = memory.buffer->dtype,
          .device = memory.buffer->device,
          .rank = static_cast<std::int32_t>(memory.sizes.size()),
          .sizes = memory.sizes.data(),
          .strides = memory.strides.data()};
}

void run_eager(Machine& m, const Nest& nest, const ReferenceEager& eager) {
  const auto& call = std::get<EagerCall>(nest.detail);
  if (!eager) unsupported("the reference cannot call '{}'", call.name);
  std::vector<ReferenceArgument> arguments;
  for (const auto& argument : call.arguments) {
    if (const auto* b = std::get_if<BufferId>(&argument)) {
      arguments.emplace_back(view_of(m.memory[*b]));
    } else {
      arguments.emplace_back(m.environment.value(std::get<Expr>(argument)));
    }
  }
  std::vector<abi::TensorView> results;
  for (const BufferId b : call.results) results.push_back(view_of(m.memory[b]));
  eager(call, arguments, results);
}

void run_nest(Machine& m, const Nest& nest, const ReferenceEager& eager) {
  switch (nest.kind) {
    case NestKind::pointwise:
    case NestKind::scatter:
      return run_pointwise(m, nest);
    case NestKind::reduction:
      return run_reduction(m, nest);
    case NestKind::scan:
      return run_scan(m, nest);
    case NestKind::matmul:
      return run_matmul(m, nest);
    case NestKind::convolution:
      return run_convolution(m, nest);
    case NestKind::attention:
      return run_attention(m, nest);
    case NestKind::eager:
      return run_eager(m, nest, eager);
    case NestKind::sort:
      break;
  }
  unsupported("the reference does not run {} nests", name_of(nest.kind));
}

// --- Memory -------------------------------------------------------------------------------------

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t running = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = running;
    running *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

std::int64_t span_of(const Memory& m) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < m.sizes.size(); ++d) {
    if (m.sizes[d] == 0) return 0;
    last += (m.sizes[d] - 1) * m.strides[d];
  }
  return last + 1;
}

void allocate(Memory& m) {
  // Bytes that no program writes by accident: reading what was never written shows as NaN.
  const auto bytes = static_cast<std::size_t>(span_of(m) * abi::size_of(m.buffer->dtype));
  m.owned = std::make_shared<std::vector<std::byte>>(bytes, std::byte{0xFF});
  m.data = m.owned->data();
}

void fill_constant(Memory& m, const ConstantData& constant) {
  allocate(m);
  INKLE_CHECK(constant.bytes != nullptr && constant.bytes->size() == m.owned->size(),
              "the data of '{}' do not fit", m.buffer->name);
  std::copy(constant.bytes->begin(), constant.bytes->end(), m.data);
}

class Runner {
 public:
  Runner(const Program& program, std::span<const ReferenceArgument> arguments)
      : arguments_(arguments) {
    machine_.program = &program;
    if (arguments.size() != program.arguments.size()) {
      user_error("{} arguments given, {} expected", arguments.size(), program.arguments.size());
    }
  }

  std::vector<ReferenceOutput> run(const ReferenceEager& eager) {
    const Program& program = *machine_.program;
    bind_symbols();
    machine_.memory.resize(program.buffers.size());
    for (const bool mutations : {false, true}) {
      for (BufferId b = 0; b < program.buffers.size(); ++b) {
        if (program.buffers[b].writes_into.has_value() == mutations) place(b);
      }
    }
    for (const Nest& nest : program.nests) run_nest(machine_, nest, eager);
    std::vector<ReferenceOutput> outputs;
    for (const ProgramOutput& output : program.outputs) outputs.push_back(collect(output));
    return outputs;
  }

 private:
  void bind(Expr e, std::int64_t value) {
    const bool is_free =
        !e.is_null() && e.kind() == sym::Kind::symbol && !machine_.environment.knows(e);
    if (is_free) machine_.environment.set(e, value);
  }

  void bind_symbols() {
    const Program& program = *machine_.program;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const Argument& argument = program.arguments[i];
      const bool is_integer = std::holds_alternative<std::int64_t>(arguments_[i]);
      if (is_integer != !argument.buffer.has_value()) {
        user_error("argument '{}' must be {}", argument.name,
                   is_integer ? "a tensor" : "an integer");
      }
      if (is_integer) bind(argument.symbol, std::get<std::int64_t>(arguments_[i]));
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!program.arguments[i].buffer) continue;
      const auto& view = std::get<abi::TensorView>(arguments_[i]);
      const Buffer& buffer = program.buffers[*program.arguments[i].buffer];
      if (static_cast<std::size_t>(view.rank) != buffer.sizes.size()) {
        user_error("argument '{}' has rank {}, expected {}", program.arguments[i].name, view.rank,
                   buffer.sizes.size());
      }
      for (std::size_t d = 0; d < buffer.sizes.size(); ++d) bind(buffer.sizes[d], view.sizes[d]);
      if (!buffer.strides) continue;
      for (std::size_t d = 0; d < buffer.sizes.size(); ++d) {
        bind((*buffer.strides)[d], view.strides[d]);
      }
    }
  }

  void place(BufferId b) {
    const Program& program = *machine_.program;
    const Buffer& buffer = program.buffers[b];
    Memory& m = machine_.memory[b];
    m.buffer = &buffer;
    m.sizes = machine_.environment.values(buffer.sizes);
    m.strides =
        buffer.strides ? machine_.environment.values(*buffer.strides) : dense_strides(m.sizes);
    if (buffer.writes_into) {
      m.data = machine_.memory[*buffer.writes_into].data;
    } else if (buffer.role == BufferRole::input) {
      place_input(m, buffer);
    } else if (buffer.role == BufferRole::constant) {
      fill_constant(m, program.constants[buffer.index]);
    } else {
      allocate(m);
    }
    if (!buffer.offset.is_null()) {
      m.data += machine_.environment.value(buffer.offset) * abi::size_of(buffer.dtype);
    }
  }

  void place_input(Memory& m, const Buffer& buffer) const {
    const auto& view = std::get<abi::TensorView>(arguments_[buffer.index]);
    if (view.dtype != buffer.dtype) {
      user_error("argument '{}' is {}, expected {}", buffer.name, abi::name_of(view.dtype),
                 abi::name_of(buffer.dtype));
    }
    for (std::size_t d = 0; d < m.sizes.size(); ++d) {
      const bool strided = m.sizes[d] > 1 && view.strides[d] != m.strides[d];
      if (view.sizes[d] != m.sizes[d] || strided) {
        user_error("argument '{}' has size {} and stride {} in dimension {}, expected {} and {}",
                   buffer.name, view.sizes[d], view.strides[d], d, m.sizes[d], m.strides[d]);
      }
    }
    m.data = static_cast<std::byte*>(view.data);
  }

  [[nodiscard]] ReferenceOutput collect(const ProgramOutput& output) const {
    ReferenceOutput result{.kind = output.kind};
    switch (output.kind) {
      case ProgramOutput::Kind::none:
        return result;
      case ProgramOutput::Kind::integer:
        result.integer = machine_.environment.value(output.integer);
        return result;
      case ProgramOutput::Kind::buffer:
      case ProgramOutput::Kind::input:
        break;
    }
    const Memory& m = machine_.memory[output.buffer];
    result.dtype = m.buffer->dtype;
    result.sizes = machine_.environment.values(output.sizes);
    result.strides = machine_.environment.values(output.strides);
    result.data = m.data + machine_.environment.value(output.offset) * abi::size_of(result.dtype);
    result.memory = m.owned;
    return result;
  }

  std::span<const ReferenceArgument> arguments_;
  Machine machine_;
};

}  // namespace

std::byte* Memory::at(std::span<const std::int64_t> index) const {
  INKLE_CHECK(index.size() == sizes.size(), "{} indices into '{}'", index.size(), buffer->name);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < index.size(); ++d) {
    INKLE_CHECK(index[d] >= 0 && index[d] < sizes[d],
                "index {} in dimension {} of '{}', which has size {}", index[d], d, buffer->name,
                sizes[d]);
    offset += index[d] * strides[d];
  }
  return data + offset * abi::size_of(buffer->dtype);
}

void Environment::set(Expr symbol, std::int64_t value) {
  if (by_id_.size() <= symbol.id()) by_id_.resize(symbol.id() + 1);
  by_id_[symbol.id()] = value;
}

bool Environment::knows(Expr symbol) const {
  return symbol.id() < by_id_.size() && by_id_[symbol.id()].has_value();
}

std::int64_t Environment::value(Expr e) const {
  if (const auto constant = e.constant()) return *constant;
  return sym::evaluate(e, [&](Expr symbol) {
    if (!knows(symbol)) user_error("the value of symbol '{}' is not known", symbol.name());
    return *by_id_[symbol.id()];
  });
}

std::vector<std::int64_t> Environment::values(std::span<const Expr> list) const {
  std::vector<std::int64_t> out;
  out.reserve(list.size());
  for (const Expr e : list) out.push_back(value(e));
  return out;
}

void Machine::for_each_point(std::span<const Dim> dims, const std::function<void()>& f) {
  if (dims.empty()) return f();
  const std::int64_t extent = environment.value(dims[0].extent);
  for (std::int64_t i = 0; i < extent; ++i) {
    environment.set(dims[0].variable, i);
    for_each_point(dims.subspan(1), f);
  }
}

void Machine::write(const Store& store, Scalar value, DType from) {
  const Memory& m = memory[store.buffer];
  const std::vector<std::int64_t> index = environment.values(store.indices);
  const DType dtype = m.buffer->dtype;
  Scalar stored = convert(value, from, dtype);
  if (store.mode == StoreMode::atomic_add) {
    const DType compute = abi::compute_type(dtype);
    const std::array operands = {convert(m.read(index), dtype, compute),
                                 convert(stored, dtype, compute)};
    stored = convert(evaluate(Opcode::add, compute, operands), compute, dtype);
  }
  m.write(index, stored);
}

std::vector<Scalar> Machine::run_body(const Body& body) {
  std::vector<Scalar> values;
  values.reserve(body.instructions.size());
  const auto operand = [&](const Instruction& i, std::size_t n) { return values[i.operands[n]]; };
  for (const Instruction& i : body.instructions) {
    switch (i.opcode) {
      case Opcode::constant:
        values.push_back({.real = i.real, .integer = i.integer});
        break;
      case Opcode::index:
        values.push_back({.integer = environment.value(i.indices[0])});
        break;
      case Opcode::load:
        if (i.operand_count == 2 && operand(i, 0).integer == 0) {
          values.push_back(operand(i, 1));
        } else {
          values.push_back(memory[i.buffer].read(environment.values(i.indices)));
        }
        break;
      case Opcode::row:
        INKLE_CHECK(false, "a row in a program");
      case Opcode::random:
        values.push_back({.integer = philox(operand(i, 0).integer, operand(i, 1).integer)});
        break;
      case Opcode::cast:
        values.push_back(convert(operand(i, 0), body[i.operands[0]].dtype, i.dtype));
        break;
      case Opcode::bitcast:
        values.push_back(bit_convert(operand(i, 0), body[i.operands[0]].dtype, i.dtype));
        break;
      case Opcode::select:
        values.push_back(operand(i, 0).integer != 0 ? operand(i, 1) : operand(i, 2));
        break;
      case Opcode::indirect: {
        const std::int64_t v = operand(i, 0).integer;
        const std::int64_t extent = environment.value(program->context->info(i.indices[0]).extent);
        if (v < 0 || v >= extent) user_error("index {} is out of range for size {}", v, extent);
        environment.set(i.indices[0], v);
        values.push_back({.integer = v});
        break;
      }
      default: {
        std::array<Scalar, 3> operands{};
        for (std::size_t n = 0; n < i.operand_count; ++n) operands[n] = operand(i, n);
        values.push_back(evaluate(i.opcode, body[i.operands[0]].dtype,
                                  std::span(operands).first(i.operand_count)));
      }
    }
  }
  return values;
}

abi::TensorView ReferenceOutput::view() const {
  return {.data = data,
          .dtype = dtype,
          .rank = static_cast<std::int32_t>(sizes.size()),
          .sizes = sizes.data(),
          .strides = strides.data()};
}

std::vector<ReferenceOutput> run_reference(const Program& program,
                                           std::span<const ReferenceArgument> arguments,
                                           const ReferenceEager& eager) {
  return Runner(program, arguments).run(eager);
}

}  // namespace inkle::loop
