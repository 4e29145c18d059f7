#pragma once
// Helpers for tests of the C interface: handles that go with their scope, and files as bytes.

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "keel/capi/keel.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

#define EXPECT_KEEL(call) EXPECT_EQ(call, KEEL_OK) << keel_last_error()

template <class Handle, keel_status (*destroy)(Handle**)>
struct Owned {
  Handle* handle = nullptr;
  Owned() = default;
  Owned(Owned&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() { EXPECT_KEEL(destroy(&handle)); }
  operator Handle*() const { return handle; }  // NOLINT: it is handed to functions as the handle
  Handle** out() { return &handle; }           // where it is made
};
using CSettings = Owned<keel_settings, keel_settings_destroy>;
using CContext = Owned<keel_context, keel_context_destroy>;
using CArray = Owned<keel_array, keel_array_destroy>;
using CBatch = Owned<keel_batch, keel_batch_destroy>;
using CTeam = Owned<keel_team, keel_team_destroy>;
using CModel = Owned<keel_model, keel_model_destroy>;

using Pairs = std::initializer_list<std::pair<const char*, const char*>>;

inline CSettings c_settings(Pairs pairs) {
  CSettings settings;
  EXPECT_KEEL(keel_settings_create(settings.out()));
  for (const auto& [key, value] : pairs) EXPECT_KEEL(keel_settings_set(settings, key, value));
  return settings;
}

// A rank alone.
inline CContext c_context(Pairs pairs = {{"threads", "1"}}) {
  CContext context;
  EXPECT_KEEL(keel_context_create(c_settings(pairs), context.out()));
  return context;
}

inline int dtype_of_c(const float*) { return KEEL_F32; }
inline int dtype_of_c(const double*) { return KEEL_F64; }
inline int dtype_of_c(const std::int32_t*) { return KEEL_I32; }
inline int dtype_of_c(const std::int64_t*) { return KEEL_I64; }

template <class T>
CArray c_array(const CContext& context, T* memory, const std::vector<std::int64_t>& shape,
               const std::vector<std::int64_t>& strides = {}) {
  CArray array;
  EXPECT_KEEL(keel_array_create(context, memory, dtype_of_c(memory), KEEL_HOST, static_cast<int>(shape.size()),
                                shape.data(), strides.empty() ? nullptr : strides.data(), array.out()));
  return array;
}

// The numbers of a folder that keel_model_save() wrote, byte for byte: weights, and the optimizer's state if it has
// any.
inline std::string saved_numbers(const std::string& folder, int files = 1) {
  std::string bytes;
  for (const char* kind : {"model", "optimizer"})
    for (int i = 1; i <= files; ++i) {
      const std::string file = files == 1 ? concat(folder, '/', kind, ".safetensors")
                                          : concat(folder, '/', kind, '-', i, "-of-", files, ".safetensors");
      if (std::filesystem::exists(file)) bytes += read_text_file(file);
    }
  EXPECT_NE(bytes, "");
  return bytes;
}

// The same of a model of one rank.
inline std::string numbers_of(const CModel& model) {
  const TemporaryFolder place;
  EXPECT_KEEL(keel_model_save(model, (place / "c").c_str()));
  return saved_numbers(place / "c");
}

}  // namespace keel::testing
