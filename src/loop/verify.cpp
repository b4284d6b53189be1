// Checks that a program is well formed.
#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "loop/program.h"

namespace inkle::loop {
namespace {

class NestVerifier {
 public:
  NestVerifier(const Program& program, const Nest& nest) : program_(program), nest_(nest) {}

  void run() {
    for (const Dim& dim : nest_.dims) declare(dim);
    for (const Dim& dim : nest_.reduced) declare(dim);
    const Body& body = nest_.body;
    for (Val v = 0; v < body.instructions.size(); ++v) instruction(v);
    for (const Val v : body.yields) {
      INKLE_CHECK(v < body.instructions.size(), "yield of value {} out of {}", v,
                  body.instructions.size());
    }
    detail();
    for (const Store& store : nest_.stores) check_store(store);
  }

 private:
  void declare(const Dim& dim) {
    INKLE_CHECK(dim.variable.kind() == sym::Kind::symbol, "a dimension has no variable");
    expression(dim.extent);
    INKLE_CHECK(scope_.insert(dim.variable.id()).second, "variable {} is declared twice",
                dim.variable.name());
  }

  // Iteration variables are the symbols with an extent; sizes have none.
  void expression(Expr e) const {
    INKLE_CHECK(!e.is_null(), "a missing expression");
    for (const Expr s : sym::symbols(e)) {
      INKLE_CHECK(program_.context->info(s).extent.is_null() || scope_.contains(s.id()),
                  "variable {} is not declared here", s.name());
    }
  }

  void access(BufferId buffer, const std::vector<Expr>& indices) const {
    INKLE_CHECK(buffer < program_.buffers.size(), "no buffer {}", buffer);
    const Buffer& b = program_.buffers[buffer];
    INKLE_CHECK(indices.size() == b.sizes.size(), "{} indices into '{}' of rank {}", indices.size(),
                b.name, b.sizes.size());
    for (const Expr e : indices) expression(e);
  }

  [[nodiscard]] DType type_of(const Instruction& i, std::size_t operand) const {
    return nest_.body[i.operands[operand]].dtype;
  }

  void instruction(Val v) {
    const Instruction& i = nest_.body[v];
    const bool predicated = i.opcode == Opcode::load && i.operand_count == 2;
    INKLE_CHECK(predicated || i.operand_count == operand_count(i.opcode), "{} of {} operands",
                name_of(i.opcode), i.operand_count);
    for (const Val operand : i.used()) {
      INKLE_CHECK(operand < v, "value {} uses the later value {}", v, operand);
    }
    INKLE_CHECK(abi::is_computable(i.dtype), "a value of {}", abi::name_of(i.dtype));
    switch (kind_of(i.opcode)) {
      case OpcodeKind::leaf:
        leaf(i);
        break;
      case OpcodeKind::structure:
        structure(i);
        break;
      case OpcodeKind::test:
        arithmetic(i, DType::boolean);
        break;
      case OpcodeKind::comparison:
        arithmetic(i, DType::boolean);
        break;
      case OpcodeKind::unary:
      case OpcodeKind::binary:
      case OpcodeKind::ternary:
        arithmetic(i, type_of(i, 0));
        break;
    }
  }

  void arithmetic(const Instruction& i, DType result) const {
    for (std::size_t n = 0; n < i.operand_count; ++n) {
      INKLE_CHECK(type_of(i, n) == type_of(i, 0), "{} of {} and {}", name_of(i.opcode),
                  abi::name_of(type_of(i, 0)), abi::name_of(type_of(i, n)));
    }
    INKLE_CHECK(!abi::is_reduced_float(type_of(i, 0)), "{} on {}", name_of(i.opcode),
                abi::name_of(type_of(i, 0)));
    INKLE_CHECK(i.dtype == result, "{} gives {}, not {}", name_of(i.opcode), abi::name_of(result),
                abi::name_of(i.dtype));
  }

  void leaf(const Instruction& i) const {
    if (i.opcode == Opcode::index) {
      INKLE_CHECK(i.indices.size() == 1 && i.dtype == DType::i64, "a malformed index value");
      expression(i.indices[0]);
    } else if (i.opcode == Opcode::load) {
      access(i.buffer, i.indices);
      INKLE_CHECK(program_.buffers[i.buffer].dtype == i.dtype, "load of {} from '{}' of {}",
                  abi::name_of(i.dtype), program_.buffers[i.buffer].name,
                  abi::name_of(program_.buffers[i.buffer].dtype));
      if (i.operand_count == 2) {
        INKLE_CHECK(type_of(i, 0) == DType::boolean && type_of(i, 1) == i.dtype,
                    "predicated load of {} with {} and {}", abi::name_of(i.dtype),
                    abi::name_of(type_of(i, 0)), abi::name_of(type_of(i, 1)));
      }
    } else if (i.opcode == Opcode::random) {
      INKLE_CHECK(
          type_of(i, 0) == DType::i64 && type_of(i, 1) == DType::i64 && i.dtype == DType::i64,
          "random of other types than i64");
    } else {
      INKLE_CHECK(i.opcode == Opcode::constant, "{} in a program", name_of(i.opcode));
    }
  }

  void structure(const Instruction& i) {
    if (i.opcode == Opcode::select) {
      INKLE_CHECK(
          type_of(i, 0) == DType::boolean && type_of(i, 1) == i.dtype && type_of(i, 2) == i.dtype,
          "select of {}, {}, {} gives {}", abi::name_of(type_of(i, 0)), abi::name_of(type_of(i, 1)),
          abi::name_of(type_of(i, 2)), abi::name_of(i.dtype));
    } else if (i.opcode == Opcode::indirect) {
      INKLE_CHECK(type_of(i, 0) == DType::i64 && i.dtype == DType::i64 && i.indices.size() == 1 &&
                      i.indices[0].kind() == sym::Kind::symbol,
                  "a malformed indirect index");
      expression(program_.context->info(i.indices[0]).extent);
      scope_.insert(i.indices[0].id());
    }
  }

  void detail() {
    const std::size_t yields = nest_.body.yields.size();
    switch (nest_.kind) {
      case NestKind::pointwise:
      case NestKind::scatter:
        INKLE_CHECK(nest_.reduced.empty(), "a reduced dimension without a reduction");
        INKLE_CHECK(yields > 0, "nothing is yielded");
        break;
      case NestKind::scan:
        INKLE_CHECK(nest_.reduced.size() == 1, "a scan over {} dimensions", nest_.reduced.size());
        [[fallthrough]];
      case NestKind::reduction:
        reduction(yields);
        break;
      case NestKind::matmul:
        matmul(std::get<Matmul>(nest_.detail));
        break;
      case NestKind::convolution: {
        const auto& c = std::get<Convolution>(nest_.detail);
        INKLE_CHECK(c.x < program_.buffers.size() && c.w < program_.buffers.size(),
                    "no such buffer");
        INKLE_CHECK(!c.weight_gradient || (!c.transposed && !c.bias),
                    "a gradient of weights that is transposed or has a bias");
        break;
      }
      case NestKind::attention:
        attention(std::get<Attention>(nest_.detail));
        break;
      case NestKind::eager:
        INKLE_CHECK(std::holds_alternative<EagerCall>(nest_.detail), "an eager nest without call");
        break;
      case NestKind::sort:
        break;
    }
  }

  void reduction(std::size_t yields) const {
    INKLE_CHECK(yields == 1, "{} yields to reduce", yields);
    INKLE_CHECK(!nest_.reduced.empty(), "nothing to reduce over");
    const DType yielded = nest_.body[nest_.body.yields[0]].dtype;
    INKLE_CHECK(yielded == nest_.accumulator, "{} is reduced in {}", abi::name_of(yielded),
                abi::name_of(nest_.accumulator));
  }

  void matmul(const Matmul& m) const {
    INKLE_CHECK(nest_.dims.size() >= 2 && nest_.reduced.size() == 1, "malformed matmul");
    access(m.a.buffer, m.a.indices);
    access(m.b.buffer, m.b.indices);
  }

  void attention(const Attention& a) {
    for (const Expr v : a.variables) scope_.insert(v.id());
    access(a.q.buffer, a.q.indices);
    access(a.k.buffer, a.k.indices);
    access(a.v.buffer, a.v.indices);
    if (a.mask) access(a.mask->buffer, a.mask->indices);
    if (a.gradient) {
      access(a.gradient->grad.buffer, a.gradient->grad.indices);
      access(a.gradient->out.buffer, a.gradient->out.indices);
      INKLE_CHECK(nest_.stores.size() == 3, "{} gradients of attention", nest_.stores.size());
    }
    INKLE_CHECK(nest_.dims.size() == 4, "attention over {} dimensions", nest_.dims.size());
  }
  void check_store(const Store& store) const {
    access(store.buffer, store.indices);
    const bool pointwise = nest_.kind == NestKind::pointwise || nest_.kind == NestKind::scatter;
    const std::size_t results = pointwise                           ? nest_.body.yields.size()
                                : nest_.kind == NestKind::reduction ? result_count(nest_.reduce)
                                : nest_.kind == NestKind::attention ? nest_.stores.size()
                                                                    : 1;
    INKLE_CHECK(store.result < results, "store of result {} of {}", store.result, results);
    const Buffer& buffer = program_.buffers[store.buffer];
    INKLE_CHECK(buffer.role != BufferRole::constant, "store into the constant '{}'", buffer.name);
    if (!pointwise) return;
    const DType yielded = nest_.body[nest_.body.yields[store.result]].dtype;
    INKLE_CHECK(yielded == buffer.dtype, "store of {} into '{}' of {}", abi::name_of(yielded),
                buffer.name, abi::name_of(buffer.dtype));
  }

  const Program& program_;
  const Nest& nest_;
  std::set<std::uint32_t> scope_;
};

void verify_buffers(const Program& program) {
  std::set<std::string> names;
  for (const Buffer& b : program.buffers) {
    INKLE_CHECK(names.insert(b.name).second, "two buffers have the name '{}'", b.name);
    INKLE_CHECK(!b.strides || b.strides->size() == b.sizes.size(), "strides of '{}' do not match",
                b.name);
    const bool is_fixed = b.role != BufferRole::temporary;
    INKLE_CHECK(!is_fixed || b.strides, "'{}' has no strides", b.name);
    INKLE_CHECK(b.role != BufferRole::constant || b.index < program.constants.size(),
                "'{}' has no data", b.name);
  }
  for (const ProgramOutput& o : program.outputs) {
    const bool is_tensor =
        o.kind == ProgramOutput::Kind::buffer || o.kind == ProgramOutput::Kind::input;
    if (!is_tensor) continue;
    INKLE_CHECK(o.buffer < program.buffers.size(), "an output has no buffer");
    INKLE_CHECK(o.sizes.size() == o.strides.size() && !o.offset.is_null(),
                "an output view of '{}' is incomplete", program.buffers[o.buffer].name);
  }
}

}  // namespace

void verify(const Program& program) {
  verify_buffers(program);
  for (std::size_t n = 0; n < program.nests.size(); ++n) {
    try {
      NestVerifier(program, program.nests[n]).run();
    } catch (Error& e) {
      e.add_note(fmt::format("in nest n{} ({})", n, program.nests[n].label));
      throw;
    }
  }
}

}  // namespace inkle::loop
