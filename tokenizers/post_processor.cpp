#include "keel/tokenizers/post_processor.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/utf8.h"

namespace keel {
namespace {

using post_processors::TemplatePart;

void set_type(Encoding& encoding, std::uint32_t type_id) {
  std::fill(encoding.type_ids.begin(), encoding.type_ids.end(), type_id);
}

// One special token, or several, at both sides of a text and of each of its windows.
void enclose(Encoding& part, const std::vector<std::uint32_t>& before, const std::vector<std::uint32_t>& behind,
             std::uint32_t type_id) {
  Encoding enclosed;
  enclosed.reserve(part.size() + before.size() + behind.size());
  for (const std::uint32_t id : before) enclosed.add_special(id, type_id);
  enclosed.append(part);
  for (const std::uint32_t id : behind) enclosed.add_special(id, type_id);
  set_type(enclosed, type_id);
  enclosed.overflow = std::move(part.overflow);
  for (Encoding& window : enclosed.overflow) enclose(window, before, behind, type_id);
  part = std::move(enclosed);
}

class Template final : public PostProcessor {
 public:
  Template(std::vector<TemplatePart> single, std::vector<TemplatePart> pair)
      : single_(std::move(single)), pair_(std::move(pair)) {}

  std::int64_t added(bool pair) const override {
    std::int64_t specials = 0;
    for (const TemplatePart& part : pair ? pair_ : single_) specials += static_cast<std::int64_t>(part.ids.size());
    return specials;
  }
  void process(const TextPair&, std::vector<Encoding>& parts, bool add_specials) const override {
    KEEL_CHECK(parts.size() <= 2, "a template joins one text or two, and another post-processor has made ",
               parts.size(), " parts of them: templates come last in a sequence, and once");
    std::vector<Encoding> joined;
    for (const TemplatePart& part : parts.size() == 2 ? pair_ : single_) {
      if (part.what == TemplatePart::What::special) {
        if (!add_specials) continue;
        Encoding& special = joined.emplace_back();
        for (const std::uint32_t id : part.ids) special.add_special(id, part.type_id);
      } else {
        Encoding& text = parts[part.what == TemplatePart::What::second ? 1 : 0];
        set_type(text, part.type_id);
        joined.push_back(text);
      }
    }
    parts = std::move(joined);
  }

 private:
  std::vector<TemplatePart> single_, pair_;
};

class Bert final : public PostProcessor {
 public:
  Bert(SpecialToken cls, SpecialToken sep) : cls_(std::move(cls)), sep_(std::move(sep)) {}

  std::int64_t added(bool pair) const override { return pair ? 3 : 2; }
  void process(const TextPair&, std::vector<Encoding>& parts, bool add_specials) const override {
    if (!add_specials) return;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i == 0) enclose(parts[i], {cls_.id}, {sep_.id}, 0);
      else enclose(parts[i], {}, {sep_.id}, 1);
    }
  }

 private:
  SpecialToken cls_, sep_;
};

// Takes spaces at both ends of tokens out of their offsets.
class OffsetTrim {
 public:
  OffsetTrim(bool add_prefix_space, SpacesOfTokens spaces)
      : add_prefix_space_(add_prefix_space), spaces_(std::move(spaces)) {}

  void operator()(const TextPair& texts, Encoding& encoding) const {
    for (std::size_t i = 0; i < encoding.size(); ++i) {
      const std::int32_t sequence = encoding.sequence_ids[i];
      if (sequence == Encoding::kNoSequence) continue;
      const TokenSpaces spaces = spaces_(encoding.ids[i]);
      trim(sequence == 0 ? texts.first : texts.second.value_or(std::string_view()),
           spaces.in_text ? encoding.spaces[i] : spaces, i == 0, encoding.offsets[i]);
    }
    for (Encoding& window : encoding.overflow) (*this)(texts, window);
  }

 private:
  void trim(std::string_view text, TokenSpaces spaces, bool is_first, TextSpan& offset) const {
    // One space in front of a text may be the one that was added; several are the text's own.
    if (spaces.leading == 1 && add_prefix_space_ && (is_first || offset.begin == 0)) spaces.leading = 0;
    for (; spaces.leading > 0 && offset.begin < offset.end; --spaces.leading)
      offset.begin += static_cast<std::uint32_t>(std::max<std::size_t>(1, decode_utf8(text, offset.begin).bytes));
    for (; spaces.trailing > 0 && offset.end > offset.begin; --spaces.trailing) do
        --offset.end;
      while (offset.end > offset.begin && (static_cast<unsigned char>(text[offset.end]) & 0xc0) == 0x80);
  }

  bool add_prefix_space_;
  SpacesOfTokens spaces_;
};

class Roberta final : public PostProcessor {
 public:
  Roberta(SpecialToken cls, SpecialToken sep, bool trim_offsets, OffsetTrim trim)
      : cls_(std::move(cls)), sep_(std::move(sep)), trim_offsets_(trim_offsets), trim_(std::move(trim)) {}

  std::int64_t added(bool pair) const override { return pair ? 4 : 2; }
  void process(const TextPair& texts, std::vector<Encoding>& parts, bool add_specials) const override {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (trim_offsets_) trim_(texts, parts[i]);
      set_type(parts[i], 0);
      if (add_specials) enclose(parts[i], {i == 0 ? cls_.id : sep_.id}, {sep_.id}, 0);
    }
  }

 private:
  SpecialToken cls_, sep_;
  bool trim_offsets_;
  OffsetTrim trim_;
};

class ByteLevelOffsets final : public PostProcessor {
 public:
  ByteLevelOffsets(bool trim_offsets, OffsetTrim trim) : trim_offsets_(trim_offsets), trim_(std::move(trim)) {}

  std::int64_t added(bool) const override { return 0; }
  void process(const TextPair& texts, std::vector<Encoding>& parts, bool) const override {
    if (!trim_offsets_) return;
    for (Encoding& part : parts) trim_(texts, part);
  }

 private:
  bool trim_offsets_;
  OffsetTrim trim_;
};

class PostProcessors final : public PostProcessor {
 public:
  explicit PostProcessors(std::vector<PostProcessorPtr> processors) : processors_(std::move(processors)) {}

  std::int64_t added(bool pair) const override {
    std::int64_t specials = 0;
    for (const PostProcessorPtr& processor : processors_) specials += processor->added(pair);
    return specials;
  }
  void process(const TextPair& texts, std::vector<Encoding>& parts, bool add_specials) const override {
    for (const PostProcessorPtr& processor : processors_) processor->process(texts, parts, add_specials);
  }

 private:
  std::vector<PostProcessorPtr> processors_;
};

Encoding joined(const Encoding& first, const Encoding& second) {
  Encoding both;
  both.reserve(first.size() + second.size());
  both.append(first);
  both.append(second);
  return both;
}

// Puts `part` behind `whole`, and every window of either behind or in front of the other and its windows.
void join_part(Encoding& whole, const Encoding& part) {
  std::vector<Encoding> windows;
  for (const Encoding& window : whole.overflow) {
    windows.push_back(joined(window, part));
    for (const Encoding& other : part.overflow) windows.push_back(joined(window, other));
  }
  for (const Encoding& other : part.overflow) windows.push_back(joined(whole, other));
  whole.append(part);
  whole.overflow = std::move(windows);
}

}  // namespace

namespace post_processors {

PostProcessorPtr template_of(std::vector<TemplatePart> single, std::vector<TemplatePart> pair) {
  for (const TemplatePart& part : single)
    KEEL_CHECK(part.what != TemplatePart::What::second, "a template for one text has a second one: $B is of pairs");
  return std::make_shared<Template>(std::move(single), std::move(pair));
}
PostProcessorPtr bert(SpecialToken cls, SpecialToken sep) {
  return std::make_shared<Bert>(std::move(cls), std::move(sep));
}
PostProcessorPtr roberta(SpecialToken cls, SpecialToken sep, bool trim_offsets, bool add_prefix_space,
                         SpacesOfTokens spaces) {
  return std::make_shared<Roberta>(std::move(cls), std::move(sep), trim_offsets,
                                   OffsetTrim(add_prefix_space, std::move(spaces)));
}
PostProcessorPtr byte_level(bool trim_offsets, bool add_prefix_space, SpacesOfTokens spaces) {
  return std::make_shared<ByteLevelOffsets>(trim_offsets, OffsetTrim(add_prefix_space, std::move(spaces)));
}
PostProcessorPtr sequence(std::vector<PostProcessorPtr> processors) {
  return std::make_shared<PostProcessors>(std::move(processors));
}

}  // namespace post_processors

Encoding post_process(const PostProcessor* processor, const TextPair& texts, Encoding first, Encoding* second,
                      bool add_specials) {
  std::vector<Encoding> parts;
  parts.push_back(std::move(first));
  if (second != nullptr) parts.push_back(std::move(*second));
  if (processor != nullptr) processor->process(texts, parts, add_specials);
  if (parts.empty()) return {};
  Encoding whole = std::move(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) join_part(whole, parts[i]);
  return whole;
}

}  // namespace keel
