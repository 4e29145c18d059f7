#pragma once
// A table over all characters: pages of 128, equal ones stored once.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

template <class T>
class TwoStage {
 public:
  static_assert(std::has_unique_object_representations_v<T>, "pages are compared by their bytes");
  static constexpr char32_t kEnd = 0x110000;

  template <class Function>
  explicit TwoStage(const Function& value_of) {
    std::map<std::string, std::uint16_t> known;
    std::array<T, kInPage + 1> page;
    std::string bytes(sizeof page, '\0');
    for (char32_t begin = 0; begin < kEnd; begin += kInPage + 1) {
      // Planes 4 to 13 have no characters: their pages are as the first of them.
      if (begin > kUnused && begin < kUnusedEnd && (begin & 0xffff) < 0xff80) {
        stage_[begin >> kPageBits] = stage_[kUnused >> kPageBits];
        continue;
      }
      for (char32_t i = 0; i <= kInPage; ++i) page[i] = value_of(begin + i);
      std::memcpy(bytes.data(), page.data(), sizeof page);
      const auto [at, is_new] = known.emplace(bytes, static_cast<std::uint16_t>(pages_.size() >> kPageBits));
      if (is_new) pages_.insert(pages_.end(), page.begin(), page.end());
      stage_[begin >> kPageBits] = at->second;
    }
  }

  T operator[](char32_t c) const { return pages_[(std::size_t{stage_[c >> kPageBits]} << kPageBits) | (c & kInPage)]; }

 private:
  static constexpr unsigned kPageBits = 7;
  static constexpr char32_t kInPage = (1u << kPageBits) - 1;
  static constexpr char32_t kUnused = 0x40000, kUnusedEnd = 0xe0000;

  std::array<std::uint16_t, (kEnd >> kPageBits)> stage_{};
  std::vector<T> pages_;
};

}  // namespace keel
