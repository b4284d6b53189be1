// What fuzz programs share: text of the input, and which exceptions are right answers to it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"

namespace inkle::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

// A file may be refused as wrong or as unsupported; anything else that is thrown ends the program.
template <class F>
void accept_refusal(F&& f) {
  try {
    f();
  } catch (const UserError&) {
  } catch (const Unsupported&) {
  }
}

}  // namespace inkle::fuzz
