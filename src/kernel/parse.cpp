#include "kernel/parse.h"

#include <memory>

#include "kernel/parse_operation.h"

namespace inkle::kernel {

Kernel parse_kernel(std::string_view text, std::string_view file, sym::Context& context) {
  Kernel kernel;
  KernelText source(text, file);
  SymbolParser symbols(source, context);
  DeclarationParser declarations(source, symbols, kernel);
  // Regions are made of operations, and operations have regions.
  std::optional<OperationParser> operations;
  RegionParser regions(source, symbols, kernel,
                       [&](std::string_view word, const RegionParser::Wanted& wanted) {
                         return operations->operation(word, wanted);
                       });
  operations.emplace(source, symbols, declarations, regions, kernel);
  Scanner& s = source.scanner;
  s.expect("kernel");
  s.expect("@");
  kernel.name = source.name();
  declarations.head();
  declarations.launch();
  s.expect("{");
  declarations.declarations();
  regions.body();
  if (!s.at_end()) s.fail("text after the kernel");
  return kernel;
}

ParsedKernel parse_kernel(std::string_view text, std::string_view file) {
  ParsedKernel parsed{std::make_unique<sym::Context>(), {}};
  parsed.kernel = parse_kernel(text, file, *parsed.context);
  return parsed;
}

}  // namespace inkle::kernel
