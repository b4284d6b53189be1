// Control of a kernel from text. For parse*.cpp only.
#pragma once

#include "kernel/parse_region.h"

namespace inkle::kernel {

class ControlParser {
 public:
  ControlParser(KernelText& text, SymbolParser& symbols, RegionParser& regions)
      : text_(text), s_(text.scanner), symbols_(symbols), regions_(regions) {}
  Values operation(Op op);  // from Op::loop to Op::roles

 private:
  Loop loop();
  Values loop_operation();
  Values repeat();
  Values branch();
  Values vector();
  Values fold();
  Values roles();

  KernelText& text_;
  Scanner& s_;
  SymbolParser& symbols_;
  RegionParser& regions_;
};

}  // namespace inkle::kernel
