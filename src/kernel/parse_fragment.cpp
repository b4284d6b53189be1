// Operations on fragments in the text of kernels.
#include "kernel/names.h"
#include "kernel/parse_operation.h"

namespace inkle::kernel {

FragmentAccess OperationParser::fragment_access(Values& operands) {
  FragmentAccess f;
  f.access = access(operands, nullptr);
  s_.expect("by");
  s_.expect("(");
  f.row_stride = symbols_.expression();
  s_.expect(",");
  f.column_stride = symbols_.expression();
  s_.expect(")");
  if (s_.accept("panels")) {
    f.panel = text_.count("columns of a panel");
    s_.expect("by");
    f.panel_stride = text_.count("elements");
  }
  if (s_.accept("rows")) f.row_limit = symbols_.expression();
  if (s_.accept("columns")) f.column_limit = symbols_.expression();
  return f;
}

Values OperationParser::fragment(Op op) {
  Values operands;
  if (op == Op::fragment_store) {
    FragmentAccess f = fragment_access(operands);
    s_.expect("=");
    operands.push_back(regions_.value());
    if (!is_fragment(operands.back())) text_.refuse("fragment_store of what is no fragment");
    const FragmentType& type = k_.fragments[regions_.type_of(operands.back()).fragment];
    f.rows = type.rows;
    f.columns = type.columns;
    return regions_.append(op, std::move(operands), {}, std::move(f));
  }
  const Type type = regions_.type();
  if (type.kind != TypeKind::fragment) s_.fail("expected the type of a fragment");
  if (op == Op::fragment_load) {
    FragmentAccess f = fragment_access(operands);
    f.rows = k_.fragments[type.fragment].rows;
    f.columns = k_.fragments[type.fragment].columns;
    return regions_.append(op, std::move(operands), {type}, std::move(f));
  }
  s_.expect("(");
  operands.push_back(regions_.value());
  s_.expect(")");
  const bool fills = op == Op::fragment_fill;
  if (fills && regions_.type_of(operands[0]) != scalar_type(type.dtype)) {
    text_.refuse("fragment_fill with a value of another type");
  }
  if (!fills && !is_fragment(operands[0])) text_.refuse("convert_layout of what is no fragment");
  return regions_.append(op, std::move(operands), {type}, {});
}

Values OperationParser::fragment_map() {
  const std::string row(s_.identifier());
  s_.expect(",");
  const std::string column(s_.identifier());
  s_.expect("of");
  s_.expect("(");
  Values operands = regions_.values(")");
  TypeList elements;
  for (const ValueId v : operands) {
    if (!is_fragment(v)) text_.refuse("fragment_map of what is no fragment");
    elements.push_back(scalar_type(regions_.type_of(v).dtype));
  }
  if (operands.empty()) text_.refuse("fragment_map of no fragment");
  const FragmentType shape = k_.fragments[regions_.type_of(operands[0]).fragment];
  FragmentMap info;
  info.row = symbols_.declare_index(row, symbols_.names().constant(shape.rows));
  info.column = symbols_.declare_index(column, symbols_.names().constant(shape.columns));
  s_.expect("do");
  const auto list = regions_.arguments(nullptr);
  TypeList taken;
  for (const auto& [unused, type] : list) taken.push_back(type);
  regions_.expect_types(taken, elements, "fragment_map takes elements");
  const auto [id, yields] = regions_.region(list);
  TypeList results;
  for (const Type& type : yields) {
    if (type.kind != TypeKind::scalar) text_.refuse("fragment_map yields what is no scalar");
    FragmentType made = shape;
    made.dtype = type.dtype;
    results.push_back(k_.fragment_type(made));
  }
  return regions_.append(Op::fragment_map, std::move(operands), results, std::move(info), {id});
}

Values OperationParser::mma(std::string_view suffix) {
  MatrixMultiply info;
  info.unit = text_.suffix_named(kMatrixUnits, suffix, "matrix unit");
  s_.expect("(");
  Values operands = regions_.values(")");
  for (const ValueId v : operands) {
    if (!is_fragment(v)) text_.refuse("mma of what is no fragment");
  }
  const std::size_t fragments = operands.size();
  if (s_.accept("with")) {
    do {
      FragmentAccess f = fragment_access(operands);
      s_.expect("tile");
      s_.expect("[");
      f.rows = text_.count("rows");
      s_.expect(",");
      f.columns = text_.count("columns");
      s_.expect("]");
      info.shared.push_back(std::move(f));
    } while (s_.accept(","));
  }
  if (fragments == 0 || fragments + info.shared.size() != 3) {
    text_.refuse("mma takes an accumulator and two matrices");
  }
  const Type type = regions_.type_of(operands[0]);
  return regions_.append(Op::mma, std::move(operands), {type}, std::move(info));
}

}  // namespace inkle::kernel
