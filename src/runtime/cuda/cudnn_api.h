// The part of cuDNN's graph ABI that is used: names and values as NVIDIA documents them.
#pragma once

#include <cstdint>
#include <string>

namespace inkle::runtime::cuda::cudnn {

using Status = int;
using Handle = void*;
using Descriptor = void*;

inline constexpr Status kSuccess = 0;

inline constexpr int kF16 = 2, kBf16 = 9, kF32 = 0;

// Kinds of descriptors.
inline constexpr int kPointwise = 0, kConvolution = 1, kEngine = 2, kEngineConfig = 3,
                     kHeuristics = 4, kPlan = 5, kKnobChoice = 7, kConvolutionForward = 10,
                     kConvolutionWeights = 11, kConvolutionImage = 12, kPointwiseOperation = 13,
                     kOperationGraph = 15, kVariantPack = 16, kTensor = 17;

// Types of attributes.
inline constexpr int kTypeHandle = 0, kTypeDataType = 1, kTypeBoolean = 2, kTypeInt64 = 3,
                     kTypeFloat = 4, kTypePointer = 6, kTypeConvolutionMode = 7,
                     kTypeHeuristicsMode = 8, kTypeKnob = 9, kTypeNan = 10, kTypePointwiseMode = 14,
                     kTypeDescriptor = 15, kTypeBehavior = 19;

// Attributes.
inline constexpr int kPointwiseMode = 0, kPointwisePrecision = 1, kPointwiseNan = 2;
inline constexpr int kConvolutionType = 100, kConvolutionMode = 101, kConvolutionDilations = 102,
                     kConvolutionStrides = 103, kConvolutionPostPadding = 104,
                     kConvolutionPrePadding = 105, kConvolutionDims = 106;
inline constexpr int kHeuristicsMode = 200, kHeuristicsGraph = 201, kHeuristicsResults = 202;
inline constexpr int kConfigEngine = 300, kConfigKnobs = 302;
inline constexpr int kPlanHandle = 400, kPlanConfig = 401, kPlanWorkspace = 402;
inline constexpr int kKnobType = 600, kKnobValue = 601;
inline constexpr int kForwardAlpha = 700, kForwardBeta = 701, kForwardConvolution = 702,
                     kForwardW = 703, kForwardX = 704, kForwardY = 705;
inline constexpr int kImageAlpha = 706, kImageBeta = 707, kImageConvolution = 708, kImageW = 709,
                     kImageX = 710, kImageY = 711;
inline constexpr int kWeightsAlpha = 712, kWeightsBeta = 713, kWeightsConvolution = 714,
                     kWeightsW = 715, kWeightsX = 716, kWeightsY = 717;
inline constexpr int kOperationPointwise = 750, kOperationX = 751, kOperationB = 752,
                     kOperationY = 753;
inline constexpr int kGraphHandle = 800, kGraphOperations = 801;
inline constexpr int kTensorAlignment = 900, kTensorType = 901, kTensorSizes = 902,
                     kTensorStrides = 903, kTensorId = 906, kTensorVirtual = 907;
inline constexpr int kPackIds = 1000, kPackPointers = 1001, kPackWorkspace = 1003;
inline constexpr int kEngineIndex = 1301, kEngineBehavior = 1305;

// Values.
inline constexpr int kCrossCorrelation = 1;
inline constexpr int kAdd = 0, kRelu = 100;
inline constexpr int kKeepNan = 1;
inline constexpr int kModeA = 3, kModeFallback = 2;
inline constexpr int kCompilesAtRunTime = 0;

struct Api {
  std::size_t (*version)();
  Status (*create)(Handle* handle);
  Status (*set_stream)(Handle handle, void* stream);
  Status (*make)(int kind, Descriptor* descriptor);
  Status (*destroy)(Descriptor descriptor);
  Status (*set)(Descriptor descriptor, int attribute, int type, std::int64_t count,
                const void* values);
  Status (*get)(Descriptor descriptor, int attribute, int type, std::int64_t wanted,
                std::int64_t* count, void* values);
  Status (*finalize)(Descriptor descriptor);
  Status (*execute)(Handle handle, Descriptor plan, Descriptor pack);
  const char* (*error)(Status status);
};

// The library, opened once; null, and why, where that fails. Under torch, its copy is taken.
[[nodiscard]] const Api* find(std::string& why_not);

}  // namespace inkle::runtime::cuda::cudnn
