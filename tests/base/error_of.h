// What a call throws, as text: for tests of messages.
#pragma once

#include <string>

#include "base/error.h"

namespace inkle {

// Of a UserError its message, of Unsupported "unsupported: " and that, else "no error".
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  } catch (const Unsupported& error) {
    return std::string("unsupported: ") + error.what();
  }
  return "no error";
}

}  // namespace inkle
