// The part of the DLPack 1.x ABI that torch's `torch.Tensor.__dlpack_c_exchange_api__` speaks:
// tensors are read and made by C function pointers, without Python attributes. Layout as in the
// DLPack specification (dmlc/dlpack, dlpack.h).
#pragma once

#include <cstdint>

#include "abi/dtype.h"

namespace inkle::python::dlpack {

struct Version {
  std::uint32_t major, minor;
};
struct Device {
  std::int32_t type, id;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  DataType dtype;
  std::int64_t* sizes;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct ManagedTensor {
  Version version;
  void* context;
  void (*deleter)(ManagedTensor* self);
  std::uint64_t flags;
  Tensor tensor;
};

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;
};

struct ExchangeApi {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedTensor** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*managed_to_object)(ManagedTensor* tensor, void** out);  // steals the tensor
  int (*tensor_from_object)(void* object, Tensor* out);         // borrowed
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** out);
};

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;

// DType::opaque for what Inkle has no name for.
[[nodiscard]] abi::DType from_dlpack(DataType dtype);
[[nodiscard]] DataType to_dlpack(abi::DType dtype);

}  // namespace inkle::python::dlpack
